"""Mistakes that users make, and messages that name their cause."""

import datetime

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import psdfilter as psd

BOX = psd.Box(-3.0, 3.0)
YS = np.array([0.1, 0.3, -0.2])


def log_normal(x, mean, sd):
    return jax.scipy.stats.norm.logpdf(x, mean, sd)


def model(**functions):
    plain = {
        "log_prior": lambda x: log_normal(x[0], 0.0, 0.5),
        "log_transition": lambda u, x: log_normal(x[0], 0.8 * u[0], 0.4),
        "log_observation": lambda x, y: log_normal(y[0], x[0], 0.3),
        "state_box": BOX,
    }
    return psd.StateSpaceModel(**{**plain, **functions})


@pytest.mark.parametrize(
    ("name", "fn"),
    [
        ("log_prior", lambda x: stats.norm.logpdf(x[0])),
        ("log_transition", lambda u, x: stats.norm.logpdf(x[0], u[0])),
        ("log_observation", lambda x, y: stats.norm.logpdf(y[0], x[0])),
        ("log_observation", lambda x, y: 0.0 if y[0] > x[0] else -1.0),
    ],
)
def test_functions_that_leave_jax_are_named(name, fn):
    with pytest.raises(ValueError, match=f"{name} must be written in JAX.*jax.scipy.stats"):
        psd.learn(model(**{name: fn}))


@pytest.mark.long
@pytest.mark.parametrize("shift", [-0.13, 0.2])
def test_a_transition_without_its_constant_is_not_a_leak(shift):
    ssm = model(log_transition=lambda u, x: log_normal(x[0], 0.8 * u[0], 0.4) + shift)
    with pytest.warns(UserWarning, match=f"has mass {np.exp(shift):.3g}.*is not normalised"):
        psd.learn(ssm)


@pytest.mark.long
def test_a_leak_is_a_leak():
    narrow = psd.Box(-0.6, 0.6)
    with pytest.warns(UserWarning, match="of the mass leaves state_box"):
        psd.learn(model(state_box=narrow))


@pytest.mark.long
def test_a_discrete_state_is_said_to_be_one():
    ssm = model(
        log_prior=lambda x: log_normal(x[0], 5.0, 2.0),
        log_transition=lambda u, x: jnp.where(x[0] == jnp.round(u[0]), 0.0, -jnp.inf),
        state_box=psd.Box(0.0, 20.0),
    )
    with pytest.warns(UserWarning, match=r"state that is discrete.*psdfilter\.switching"):
        psd.learn(ssm)


def test_learned_models_print_what_a_person_can_read():
    text = str(psd.learn(model()))
    assert text.startswith("learned model of 1 coordinate\nengine")
    assert "0x" not in text


@pytest.mark.parametrize(
    ("law", "bad", "message"),
    [
        ("Gamma", -2.0, "support of the sensor"),
        ("Beta", 1.5, "support of the sensor"),
        ("Poisson", 1.5, "counts, whole numbers"),
        ("Poisson", -1.0, "counts, whole numbers"),
    ],
)
@pytest.mark.slow
def test_data_outside_of_the_support_are_named(law, bad, message):
    dist = pytest.importorskip("numpyro.distributions")
    sensors = {
        "Gamma": lambda x: dist.Gamma(5.0, 5.0 * jnp.exp(-x)),
        "Beta": lambda x: dist.Beta(5.0, jnp.exp(x)),
        "Poisson": lambda x: dist.Poisson(jnp.exp(x)),
    }
    ssm = psd.StateSpaceModel.from_distributions(
        prior=dist.Normal(0.0, 1.0),
        transition=lambda u: dist.Normal(0.9 * u, 0.3),
        observation=sensors[law],
    )
    good = 1.0 if law == "Poisson" else 0.5
    model = psd.learn(ssm)
    for call, start in (
        (lambda: psd.run_filter(model, [good, bad]), r"failed at ys\[1\]: "),
        (lambda: psd.run_smoother(model, [good, bad]), r"failed at ys\[1\]: "),
        (lambda: psd.run_filter(model, [np.r_[good], np.r_[good, bad]]), r"at ys\[1\]\[1\]: "),
        (lambda: psd.update(model, psd.predict(model, psd.init(model)), bad), ""),
        (lambda: psd.likelihood(lambda _: ssm, 0.0, [good, bad]), r"ys\[1\] has no likelihood: "),
    ):
        with pytest.raises(ValueError, match=rf"{start}y must .*{message}"):
            call()


