"""# A thousand series

A thousand batteries of one make, each measured for another number of days, some days missing. The
state is the logarithm of what is left of the capacity, which falls faster the lower it is; the
sensor reads the capacity. `run_fleet` filters all of them side by side and says of every series
whether it can be trusted.
"""

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import psdfilter as psd

jax.config.update("jax_enable_x64", True)

FADE, NOISE, SENSOR = 0.01, 0.02, 0.05
ssm = psd.additive_gaussian(
    f=lambda x: x - FADE * jnp.exp(-x),
    h=jnp.exp,
    Q=NOISE**2,
    R=SENSOR**2,
    m0=0.0,
    P0=0.0025,
    state_box=(-2.0, 0.5),
)

# %%
rng = np.random.default_rng(3)
states, series = {}, {}
for i in range(1000):
    days = rng.integers(10, 40)
    x, path = 0.05 * rng.normal(), []
    for _ in range(days):
        x = x - FADE * np.exp(-x) + NOISE * rng.normal()
        path.append(x)
    y = np.exp(path) + SENSOR * rng.normal(size=days)
    y[rng.uniform(size=days) < 0.1] = np.nan
    states[f"battery {i}"], series[f"battery {i}"] = np.array(path), y[:, None]
series["battery 13"][3] = np.inf  # a broken record

model = psd.learn(ssm, tol=1e-2)
data = psd.run_fleet(model, series, quantiles=(0.05, 0.95), progress=False)
print(data.attrs["summary"].splitlines()[0])
bad = data.series.values[data.code.values != 0]
print("not to be trusted:", ", ".join(bad))

# %%
# The true states are known here: 90 % of them should lie between the two quantiles. A series on its
# own gives the same numbers.
fine = [name for name in series if name not in bad]
hits, total = 0, 0
for name in fine:
    low, high = data.quantiles.sel(series=name).values[: len(states[name]), 0].T
    hits += np.sum((low <= states[name]) & (states[name] <= high))
    total += len(states[name])
print(f"{total} states, {hits / total:.1%} of them between the quantiles of 5 % and 95 %")
alone = psd.run_filter(model, series["battery 500"])
gap = np.nanmax(
    np.abs(data["mean"].sel(series="battery 500")[: len(alone.mean), 0] - alone.mean[:, 0])
)
print(f"battery 500 alone: means differ by at most {gap / NOISE:.3f} of a day's noise")

# %%
# Which batteries have less than 70 % left, with a probability of at least 95 %?
end = {name: len(states[name]) - 1 for name in fine}
upper = np.array([data.quantiles.sel(series=n).values[end[n], 0, 1] for n in fine])
weak = upper < np.log(0.7)
true_weak = np.array([states[n][-1] < np.log(0.7) for n in fine])
print(f"{weak.sum()} batteries flagged, {np.sum(weak & true_weak)} of them rightly")

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
middle = data["mean"].values[:, :, 0]
axes[0].plot(np.arange(1, 40), np.exp(middle[::5].T[:39]), color="C0", lw=0.4, alpha=0.35)
axes[0].set(xlabel="day", ylabel="capacity, every fifth battery")
last = np.array([middle[list(data.series.values).index(n), end[n]] for n in fine])
true = np.array([states[n][-1] for n in fine])
axes[1].plot(np.exp(true[~weak]), np.exp(last[~weak]), ".", color="C0", ms=3, label="fine")
axes[1].plot(np.exp(true[weak]), np.exp(last[weak]), "x", color="C1", ms=4, label="flagged")
axes[1].axline((0.7, 0.7), slope=1, color="0.5", lw=0.8)
axes[1].set(xlabel="true capacity at the end", ylabel="estimated")
axes[1].legend(frameon=False, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
for ax in axes:
    ax.spines[["top", "right"]].set_visible(False)
