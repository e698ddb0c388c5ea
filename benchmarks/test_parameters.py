"""Gradients of the likelihood: their price, their memory, and what samplers make of them.

The two comparisons with other packages run where those are installed (`make peers`).
"""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import psdfilter as psd
from benchmarks.yardsticks import best_time

VOLATILITY = {"mu": -1.0, "rho": 0.95, "sigma": 0.25}


def volatility_likelihood(length, **keywords):
    system = psd.systems.stochastic_volatility
    ys = np.asarray(system.simulate(0, length, first="observe", **VOLATILITY)[1])
    build = lambda theta: system(**theta)  # noqa: E731
    return psd.likelihood(build, VOLATILITY, ys, first="observe", **keywords), ys


def test_a_gradient_costs_a_few_likelihoods():
    ll, _ = volatility_likelihood(1000)
    value, gradient = jax.jit(lambda theta: ll(theta)), jax.jit(jax.grad(ll))
    ratios = []
    for _ in range(3):
        ratios.append(best_time(gradient, VOLATILITY, repeat=15) / best_time(value, VOLATILITY))
    print(f"\ngradient of 1000 steps: {min(ratios):.2f} likelihoods (bar 5)")
    assert min(ratios) <= 5


def _temporary_memory(ll, theta):
    """MiB that the compiled gradient allocates besides its arguments."""
    theta = jax.tree.map(jnp.asarray, theta)
    compiled = jax.jit(jax.grad(ll)).lower(theta).compile()
    return compiled.memory_analysis().temp_size_in_bytes / 2**20


def test_memory_of_a_long_gradient():
    ll, _ = volatility_likelihood(10_000)
    used = _temporary_memory(ll, VOLATILITY)
    print(f"\ngradient of 10 000 steps in 1-d: {used:.1f} MiB (bar 256)")
    assert used < 256


def test_memory_of_a_gradient_in_two_dimensions():
    system = psd.systems.pendulum
    theta = {"damping": 0.6, "sensor_sd": 0.15}
    ys = np.asarray(system.simulate(0, 1000)[1])
    ll = psd.likelihood(lambda p: system(**p), theta, ys, tol=1e-3)
    used = _temporary_memory(ll, theta)
    print(f"\ngradient of 1000 steps in 2-d: {used:.1f} MiB (bar 1024)")
    assert used < 1024


def _effective_sizes(chains):
    """Bulk effective sample size of every parameter; chains is name -> (chains, draws)."""
    arviz = pytest.importorskip("arviz")
    return {name: float(arviz.ess(np.asarray(draws))) for name, draws in chains.items()}


def test_nuts_against_particle_marginal_metropolis_hastings():
    """Effective samples per second, same model, data and priors, in one run."""
    pytest.importorskip("particles", reason="make peers installs it")
    numpyro = pytest.importorskip("numpyro")
    import numpyro.distributions as dist
    import particles.distributions as pdist
    from particles import mcmc
    from particles import state_space_models as pssm

    # Four years of days. PMMH needs a number of particles that grows with the series.
    system = psd.systems.stochastic_volatility
    ys = np.asarray(system.simulate(0, 1000, first="observe", **VOLATILITY)[1])
    bounds = {"rho": (-1, 1), "sigma": (0, 2)}
    started = time.perf_counter()
    fitted = psd.fit(
        lambda theta: system(**theta), VOLATILITY, ys, first="observe", tol=1e-3, bounds=bounds
    )
    covering = fitted.covering(width=4.0, tol=1e-2)
    fit_seconds = time.perf_counter() - started

    def model():
        theta = {
            "mu": numpyro.sample("mu", dist.Normal(0.0, 2.0)),
            "rho": numpyro.sample("rho", dist.Uniform(0.5, 1.0)),
            "sigma": numpyro.sample("sigma", dist.Uniform(0.02, 1.0)),
        }
        numpyro.factor("y", covering(theta))

    def nuts(seed):
        start = numpyro.infer.init_to_value(values=fitted.theta)
        run = numpyro.infer.MCMC(
            numpyro.infer.NUTS(model, init_strategy=start, dense_mass=True, target_accept_prob=0.7),
            num_warmup=300,
            num_samples=4000,
            num_chains=2,
            chain_method="sequential",
            progress_bar=False,
        )
        run.run(jax.random.key(seed))
        return run.get_samples(group_by_chain=True)

    started = time.perf_counter()
    ours = nuts(0)
    our_seconds = time.perf_counter() - started  # compilation and warm-up included
    # A whole run starts with a fit, which PMMH is given for nothing.
    whole_seconds = fit_seconds + our_seconds

    class Volatility(pssm.StochVol):
        default_params = VOLATILITY

    class Metropolis(mcmc.PMMH):
        def compute_post(self):
            """As it is in particles 0.4, which stores arrays of one number as numbers."""
            self.prop.lpost[0] = self.prior.logpdf(self.prop.theta)[0]
            if np.isfinite(self.prop.lpost[0]):
                filtered = self.alg_instance({n: self.prop.theta[n][0] for n in VOLATILITY})
                filtered.run()
                self.prop.lpost[0] += filtered.logLt

    prior = pdist.StructDist(
        {
            "mu": pdist.Normal(scale=2.0),
            "rho": pdist.Uniform(0.5, 1.0),
            "sigma": pdist.Uniform(0.02, 1.0),
        }
    )
    # The usual choice: the standard deviation of the log-likelihood at the estimate is about 1.2.
    spread = {}
    for count in (50, 100, 200, 300, 400, 600, 800):
        logs = []
        for seed in range(20):
            np.random.seed(seed)  # noqa: NPY002
            at = {name: float(value) for name, value in fitted.theta.items()}
            import particles

            filtered = particles.SMC(
                fk=pssm.Bootstrap(ssm=Volatility(**at), data=ys[:, 0]), N=count
            )
            filtered.run()
            logs.append(filtered.logLt)
        spread[count] = float(np.std(logs))
        if spread[count] < 1.3:
            break
    np.random.seed(1)  # noqa: NPY002
    started = time.perf_counter()
    at_estimate = np.array(
        tuple(float(fitted.theta[name]) for name in VOLATILITY), [(n, float) for n in VOLATILITY]
    )
    chain = Metropolis(
        ssm_cls=Volatility,
        prior=prior,
        data=ys[:, 0],
        Nx=count,
        niter=4000,
        adaptive=True,
        theta0=at_estimate.reshape(1),
    )
    chain.run()
    their_seconds = time.perf_counter() - started
    burn = 1000
    theirs = {name: chain.chain.theta[name][None, burn:] for name in VOLATILITY}
    our_sizes, their_sizes = _effective_sizes(ours), _effective_sizes(theirs)
    print(f"\nPMMH with {count} particles (sd of log-likelihood {spread[count]:.2f})")
    ratios = {}
    for name in VOLATILITY:
        our_rate = our_sizes[name] / whole_seconds
        # Burn-in counts for both: the whole run is on the clock.
        their_rate = their_sizes[name] / their_seconds
        ratios[name] = our_rate / their_rate
        print(
            f"{name:6} mean {np.mean(ours[name]):.3f} / {np.mean(theirs[name]):.3f}   sd "
            f"{np.std(ours[name]):.3f} / {np.std(theirs[name]):.3f}   effective per second "
            f"{our_rate:.1f} / {their_rate:.3f}   ratio {ratios[name]:.0f}, sampling alone "
            f"{ratios[name] * whole_seconds / our_seconds:.0f}"
        )
    print(f"seconds: fit {fit_seconds:.1f}, NUTS {our_seconds:.1f}; PMMH {their_seconds:.1f}")
    assert min(ratios.values()) >= 50


