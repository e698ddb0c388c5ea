"""# A diffusion at irregular times

A particle in a potential with two wells, dx = (x - x³) dt + 0.5 dW. It stays in one well for a
long time and then jumps. It is measured at irregular times, with gaps in which the law spreads
from one well into both.
"""

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np
from scipy.linalg import expm

import psdfilter as psd

jax.config.update("jax_enable_x64", True)

SPREAD, SENSOR = 0.5, 0.6
ssm = psd.diffusion(
    drift=lambda x: x - x**3,
    diffusion=lambda x: SPREAD + 0.0 * x,
    m0=-1.0,
    P0=0.1,
    h=lambda x: x,
    R=SENSOR**2,
)

# %%
# The path is simulated with steps of 0.001, and seen 27 times, with two long gaps.
rng = np.random.default_rng(11)
fine = 0.001
path = [-1.0]
for kick in SPREAD * np.sqrt(fine) * rng.normal(size=40_000):
    path.append(path[-1] + (path[-1] - path[-1] ** 3) * fine + kick)
path = np.array(path)
times = np.sort(rng.choice(np.r_[np.arange(1, 140), np.arange(190, 280), np.arange(340, 400)], 27))
times = np.unique(times) / 10.0
truth = path[np.round(times / fine).astype(int)]
ys = truth + SENSOR * rng.normal(size=len(times))

model = psd.learn(ssm, tol=1e-2)
post = psd.run_filter(model, ys, times=times)
low, high = (np.asarray(end)[:, 0] for end in post.interval(0.9))
print(f"{len(times)} observations, {np.mean((low <= truth) & (truth <= high)):.0%} inside of 90 %")
print("every step within tol:", bool(post.error_estimate < model.tol))

# %%
# The Fokker-Planck equation on 400 cells is an independent check: jumps between neighbouring
# cells, and the exponential of their rates for every interval of time.
cells = np.linspace(-3.0, 3.0, 401)
width = cells[1] - cells[0]
up, down = (SPREAD**2 / width**2 + s * (cells - cells**3) / width for s in (1, -1))
rates = 0.5 * (np.diag(up[:-1], 1) + np.diag(down[1:], -1))
rates -= np.diag(rates.sum(axis=1))
law = np.exp(-0.5 * (cells + 1.0) ** 2 / 0.1)
law, total, now, laws = law / law.sum(), 0.0, 0.0, []
for time, y in zip(times, ys, strict=True):
    law = law @ expm((time - now) * rates)
    law *= np.exp(-0.5 * ((y - cells) / SENSOR) ** 2) / (SENSOR * np.sqrt(2 * np.pi))
    total, now = total + np.log(law.sum()), time
    law /= law.sum()
    laws.append(law)
ours = np.array([post.density(t)(cells[:, None]) for t in range(len(times))])
apart = np.abs(ours - np.array(laws) / width).sum(axis=1) * width
print(f"log-likelihood {float(post.log_likelihood):.2f}, of the cells {total:.2f}")
print(f"total variation to the cells: largest {apart.max():.3f}")

# %%
# On the right the law that is nearest to undecided between the wells; dots are those of the cells.
right = np.array(laws)[:, cells > 0].sum(axis=1)
t = int(np.argmin(np.abs(right - 0.5)))
figure, axes = plt.subplots(
    1, 2, figsize=(9, 3.8), width_ratios=[3, 1], sharey=True, layout="constrained"
)
psd.plot.over_time(
    post, observations=ys, truth=truth, limits=(-2.4, 2.4), names=["position"], ax=axes[0]
)
axes[1].plot(post.density(t)(cells[:, None]), cells, "C0-", label="filter")
axes[1].plot(laws[t][::8] / width, cells[::8], "C1.", ms=5, label="cells")
axes[1].set(xlabel=f"density at time {times[t]:.1f}", ylim=(-2.4, 2.4))
axes[1].spines[["top", "right"]].set_visible(False)
axes[1].legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
