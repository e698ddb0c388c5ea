"""Stochastic volatility of the S&P 500: estimation, sampling and checks, on daily returns.

    x' = mu + rho (u - mu) + sigma N(0, 1),    y = exp(x / 2) N(0, 1)

Writes output/volatility.png, output/volatility_checks.png and output/volatility_posterior.png.
"""

import argparse
import time
from pathlib import Path

import arviz
import jax
import jax.numpy as jnp
import matplotlib
import numpyro
import numpyro.distributions as dist
from matplotlib import pyplot as plt

import psdfilter as psd

jax.config.update("jax_enable_x64", True)
matplotlib.use("Agg")

BOUNDS = {"rho": (-1.0, 1.0), "sigma": (0.0, None)}
STARTS = (
    {"mu": 0.0, "rho": 0.9, "sigma": 0.3},
    {"mu": 2.0, "rho": 0.3, "sigma": 1.0},
    {"mu": -2.0, "rho": 0.99, "sigma": 0.5},
)


def build(theta):
    mu, rho, sigma = theta["mu"], theta["rho"], theta["sigma"]
    sd = sigma / jnp.sqrt(1.0 - jnp.square(rho))

    def log_normal(residual, scale):
        return -0.5 * jnp.square(residual / scale) - jnp.log(scale) - 0.5 * jnp.log(2 * jnp.pi)

    return psd.StateSpaceModel(
        log_prior=lambda x: log_normal(x[0] - mu, sd),
        log_transition=lambda u, x: log_normal(x[0] - mu - rho * (u[0] - mu), sigma),
        log_observation=lambda x, y: log_normal(y[0], jnp.exp(0.5 * x[0])),
        state_box=psd.Box([mu - 5.6 * sd], [mu + 5.6 * sd]),
        observation_box=psd.Box([-25.0], [25.0]),
        sample_observation=lambda key, x: jnp.exp(0.5 * x) * jax.random.normal(key, (1,)),
    )


def log_prior(theta):
    """Weak: sigma half-normal, rho uniform, mu normal."""
    return -0.5 * jnp.square(theta["mu"] / 3.0) - 0.5 * jnp.square(theta["sigma"])


def sample(likelihood, fitted, num_samples, num_chains):
    """NUTS through NumPyro: the likelihood is one `factor`."""

    def model():
        theta = {
            "mu": numpyro.sample("mu", dist.Normal(0.0, 3.0)),
            "rho": numpyro.sample("rho", dist.Uniform(-1.0, 1.0)),
            "sigma": numpyro.sample("sigma", dist.HalfNormal(1.0)),
        }
        numpyro.factor("y", likelihood(theta))

    kernel = numpyro.infer.NUTS(
        model,
        init_strategy=numpyro.infer.init_to_value(values=fitted.theta),
        dense_mass=True,
    )
    mcmc = numpyro.infer.MCMC(
        kernel,
        num_warmup=300,
        num_samples=num_samples,
        num_chains=num_chains,
        chain_method="sequential",
        progress_bar=True,
    )
    mcmc.run(jax.random.key(1))
    return mcmc


def draw_path(days, fitted, smooth, path):
    lower, upper = smooth.interval(0.9)
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(9, 5), sharex=True, layout="constrained")
    top.plot(days, fitted.likelihood.settings.ys, color="#525252", lw=0.4)
    top.set_ylabel("return, per cent")
    bottom.fill_between(
        days, jnp.exp(0.5 * lower[:, 0]), jnp.exp(0.5 * upper[:, 0]), color="#9ecae1", lw=0
    )
    bottom.plot(days, jnp.exp(0.5 * smooth.quantile(0.5)[:, 0]), color="#08519c", lw=0.8)
    bottom.set_ylabel("volatility, 90 % band")
    for ax in (top, bottom):
        ax.spines[["top", "right"]].set_visible(False)
        ax.margins(x=0)
    figure.savefig(path, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=None, help="only the last so many days")
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--chains", type=int, default=4)
    arguments = parser.parse_args()
    output = Path("output")
    output.mkdir(exist_ok=True)
    days, returns = psd.systems.index_returns()
    if arguments.days is not None:
        days, returns = days[-arguments.days :], returns[-arguments.days :]

    fits = []
    for start in STARTS:
        fits.append(psd.fit(build, start, returns, bounds=BOUNDS, first="observe"))
        print(f"from {start}: log-likelihood {float(fits[-1].log_likelihood):.6f}")
    fitted = fits[0]
    print(fitted)

    model = fitted.likelihood.model(fitted.theta)
    draw_path(
        days,
        fitted,
        psd.run_smoother(model, returns, first="observe"),
        output / "volatility.png",
    )
    psd.plot.checks(fitted.posterior())[0].figure.savefig(output / "volatility_checks.png", dpi=130)

    likelihood = fitted.covering(width=5.0, tol=1e-2)
    started = time.perf_counter()
    mcmc = sample(likelihood, fitted, arguments.samples, arguments.chains)
    seconds = time.perf_counter() - started
    data = psd.to_arviz(likelihood, mcmc.get_samples(group_by_chain=True), pointwise=False)
    print(arviz.summary(data, hdi_prob=0.9, round_to=4))
    print(f"{arguments.chains * arguments.samples} draws in {seconds:.0f} s")
    axes = arviz.plot_posterior(data, hdi_prob=0.9, figsize=(9, 2.8))
    axes.ravel()[0].figure.savefig(output / "volatility_posterior.png", dpi=130)


if __name__ == "__main__":
    main()
