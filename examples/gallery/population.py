"""# A population in counts, with gaps

Forty years of counts of a bird, of which eleven are missing: nobody went in some years, and in one
stretch the hide was closed. The population grows towards a capacity (Ricker's map), with good and
bad years; a count is Poisson. Everything is estimated from what there is.
"""

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import psdfilter as psd

jax.config.update("jax_enable_x64", True)

GROWTH, CAPACITY, SIGMA = 0.6, 40.0, 0.25
rng = np.random.default_rng(8)
years = np.arange(1980, 2020)
x, path = np.log(12.0), []
for _ in years:
    path.append(x)
    x = x + GROWTH * (1 - np.exp(x) / CAPACITY) + SIGMA * rng.normal()
path = np.array(path)
counts = rng.poisson(np.exp(path)).astype(float)
counts[[6, 9, 10, 33]] = np.nan
counts[17:24] = np.nan

# %%
# `fit` is maximum a posteriori under a weak prior; intervals come from the curvature.
fitted = psd.models.PopulationGrowth(growth="ricker", counts="poisson").fit(counts, tol=1e-2)
truth = {"log_K": np.log(CAPACITY), "r": GROWTH, "sigma": SIGMA}
fit = fitted.fitted
for name, low, high in zip(fit.names, *fit.interval(0.95), strict=True):
    found = f"{float(fitted.theta[name]):.2f} ({low:.2f} to {high:.2f})"
    print(f"{name:5s} {found}, truth {truth[name]:.2f}")

# %%
# The smoother fills the gaps from both ends. How many birds were there in 2000, and is the
# population below half of its capacity at the end?
smooth = fitted.smooth()
low, high = (np.exp(np.asarray(end)[:, 0]) for end in smooth.interval(0.9))
inside = (low <= np.exp(path)) & (np.exp(path) <= high)
gap = np.isnan(counts)
print(
    f"true sizes inside of 90 %: {inside.sum()} of 40, {inside[gap].sum()} of {gap.sum()} in gaps"
)
print(f"2000: {low[20]:.0f} to {high[20]:.0f} birds, in truth {np.exp(path[20]):.0f}")
half = float(smooth.cdf(np.asarray(fitted.theta["log_K"]) - np.log(2.0))[-1, 0])
print(f"P(below half of the capacity in 2019) = {half:.3f}")

# %%
# Particles at the fitted parameters are an independent check of the likelihood.
r, log_K, sigma = (float(fitted.theta[name]) for name in ("r", "log_K", "sigma"))
cloud, total = log_K + rng.normal(size=200_000), 0.0
for t, y in enumerate(counts):
    if t:  # the first count is of the first state
        cloud = cloud + r * (1 - np.exp(cloud - log_K)) + sigma * rng.normal(size=len(cloud))
    if not np.isnan(y):
        logs = y * cloud - np.exp(cloud) - np.sum(np.log(np.arange(1, y + 1)))
        weights = np.exp(logs)
        total += np.log(weights.mean())
        cloud = rng.choice(cloud, len(cloud), p=weights / weights.sum())
print(f"log-likelihood {float(smooth.log_likelihood):.2f}, of 200 000 particles {total:.1f}")

# %%
figure, ax = plt.subplots(figsize=(8, 3.8), layout="constrained")
ax.fill_between(years, low, high, color="C0", alpha=0.25, lw=0, label="90 % of the smoother")
ax.plot(years, np.exp(smooth.quantile(0.5)[:, 0]), "C0", label="median")
ax.plot(years, counts, "kx", ms=5, label="counted")
ax.plot(years[gap], np.exp(path)[gap], "C1o", mfc="none", ms=5, label="truth where nobody counted")
ax.set(xlabel="year", ylabel="birds")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
