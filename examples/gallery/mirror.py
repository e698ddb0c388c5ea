"""# Mirror ambiguity: the sign is never seen

The state moves on a line, and the sensor sees its square. Two places explain every observation
equally well, so the posterior has two modes for ever. An extended or unscented Kalman filter has
one bell curve to say it with, and its mean is where the state never is.
"""

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import psdfilter as psd

jax.config.update("jax_enable_x64", True)

ssm = psd.additive_gaussian(
    f=lambda x: 2.0 * jnp.sin(x), h=lambda x: x**2 / 4, Q=0.2, R=0.1, m0=0.0, P0=1.0
)


def simulate(num, seed=3):
    rng, x, states, ys = np.random.default_rng(seed), 0.5, [], []
    for _ in range(num):
        x = 2.0 * np.sin(x) + np.sqrt(0.2) * rng.normal()
        states.append(x)
        ys.append(x**2 / 4 + np.sqrt(0.1) * rng.normal())
    return np.array(states), np.array(ys)


states, ys = simulate(50)
model = psd.learn(ssm, tol=1e-3)
post = psd.run_filter(model, ys)
print(f"log-likelihood {float(post.log_likelihood):.3f}")
print("every step within tol:", bool(post.error_estimate < model.tol))

# %%
# How sure is the filter of the sign? The probability of a positive state is an expectation, and the
# modes of a density are places, not samples.
positive = np.asarray(post.expect(lambda x: jnp.where(x[0] > 0, 1.0, 0.0)))
print("P(x > 0) at the end:", round(float(positive[-1]), 3))
print("modes:", np.round(np.sort(np.asarray(post.modes(49))[:, 0]), 2))
print(f"mean: {abs(float(post.mean[-1, 0])):.2f}, true state: {states[-1]:.2f}")

# %%
figure, axes = plt.subplots(
    1, 2, figsize=(10, 3.4), width_ratios=[3, 1], sharey=False, layout="constrained"
)
psd.plot.over_time(post, truth=states, ax=axes[0])
psd.plot.density(post, 49, truth=[states[-1]], ax=axes[1])
