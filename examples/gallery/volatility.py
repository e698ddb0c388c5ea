"""# Volatility of an index, leverage, and value at risk

Daily returns of the S&P 500 of 2008 and 2009. The log-variance is a hidden autoregression, and bad
news raise it (leverage, rho < 0). Parameters are those of the four quiet years before; the filter
goes through the crisis with them, says every evening what tomorrow may bring, and is held to it.
"""

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np
from arch import arch_model
from scipy.stats import binom

import psdfilter as psd

jax.config.update("jax_enable_x64", True)

days, returns = psd.systems.index_returns()
year = days.astype("datetime64[Y]").astype(int) + 1970
past = returns[(year >= 2004) & (year < 2008)]
days, returns = days[(year == 2008) | (year == 2009)], returns[(year == 2008) | (year == 2009)]

# %%
# The parameters are what `StochasticVolatility(leverage=True).fit(past, tol=1e-3)` finds, in about
# three minutes.
sv = psd.models.StochasticVolatility(leverage=True).at(
    returns, mu=-0.69, phi=0.966, sigma=0.169, rho=-0.835
)
post = sv.filter()
volatility = np.sqrt(np.asarray(post.expect(lambda x: jax.numpy.exp(x[0]))))
worst = int(np.argmax(volatility))
print(f"largest volatility {volatility[worst]:.1f} % a day, on {str(days[worst])[:10]}")
print("every step within tol:", bool(post.error_estimate < post.model.tol))

# %%
# The law of tomorrow's return is a density: its quantiles are values at risk. If they are right,
# one return in twenty lies below that of 5 %, and one in a hundred below that of 1 %.
# They are not: with parameters of quiet years large losses are more frequent than predicted. A
# count like this belongs beside every value at risk.
for level in (0.05, 0.01):
    cut = np.asarray(post.predicted_observations.quantile(level))[:, 0]
    below = int(np.sum(returns < cut))
    low, high = (int(n) for n in binom.interval(0.95, len(returns), level))
    print(f"below {level:.0%}: {below} of {len(returns)}; {low} to {high} if the model is right")
cut, shortfall = psd.models.value_at_risk(sv, 0.01)
print(f"for the next day: value at risk {cut:.2f} %, expected shortfall {shortfall:.2f} %")

# %%
# GJR-GARCH of the package `arch`, fitted to the same four years and run over the same days, has a
# similar volatility and does better here. Leverage as strong as in the quiet years does harm.
garch = arch_model(past, mean="Zero", p=1, o=1, q=1).fit(disp="off")
theirs = arch_model(returns, mean="Zero", p=1, o=1, q=1).fix(garch.params)
plain = psd.models.StochasticVolatility().filter(returns, mu=-0.69, phi=0.966, sigma=0.169)
start = 20  # days that both need to forget how they start
for name, logs in {
    "with leverage": np.asarray(post.log_likelihoods),
    "rho = 0": np.asarray(plain.log_likelihoods),
    "GJR-GARCH": -0.5
    * (np.log(2 * np.pi * theirs.conditional_volatility**2) + theirs.std_resid**2),
}.items():
    print(f"{name:14s} log-likelihood of {len(returns) - start} days {logs[start:].sum():.1f}")
apart = np.corrcoef(np.log(volatility[start:]), np.log(theirs.conditional_volatility[start:]))[0, 1]
print(f"correlation of the two log-volatilities {apart:.2f}")

# %%
figure, axes = plt.subplots(2, 1, figsize=(8.5, 6), sharex=True, layout="constrained")
at = days.astype("datetime64[D]")
cut = np.asarray(post.predicted_observations.quantile(0.01))[:, 0]
axes[0].plot(at, returns, color="0.6", lw=0.7, label="return")
axes[0].plot(at, cut, "C0", lw=1, label="1 % value at risk, of the day before")
axes[0].plot(at[returns < cut], returns[returns < cut], "C1x", ms=7, mew=2, label="below it")
axes[0].set_ylabel("percent")
low, high = (np.exp(0.5 * np.asarray(end)[:, 0]) for end in post.interval(0.9))
axes[1].fill_between(at, low, high, color="C0", alpha=0.3, lw=0, label="volatility, 90 %")
axes[1].plot(at, theirs.conditional_volatility, "C1", lw=1, label="GJR-GARCH")
axes[1].set(ylabel="percent a day", yscale="log", yticks=[0.5, 1, 2, 4])
axes[1].yaxis.set_major_formatter("{x:g}")
axes[1].minorticks_off()
for ax in axes:
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
