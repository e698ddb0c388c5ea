"""`additive_gaussian` against SciPy, with missing coordinates, traced parameters and bad input."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import psdfilter as psd
from psdfilter._inference.mixture.linearized import LinearizedModel
from psdfilter._statespace.adapters import additive_gaussian
from psdfilter._statespace.model import call, keywords_of

BOX = psd.Box([-3.0, -3.0], [3.0, 3.0])
CORRELATED = np.array([[0.5, 0.2], [0.2, 0.4]])
SENSOR = np.array([[0.3, 0.1, 0.0], [0.1, 0.4, -0.1], [0.0, -0.1, 0.5]])


def drift(u):
    return jnp.stack([jnp.sin(u[1]), 0.5 * u[0]])


def sensor(x):
    return jnp.stack([x[0], x[1], x[0] * x[1]])


def model(Q=CORRELATED, R=SENSOR):
    return additive_gaussian(drift, sensor, Q, R, [0.1, -0.2], [0.3, 0.6], state_box=BOX)


@pytest.mark.long
def test_densities_are_those_of_scipy():
    ssm, rng = model(), np.random.default_rng(0)
    u, x, y = rng.normal(size=2), rng.normal(size=2), rng.normal(size=3)
    f, h = np.asarray(drift(jnp.asarray(u))), np.asarray(sensor(jnp.asarray(x)))
    expected = (
        stats.multivariate_normal([0.1, -0.2], np.diag([0.3, 0.6])).logpdf(x),
        stats.multivariate_normal(f, CORRELATED).logpdf(x),
        stats.multivariate_normal(h, SENSOR).logpdf(y),
    )
    u, x, y = map(jnp.asarray, (u, x, y))
    got = ssm.log_prior(x), ssm.log_transition(u, x), ssm.log_observation(x, y)
    np.testing.assert_allclose(got, expected, rtol=1e-12)


@pytest.mark.parametrize("Q", [0.4, [0.4, 0.4], np.diag([0.4, 0.4])])
def test_independent_noise_factors_into_axes(Q):
    ssm = model(Q=Q)
    u, x = jnp.asarray([0.3, -0.4]), jnp.asarray([0.1, 0.7])
    axes = sum(ssm.log_transition_axis(i, u, x[i]) for i in range(2))
    np.testing.assert_allclose(axes, ssm.log_transition(u, x), rtol=1e-13)


def test_correlated_noise_has_no_axes():
    assert model().log_transition_axis is None


@pytest.mark.parametrize("R", [SENSOR, np.diag(SENSOR)], ids=["correlated", "independent"])
@pytest.mark.parametrize("missing", [(), (0,), (1,), (0, 2), (0, 1, 2)])
def test_missing_coordinates_are_marginalised(R, missing):
    ssm = model(R=R)
    x, y = np.array([0.4, -0.3]), np.array([0.2, 0.5, -0.7])
    seen = np.setdiff1d(np.arange(3), missing)
    covariance = R if R.ndim == 2 else np.diag(R)
    expected = 0.0
    if seen.size:
        mean = np.asarray(sensor(jnp.asarray(x)))[seen]
        law = stats.multivariate_normal(mean, covariance[np.ix_(seen, seen)])
        expected = law.logpdf(y[seen])
    y[list(missing)] = np.nan
    got = ssm.log_observation(jnp.asarray(x), jnp.asarray(y))
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-14)
    slope = jax.grad(ssm.log_observation)(jnp.asarray(x), jnp.asarray(y))
    assert np.isfinite(slope).all()


@pytest.mark.long
def test_gradient_in_parameters_with_a_missing_coordinate():
    x, y = jnp.asarray([0.4, -0.3]), jnp.asarray([0.2, np.nan, -0.7])

    def value(r):
        return model(R=r * jnp.asarray(SENSOR)).log_observation(x, y)

    step = 1e-6
    slope = (value(jnp.asarray(1 + step)) - value(jnp.asarray(1 - step))) / (2 * step)
    np.testing.assert_allclose(jax.grad(value)(jnp.asarray(1.0)), slope, rtol=1e-6)


@pytest.mark.parametrize(
    ("f", "value"),
    [
        (lambda x, dt=0.05: x + dt * jnp.sin(x), "dt=0.05"),
        (partial(lambda x, dt: x + dt, dt=0.1), "dt=0.1"),
        (lambda x, t=3: x + t, "t=3"),
        (lambda x, last_y=2.0: x + last_y, "last_y=2.0"),
    ],
)
def test_own_values_under_names_of_keywords_are_refused(f, value):
    """They would be replaced: a step of 0.05 would be one of 1."""
    with pytest.raises(ValueError, match=f"has a parameter {value}.*rename"):
        additive_gaussian(f, lambda x: x, 1.0, 1.0, 0.0, 1.0)
    with pytest.raises(ValueError, match=f"has a parameter {value}"):
        additive_gaussian(lambda x: x, f, 1.0, 1.0, 0.0, 1.0)


@pytest.mark.parametrize("h", [lambda x, t=None: x, lambda x, dt=1.0: x, lambda x, inputs=None: x])
def test_defaults_that_say_optional_are_fine(h):
    ssm = additive_gaussian(lambda x: 0.5 * x, h, 1.0, 1.0, 0.0, 1.0)
    value = ssm.log_observation(jnp.zeros(1), jnp.zeros(1))
    np.testing.assert_allclose(value, stats.norm.logpdf(0.0), rtol=1e-13)


def test_keywords_are_forwarded_and_only_where_taken():
    ssm = additive_gaussian(
        lambda u, t, inputs: u + inputs * t,
        lambda x, t=0: x + t,
        1.0,
        1.0,
        [0.0],
        1.0,
        state_box=([-5.0], [5.0]),
        inputs=jnp.ones(1),
    )
    assert keywords_of(ssm.log_transition) == {"t", "inputs"}
    assert keywords_of(ssm.log_transition_axis) == {"t", "inputs"}
    assert keywords_of(ssm.log_observation) == {"t"}
    assert ssm.is_time_varying
    zero, one = jnp.zeros(1), jnp.ones(1)
    got = call(ssm.log_transition, zero, 3.0 * one, t=3.0, inputs=one)
    np.testing.assert_allclose(got, stats.norm.logpdf(0.0), rtol=1e-13)
    # An optional keyword may be left out; a required one is asked for.
    np.testing.assert_allclose(call(ssm.log_observation, zero, zero), stats.norm.logpdf(0.0))
    with pytest.raises(ValueError, match="inputs must be given"):
        call(ssm.log_transition, zero, zero, t=1.0)
    assert not model().is_time_varying


def test_box_by_simulation_holds_the_state():
    ssm = additive_gaussian(lambda u: 0.8 * u, lambda x: x, 0.36, 1.0, [0.0], 1.0)
    low, high = float(ssm.state_box.lower[0]), float(ssm.state_box.upper[0])
    # Stationary standard deviation one.
    assert stats.norm.sf(high) + stats.norm.cdf(low) < 2e-6
    assert -8 < low < high < 8


@pytest.mark.long
def test_box_of_a_traced_model_is_the_same_and_constant():
    def build(a):
        return additive_gaussian(lambda u: a * u, lambda x: x, 0.36, 1.0, [0.0], 1.0)

    concrete = build(0.8).state_box

    def bounds(a):
        box = build(a).state_box
        return jnp.concatenate([box.lower, box.upper])

    traced = jax.jit(bounds)(jnp.asarray(0.8))
    np.testing.assert_allclose(traced, [concrete.lower[0], concrete.upper[0]], rtol=1e-9)
    np.testing.assert_array_equal(jax.jacobian(bounds)(jnp.asarray(0.8)), np.zeros(2))


@pytest.mark.long
def test_samples_have_the_law_of_the_observation():
    ssm = model()
    x = jnp.asarray([0.4, -0.3])
    keys = jax.random.split(jax.random.key(0), 20_000)
    ys = np.asarray(jax.vmap(lambda key: ssm.sample_observation(key, x))(keys))
    gap = ys.mean(0) - np.asarray(sensor(x))
    assert (np.abs(gap) < 6 * np.sqrt(np.diag(SENSOR) / len(ys))).all()
    np.testing.assert_allclose(np.cov(ys.T), SENSOR, atol=6 * np.sqrt(2 / len(ys)) * 0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"f": 3.0}, "f must be a function"),
        ({"f": lambda u: jnp.zeros(3)}, r"f must return shape \(2,\)"),
        ({"h": lambda x: jnp.zeros((2, 2))}, "h must return a vector"),
        ({"Q": [1.0, -1.0]}, "Q must hold non-negative variances"),
        ({"Q": np.eye(3)}, "Q must be a variance, 2 variances"),
        ({"Q": [[1.0, 2.0], [2.0, 1.0]]}, "Q must be positive semidefinite"),
        ({"R": [1.0, 0.0, 1.0]}, "R must hold positive variances"),
        ({"Q": [[1.0, 0.5], [0.0, 1.0]]}, "Q must be symmetric"),
        ({"R": [1.0, np.nan, 1.0]}, "R must be finite"),
        ({"m0": [[0.0, 0.0]]}, r"m0 must have shape \(d,\)"),
        ({"state_box": ([0.0], [1.0])}, "state_box must have 2 coordinates"),
        ({"f": lambda u, inputs: u, "state_box": None}, "state_box must be given"),
    ],
)
def test_bad_input_is_named(change, message):
    given = {
        "f": drift,
        "h": sensor,
        "Q": 1.0,
        "R": 1.0,
        "m0": [0.0, 0.0],
        "P0": 1.0,
        "state_box": BOX,
    }
    with pytest.raises(ValueError, match=message):
        additive_gaussian(**(given | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"Q": np.eye(3) + 0.1}, "rotate the state"),
        ({"Q": [1.0, 1.0, 0.0]}, "Q is singular"),
        ({"P0": [1.0, 0.0, 1.0]}, "P0 is singular"),
        ({"f": lambda u: 1e9 * u**3}, "no state_box was given"),
    ],
)
def test_a_grid_that_cannot_serve_says_why(change, message):
    given = {"f": lambda u: 0.5 * u, "h": lambda x: x, "Q": 1.0, "R": 1.0, "P0": 1.0}
    ssm = additive_gaussian(m0=np.zeros(3), **(given | change))
    with pytest.raises(ValueError, match=message):
        psd.learn(ssm, engine="nodes")
    assert isinstance(psd.learn(ssm), LinearizedModel)


def test_a_sensor_that_is_a_density_needs_no_h_and_r():
    ssm = psd.additive_gaussian(
        f=lambda x: 0.9 * x,
        Q=0.1,
        m0=0.0,
        P0=1.0,
        log_observation=lambda x, y: -jnp.abs(y[0] - x[0]),
    )
    assert float(ssm.log_observation(jnp.zeros(1), jnp.ones(1))) == -1.0


@pytest.mark.parametrize(
    ("left_out", "named"), [("Q", "Q"), ("m0", "m0"), ("P0", "P0"), ("h", "h and R")]
)
def test_what_was_left_out_is_named(left_out, named):
    given = {"f": lambda x: 0.9 * x, "h": lambda x: x, "Q": 0.1, "R": 0.1, "m0": 0.0, "P0": 1.0}
    del given[left_out]
    with pytest.raises(ValueError, match=f"^{named} must be given"):
        psd.additive_gaussian(**given)