def test_estimates_next_to_those_of_an_extended_kalman_filter():
    """States of either sign seen through their square: the EKF has to settle on one of the two.

    The drift 0.3 tells them apart later on, when it is too late for it. (Without, the model is
    symmetric, and the wrong sign predicts the same squares as the right one.)
    """
    pytest.importorskip("dynamax", reason="make peers installs it")
    import optimistix as optx
    from dynamax.nonlinear_gaussian_ssm import ParamsNLGSSM, extended_kalman_filter

    truth = {"gain": 0.9, "sd": 0.25, "sensor_sd": 0.15}
    f = lambda gain: lambda u: 0.3 + gain * jnp.sin(2.2 * u)  # noqa: E731
    h = jnp.square

    def build(theta):
        return psd.additive_gaussian(
            f(theta["gain"]),
            h,
            theta["sd"] ** 2,
            theta["sensor_sd"] ** 2,
            [0.5],
            0.25,
            state_box=([-2.6], [2.6]),
        )

    def simulate(seed, length=300):
        rng = np.random.default_rng(seed)
        x, ys = 0.5 + 0.5 * rng.normal(), []
        for _ in range(length):
            ys.append(x**2 + truth["sensor_sd"] * rng.normal())
            x = 0.3 + truth["gain"] * np.sin(2.2 * x) + truth["sd"] * rng.normal()
        return np.array(ys)[:, None]

    names = list(truth)
    # Off the truth for both, and a prior off zero, where the slope of x^2 would say nothing.
    off = {"gain": 0.75, "sd": 0.35, "sensor_sd": 0.25}
    start = jnp.array([off["gain"], np.log(off["sd"]), np.log(off["sensor_sd"])])

    @jax.jit
    def ekf(ys):
        def loss(z, _):
            theta = ParamsNLGSSM(
                jnp.full(1, 0.5),
                0.25 * jnp.eye(1),
                f(z[0]),
                jnp.exp(2 * z[1]) * jnp.eye(1),
                h,
                jnp.exp(2 * z[2]) * jnp.eye(1),
            )
            return -extended_kalman_filter(theta, ys).marginal_loglik / len(ys)

        solution = optx.minimise(
            loss, optx.BFGS(rtol=1e-6, atol=1e-6), start, max_steps=300, throw=False
        )
        return jnp.array([solution.value[0], *jnp.exp(solution.value[1:])])

    ours, theirs = [], []
    for seed in range(8):
        ys = simulate(seed)
        fitted = psd.fit(
            build,
            off,
            ys,
            tol=1e-3,
            first="observe",
            bounds={"sd": (0, None), "sensor_sd": (0, None)},
        )
        ours.append([float(fitted.theta[name]) for name in names])
        theirs.append(np.asarray(ekf(jnp.asarray(ys))))
    print("\nparameter   truth    ours (bias, se of bias)    EKF (bias, se of bias)")
    biased = []
    for i, name in enumerate(names):
        rows = []
        for found in (np.array(ours), np.array(theirs)):
            gap = found[:, i] - truth[name]
            rows.append((gap.mean(), gap.std(ddof=1) / np.sqrt(len(gap))))
        (a, b), (c, d) = rows
        print(f"{name:10} {truth[name]:6.2f}    {a:+.4f} ({b:.4f})         {c:+.4f} ({d:.4f})")
        assert abs(a) < 3.5 * b
        biased.append(abs(c) > 5 * d)
    assert any(biased)