def test_memory_beside_regimes_is_refused():
    leverage = psd.additive_gaussian(
        lambda u, last_y: u + 0.1 * last_y, lambda x: x, 0.1, 0.1, 0.0, 1.0, first_y=0.0
    )
    with pytest.raises(ValueError, match="must not take last_y beside regimes"):
        psd.switching([leverage, leverage], np.full((2, 2), 0.5))


@pytest.mark.parametrize(
    ("ys", "message"),
    [
        (np.array(["2020-01-01", "2020-01-02"], dtype="datetime64[D]"), "ys.*dates or times"),
        (np.array([1 + 2j, 3.0]), "ys must hold real numbers"),
        (np.array(["a", "b"]), "ys must hold numbers"),
        ([datetime.date(2020, 1, 1)], "ys.*dates or times"),
    ],
)
def test_observations_that_are_no_numbers_are_named(ys, message):
    with pytest.raises(ValueError, match=message):
        psd.run_filter(psd.learn(psd.linear_gaussian(0.9, 0.2, 1.0, 0.3, 0.0, 1.0)), ys)


def test_masked_observations_are_missing_ones():
    learned = psd.learn(psd.linear_gaussian(0.9, 0.2, 1.0, 0.3, 0.0, 1.0))
    masked = np.ma.masked_array([0.1, 99.0, 0.3], mask=[False, True, False])
    wanted = psd.run_filter(learned, [0.1, np.nan, 0.3])
    assert float(psd.run_filter(learned, masked).log_likelihood) == float(wanted.log_likelihood)
    with pytest.raises(ValueError, match="times"):
        psd.run_filter(learned, [0.1, 0.2], times=np.ma.masked_array([0.0, 1.0], mask=[0, 1]))


def test_axes_that_wrap_and_linear_transitions_contradict_each_other():
    with pytest.raises(ValueError, match="no axes that wrap for linear_gaussian"):
        psd.linear_gaussian(0.9, 0.2, 1.0, 0.3, 0.0, 1.0, state_box=psd.Box(-3.0, 3.0, periodic=0))


def test_lists_of_matrices_end_where_they_end():
    listed = np.array([0.9, 0.5, 0.2])[:, None, None]
    given = {"H": [[1.0]], "R": 0.5, "m0": [1.0], "P0": [2.0]}
    with pytest.raises(ValueError, match="3 of F, 5 of Q"):
        _ = psd.linear_gaussian(F=listed, Q=np.ones((5, 1, 1)), **given)
    model = psd.learn(psd.linear_gaussian(F=listed, Q=[[0.1]], **given))
    with pytest.raises(ValueError, match="each of 3 transitions, and transition 6"):
        _ = psd.run_filter(model, np.ones(6))
    post = psd.run_filter(model, np.ones(3))
    with pytest.raises(ValueError, match="each of 3 transitions, and transition 5"):
        _ = psd.forecast(model, post, 2)
    state = psd.init(model)
    for _ in range(3):
        state = psd.predict(model, state)
    with pytest.raises(ValueError, match="transition 4 is asked for"):
        _ = psd.predict(model, state)


def test_regimes_on_a_circle_and_on_a_line():
    box = psd.Box(-np.pi, np.pi, periodic=0)
    circle = psd.additive_gaussian(
        lambda u: u, lambda x: x, 0.1, 0.1, 0.0, 0.1, state_box=box, wrap=[True]
    )
    line = psd.linear_gaussian(0.9, 0.1, 1.0, 0.2, 2.0, 0.5)
    with pytest.raises(ValueError, match="circle"):
        _ = psd.switching([circle, line], [[0.5, 0.5], [0.5, 0.5]])


def test_likelihoods_that_are_no_numbers_are_named():
    ssm = psd.additive_gaussian(
        lambda u: u, None, 0.1, None, 0.0, 0.5,
        log_observation=lambda x, y: -0.5 * (y[0] - jnp.sqrt(x[0])) ** 2,
    )  # fmt: skip
    model = psd.learn(ssm, 1e-2)
    for ys in ([0.1, 0.2], [np.nan, 0.3]):
        with pytest.warns(UserWarning, match="log_observation is NaN at x = .*-jnp.inf"):
            _ = psd.run_filter(model, ys)
