"""# A linear model with a prior of many modes

Dynamics and sensor are linear and Gaussian, but nobody knows from which of four harbours the ship
set out. The prior is a mixture; the filter is exact, and the order never grows: four bells, each
with its own Kalman filter, and weights that say how well each of them explains the data.
"""

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import psdfilter as psd

jax.config.update("jax_enable_x64", True)

harbours = np.array([-6.0, -1.0, 2.0, 7.0])
prior = psd.from_mixture([0.25] * 4, harbours[:, None], [0.3])
ssm = psd.linear_gaussian(F=0.95, Q=0.15, H=1.0, R=9.0, m0=None, P0=None, prior=prior)
model = psd.learn(ssm)
print(f'engine "{model.engine}": {model.report.reason}')

# %%
# A ship from the third harbour, seen dimly.
rng, x, states, ys = np.random.default_rng(8), 2.2, [], []
for _ in range(25):
    x = 0.95 * x + np.sqrt(0.15) * rng.normal()
    states.append(x)
    ys.append(x + 3.0 * rng.normal())
post = psd.run_filter(model, ys)
for t in (0, 4, 24):
    weights = np.exp(np.asarray(post.density(t).log_weights))
    print(f"after {t + 1:2d} observations:", np.round(weights / weights.sum(), 3))

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 3.4), layout="constrained")
psd.plot.over_time(post, truth=states, ax=axes[0])
for t, colour in ((0, "0.6"), (4, "#56b4e9"), (24, "#0072b2")):
    grid = np.linspace(-8, 9, 400)
    axes[1].plot(grid, post.density(t)(grid[:, None]), color=colour, label=f"t = {t + 1}")
axes[1].legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=3)
axes[1].set(xlabel="x", ylabel="density")
