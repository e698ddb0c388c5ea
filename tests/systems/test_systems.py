"""Every shipped system: model, simulator and reference agree with each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import slow

from psdfilter import systems

NAMES = list(systems.ALL)
REFERENCED = [name for name, system in systems.ALL.items() if system.num_nodes is not None]
# What one step from a typical state sends out of the box, at most.
LEAK = dict.fromkeys(NAMES, 1e-6) | {"pendulum": 1e-4, "lorenz63": 2e-2}


def data(system, seed, num, **keywords):
    """States and observations; always cut from 200 steps, so that each simulator compiles once."""
    xs, ys = system.simulate(seed, 200, **keywords)
    return np.array(xs[:num]), np.array(ys[:num])


# Most of the time goes into compiling one program for each system.
SIMULATED = ["linear_2d", "range_only", "sine_map"]


@pytest.mark.long
@pytest.mark.parametrize("name", [n if n in SIMULATED else slow(n) for n in NAMES])
def test_simulation_is_seeded_and_stays_in_the_box(name):
    system = systems.ALL[name]
    xs, ys = system.simulate(0, 200)
    again, _ = system.simulate(jax.random.key(0), 200)
    np.testing.assert_array_equal(xs, again)
    ssm = system()
    assert xs.shape == (200, system.dim)
    assert ys.shape == (200, ssm.observation_box.dim)
    if name != "pendulum_sde":  # followed on all of space; it may turn over
        inside = np.mean(np.asarray(ssm.state_box.contains(xs)))
        assert inside > (0.97 if name == "lorenz63" else 0.99)
    assert np.mean(np.asarray(ssm.observation_box.contains(ys))) > 0.97
    assert bool(jnp.all(jnp.isfinite(ys)))


@pytest.mark.parametrize("name", [n if n in SIMULATED else slow(n) for n in REFERENCED])
def test_densities_in_numpy_are_those_of_the_model(name):
    system = systems.ALL[name]
    ssm, densities = system(), system.densities()
    np.testing.assert_allclose(densities.lower, ssm.state_box.lower, rtol=1e-14)
    np.testing.assert_allclose(densities.upper, ssm.state_box.upper, rtol=1e-14)
    xs, ys = data(system, 3, 4)
    u, x, y, t = xs[:3], xs[1:], ys[1:], 2.0
    keywords = {"t": jnp.asarray(t)} if ssm.is_time_varying else {}

    @jax.jit
    @jax.vmap
    def values(old, new, seen):
        transition = ssm.log_transition(old, new, **keywords)
        return transition, ssm.log_observation(new, seen), ssm.log_prior(new)

    transition, observation, prior = map(np.asarray, values(u, x, y))
    for i in range(3):
        axes = [densities.log_axis(j, u[[i]], x[i, [j]], t) for j in range(system.dim)]
        np.testing.assert_allclose(transition[i], np.sum(axes), rtol=1e-11)
        expected = densities.log_observation(x[[i]], y[i], t)[0]
        np.testing.assert_allclose(observation[i], expected, rtol=1e-11)
    # The prior of the reference need not be normalised.
    gap = prior - densities.log_prior(x)
    np.testing.assert_allclose(gap, gap[0], atol=1e-9)


PARAMETER = {
    "pendulum_sde": ("spectral", 1.0),
    "sine_map": ("sd", 0.2),
    "stochastic_volatility": ("rho", 0.9),
    "ungm": ("state_variance", 8.0),
    "theta_logistic": ("growth", 1.1),
    "pendulum": ("velocity_sd", 0.25),
    "range_only": ("rho", 0.85),
    "lorenz63": ("sigma", 9.0),
    "linear_1d": ("q", 0.4),
    "linear_2d": ("q", 0.4),
    "linear_4d": ("q", 0.4),
}
QUICK = ("sine_map", "pendulum", "linear_4d")


@pytest.mark.long
@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in NAMES]
)
def test_densities_differentiate_in_parameters(name):
    system = systems.ALL[name]
    parameter, start = PARAMETER.get(name, ("sd", 0.5))
    xs, _ = data(system, 3, 4)

    @jax.jit
    @jax.value_and_grad
    def value(theta):
        ssm = system(**{parameter: theta})
        keywords = {"t": jnp.asarray(1.0)} if ssm.is_time_varying else {}
        return ssm.log_transition(xs[0], xs[1], **keywords)

    theta = jnp.asarray(start)
    step = 1e-5
    slope = (value(theta + step)[0] - value(theta - step)[0]) / (2 * step)
    np.testing.assert_allclose(value(theta)[1], slope, rtol=1e-5, atol=1e-7)


LINES = [n for n in REFERENCED if systems.ALL[n].dim == 1]


@pytest.mark.parametrize("name", [n if n in SIMULATED else slow(n) for n in LINES])
def test_reference_has_converged(name):
    system = systems.ALL[name]
    _, ys = data(system, 1, 4)
    reference = system.reference(ys, check=True)
    assert reference.distance < 1e-6
    assert reference.log_likelihood_gap < 1e-6
    np.testing.assert_allclose(reference.densities @ reference.weights, 1.0, rtol=1e-12)
    assert 1 - reference.kept.min() < LEAK[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in REFERENCED if systems.ALL[n].dim == 2])
def test_reference_has_converged_in_two_dimensions(name):
    system = systems.ALL[name]
    _, ys = data(system, 1, 4)
    reference = system.reference(ys, check=True)
    assert reference.distance < 1e-5
    assert 1 - reference.kept.min() < LEAK[name]


@pytest.mark.slow
def test_reference_in_three_dimensions():
    system = systems.lorenz63
    _, ys = data(system, 1, 4)
    coarse, fine = (system.reference(ys[:3], num_nodes=n) for n in (20, 28))
    gap = np.abs(coarse.mean - fine.mean) / np.asarray(system().state_box.half_width)
    assert gap.max() < 1e-3
    assert 1 - fine.kept.min() < LEAK["lorenz63"]


@pytest.mark.parametrize("first", ["predict", "observe"])
@pytest.mark.parametrize("name", ["linear_1d", "linear_2d"])
def test_reference_is_the_kalman_filter(name, first):
    system = systems.ALL[name]
    _, ys = data(system, 2, 12, first=first)
    ys[4] = np.nan
    means, covariances, logs = systems.kalman(ys, systems.matrices(system.dim), first=first)
    reference = system.reference(ys, first=first)
    np.testing.assert_allclose(reference.mean, means, atol=1e-5)
    np.testing.assert_allclose(reference.covariance, covariances, atol=1e-4)
    np.testing.assert_allclose(reference.log_likelihoods, logs, atol=1e-5)


def test_reference_between_nodes_and_distances():
    system = systems.sine_map
    _, ys = data(system, 2, 3, first="observe")
    reference = system.reference(ys, first="observe")
    for t in range(3):
        between = reference.on_axes(t, [reference.nodes[:, 0]])
        np.testing.assert_allclose(between, reference.densities[t], rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(reference.distance_to(reference.densities), np.zeros(3))


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="linear_4d has no dense reference"):
        systems.linear_4d.reference(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="num_steps must be a whole number"):
        systems.sine_map.simulate(0, 0)
    with pytest.raises(ValueError, match="first must be"):
        systems.sine_map.simulate(0, 3, first="later")
    with pytest.raises(ValueError, match="key_or_seed must be a JAX random key"):
        systems.sine_map.simulate("seed", 3)


def test_nile():
    pytest.importorskip("statsmodels")
    years, volumes = systems.nile()
    assert years[0] == 1871
    assert volumes.shape == (100,)
    assert volumes[0] == 1120.0


def test_index_returns():
    pytest.importorskip("arch")
    days, returns = systems.index_returns()
    assert days.shape == returns.shape
    assert len(returns) > 4000
    assert 0.5 < returns.std() < 2.0


def test_missing_packages_are_named(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "statsmodels.datasets", None)
    monkeypatch.setitem(sys.modules, "arch.data", None)
    with pytest.raises(ImportError, match=r"statsmodels: pip install 'psdfilter\[data\]'"):
        systems.nile()
    with pytest.raises(ImportError, match=r"arch: pip install 'psdfilter\[data\]'"):
        systems.index_returns()
