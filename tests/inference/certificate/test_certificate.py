"""Certificates: every bound holds, every part adds up, and what is not known is said."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import roots_legendre

from psdfilter import Box, engines, systems
from psdfilter._inference.certificate.accumulation import Split, accumulate
from psdfilter._inference.certificate.hilbert import mixing_birkhoff
from psdfilter._inference.certificate.memory import memory_of
from psdfilter._inference.learn import learn
from psdfilter._inference.nodes.refine import FineNodes
from psdfilter._inference.run import run_filter
from psdfilter._statespace.model import StateSpaceModel

BOUNDS = ("theorem", "sharp")
ESTIMATES = ("direct", "birkhoff", "dobrushin")
STEPS = 20


@cache
def learned(name, tol):
    return learn(systems.ALL[name](), tol, engine="nodes")


@cache
def filtered(name, tol):
    """A filter with a missing observation, its certificate, and its true error."""
    system = systems.ALL[name]
    ys = np.array(system.simulate(5, STEPS)[1])
    ys[7] = np.nan
    post = run_filter(learned(name, tol), ys)
    return post, post.certificate, true_error(system, post, ys)


def true_error(system, post, ys, first="predict"):
    """int |p - q| against the dense reference, on its nodes."""
    reference = system.reference(ys, first=first)
    z, w = roots_legendre(round(len(reference.nodes) ** (1 / system.dim)))
    nodes = FineNodes((jnp.asarray(z),) * system.dim, (jnp.asarray(w),) * system.dim)
    values = np.asarray(post.laws.values_on(nodes))
    return reference.distance_to(values / np.prod(post.model.filled.plan.box.half_width))


CASES = [("noisy_logistic", 1e-2)] + [
    pytest.param(name, tol, marks=pytest.mark.slow)
    for name in (
        "bounded_ar",
        "noisy_logistic",
        "sine_map",
        "stochastic_volatility",
        "theta_logistic",
        "linear_1d",
        "linear_2d",
    )
    for tol in (1e-2, 1e-4)
    if (name, tol) not in {("noisy_logistic", 1e-2), ("linear_2d", 1e-4)}
]


@pytest.mark.long
@pytest.mark.parametrize(("name", "tol"), CASES)
def test_true_error_is_below_every_bound_and_estimate(name, tol):
    _, found, error = filtered(name, tol)
    assert np.max(error) < tol
    for which in BOUNDS:
        assert np.all(error <= getattr(found, which).total), which
    for which in ESTIMATES:
        total = getattr(found, which).total
        # The reference has converged to 1e-8 or so.
        assert np.all(np.isnan(total) | (error <= 1.05 * total + 1e-7)), which
    assert np.all(found.sharp.total <= found.theorem.total)
    assert np.all(found.one_step <= found.one_step_bound)
    assert np.all(found.bound >= found.estimate)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "tol"), [("ungm", 1e-2), ("pendulum", 5e-2), ("range_only", 5e-2)]
)
def test_bounds_hold_or_are_missing_with_a_reason(name, tol):
    """Systems too large, or varying in time, for some of the numbers: those are NaN, and noted."""
    _, found, error = filtered(name, tol)
    assert np.max(error) < tol
    for which in (*BOUNDS, *ESTIMATES):
        total = getattr(found, which).total
        unknown = np.isnan(total)
        assert np.all(unknown | (error <= 1.05 * total + 1e-7)), which
        assert found.notes or not unknown.any()


@pytest.mark.parametrize(
    "name", ["noisy_logistic", pytest.param("bounded_ar", marks=pytest.mark.slow)]
)
def test_two_systems_mix_well_enough_for_a_bound(name):
    _, found, error = filtered(name, 1e-2)
    assert np.max(found.sharp.total) < 0.1
    assert not found.sharp.is_vacuous.any()
    # The estimate through Birkhoff is within a small factor of the truth.
    assert np.max(found.birkhoff.total) < 5 * np.max(error)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stochastic_volatility", "theta_logistic", "linear_1d"])
def test_vacuous_bounds_say_so_and_dobrushin_does_better(name):
    _, found, error = filtered(name, 1e-2)
    assert found.sharp.is_vacuous.all()
    assert found.theorem.is_vacuous.all()
    assert f"bound, vacuous at {STEPS} of {STEPS} times" in str(found)
    assert np.max(found.dobrushin.total) < 50 * np.max(error)


def test_parts_are_those_of_the_theorem():
    post, found, _ = filtered("noisy_logistic", 1e-2)
    sigma, start = found.sigma[0], found.prior_error
    tau = mixing_birkhoff(sigma)
    delta = found.one_step_bound
    for which, c in (
        ("theorem", 2 / (sigma**2 * np.log(3))),
        ("sharp", 0.5 * (sigma**-2 - 1)),
    ):
        part = getattr(found, which)
        n = np.arange(1, STEPS + 1)
        np.testing.assert_allclose(part.start, c * tau ** (n - 1) * start, rtol=1e-10)
        for m in (1, 2, STEPS):
            k = np.arange(1, m)
            expected = delta[m - 1] + c * np.sum(tau ** (m - k - 1) * delta[k - 1])
            np.testing.assert_allclose(part.steps[m - 1], expected, rtol=1e-10)
    assert post.mean.shape[0] == STEPS


def test_what_is_measured_agrees_with_direct_computation():
    _, found, _ = filtered("noisy_logistic", 1e-2)
    densities = systems.noisy_logistic.densities()
    x = np.linspace(0.0, 1.0, 400)
    Q = np.exp(densities.log_axis(0, x[:, None], x, 1))
    sigma = np.sqrt(np.min(Q.min(axis=0) / Q.max(axis=0)))
    # The margin lowers sigma^2, and covers what the grid misses.
    assert np.all(found.sigma <= sigma)
    np.testing.assert_allclose(found.sigma * np.sqrt(found.min_margin), sigma, rtol=1e-2)
    np.testing.assert_allclose(found.transition_peak, 0.5 * Q.max(), rtol=1e-2)
    assert np.all(found.leak < 1e-12)
    assert np.all(found.observation_error[7] == 0.0)
    assert np.all(found.tau_learned <= found.tau)
    np.testing.assert_allclose(found.tau, found.tau_learned, rtol=0.05)


def test_it_prints():
    _, found, _ = filtered("noisy_logistic", 1e-2)
    text = str(found)
    assert "distance to the filter of the model on its box (Q as it is), 20 times" in text
    assert "error, sharp constant" in text
    assert "vacuous" not in text
    assert all(len(line) <= 100 for line in text.splitlines())


def test_observing_the_prior_first():
    system = systems.noisy_logistic
    _, ys = system.simulate(2, STEPS, first="observe")
    post = run_filter(learned("noisy_logistic", 1e-2), ys, first="observe")
    found = post.certificate
    error = true_error(system, post, np.asarray(ys), first="observe")
    for which in (*BOUNDS, *ESTIMATES):
        assert np.all(error <= 1.05 * getattr(found, which).total), which
    assert found.sharp.steps[0] == 0.0
    assert found.sharp.start[0] == pytest.approx(error[0], rel=0.5)


@pytest.mark.long
def test_bad_input_is_named():
    model = learned("noisy_logistic", 1e-2)
    ys = np.full((4, 1), 0.5)
    with pytest.raises(ValueError, match="one observation after each transition"):
        _ = run_filter(model, ys, times=[1, 2, 2, 3]).certificate
    with pytest.raises(ValueError, match="needs the densities"):
        _ = run_filter(model, ys, keep="summaries").certificate
    with pytest.raises(ValueError, match="cannot be traced"):
        jax.jit(lambda y: run_filter(model, y).certificate.sharp.total)(jnp.asarray(ys))


def test_accumulation_without_start_error_stays_zero_where_nothing_mixes():
    class Found:
        has_start = False

    infinite, ones = np.full(3, np.inf), np.ones(3)
    nothing = accumulate(Found, infinite, ones, np.zeros(3), 0.0)  # pyright: ignore
    np.testing.assert_array_equal(nothing.total, np.zeros(3))
    assert Split(infinite, ones).is_vacuous.all()
    assert Split(np.full(3, np.nan), ones).is_vacuous.all()


def test_memory_bounds_a_hidden_markov_filter():
    """On a finite chain the coefficients are exact statements: compare with two filters."""
    rng = np.random.default_rng(0)
    Q = rng.dirichlet(np.ones(5), size=5)
    G = np.exp(2 * rng.normal(size=(12, 5)))
    mu, nu = rng.dirichlet(np.ones(5), size=2)
    path, other = [mu], [nu]
    for g in G:
        for states in (path, other):
            new = states[-1] @ Q * g
            states.append(new / new.sum())
    coefficients = memory_of(Q, G, np.stack(path)).coefficients
    start = np.sum(np.abs(mu - nu))
    for n in range(1, 13):
        distance = np.sum(np.abs(path[n] - other[n]))
        assert distance <= coefficients[0, n] * start * (1 + 1e-12)
    assert coefficients[0, 12] < 1e-2


def error_on_a_grid(post, Q, prior, G):
    """int |p - q| against a filter on 100 nodes of (-1, 1): Q[t], prior and G[t] are functions."""
    z, w = roots_legendre(100)
    nodes = FineNodes((jnp.asarray(z),), (jnp.asarray(w),))
    density = prior(z) / (w @ prior(z))
    error = []
    for t, values in enumerate(np.asarray(post.laws.values_on(nodes))):
        density = (w * density) @ Q[t](z[:, None], z[None, :]) * G[t](z)
        density = density / (w @ density)
        error.append(w @ np.abs(values - density))
    return np.asarray(error)


@pytest.mark.slow
def test_transition_that_varies_in_time():
    """A drift that comes and goes: bounds use the sigma of every step."""
    ys = np.linspace(-0.8, 0.9, 8)

    def log_transition(u, x, t):
        # A density on (-1, 1) without truncation: (1 + tilt x) / 2.
        tilt = 0.3 * u[0] + 0.3 * jnp.cos(jnp.asarray(t, dtype=float))
        return jnp.log1p(tilt * x[0]) - jnp.log(2.0)

    ssm = StateSpaceModel(
        log_prior=lambda x: jnp.zeros(()),
        log_transition=log_transition,
        log_observation=lambda x, y: -0.5 * jnp.square((y[0] - x[0]) / 0.4),
        state_box=Box([-1.0], [1.0]),
        sample_observation=lambda key, x: x + 0.4 * jax.random.normal(key, (1,)),
    )
    post = run_filter(learn(ssm, 1e-3, engine="nodes"), ys)
    found = post.certificate
    assert np.ptp(found.sigma) > 0.01
    error = error_on_a_grid(
        post,
        [lambda u, x, t=t: 0.5 + 0.5 * x * (0.3 * u + 0.3 * np.cos(t)) for t in range(1, 9)],
        np.ones_like,
        [lambda x, y=y: np.exp(-0.5 * ((y - x) / 0.4) ** 2) for y in ys],
    )
    for which in (*BOUNDS, "direct", "birkhoff"):
        assert np.all(error <= getattr(found, which).total), which
    assert np.max(found.sharp.total) < 0.1
    assert any("varies in time" in note for note in found.notes)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:log_transition must be")  # a factor is missing
@pytest.mark.parametrize("renormalize", [False, True])
def test_transition_that_leaves_the_box(renormalize):
    """The filter of Q on a box that it leaves, as it is or divided by its mass there."""
    sd, ys = 0.8, np.array([0.3, -0.5, 0.9, 0.1, -0.2])
    ssm = StateSpaceModel(
        log_prior=lambda x: -jnp.square(x[0]),
        log_transition=lambda u, x: -0.5 * jnp.square((x[0] - 0.5 * u[0]) / sd) - np.log(sd),
        log_observation=lambda x, y: -0.5 * jnp.square((y[0] - x[0]) / 0.5),
        state_box=Box([-1.0], [1.0]),
        sample_observation=lambda key, x: x + 0.5 * jax.random.normal(key, (1,)),
    )
    post = run_filter(learn(ssm, 1e-3, engine=engines.Nodes(renormalize=renormalize)), ys)
    found = post.certificate

    def normal(u, x):
        return np.exp(-0.5 * np.square((x - 0.5 * u) / sd)) / sd

    def transition(u, x):
        z, w = roots_legendre(100)
        return normal(u, x) / (normal(u, z[None, :]) @ w)[:, None] if renormalize else normal(u, x)

    error = error_on_a_grid(
        post,
        [transition] * 5,
        lambda x: np.exp(-np.square(x)),
        [lambda x, y=y: np.exp(-0.5 * ((y - x) / 0.5) ** 2) for y in ys],
    )
    for which in (*BOUNDS, *ESTIMATES):
        assert np.all(error <= 1.05 * getattr(found, which).total), which
    assert np.max(found.sharp.total) < 0.2
    assert ("divided by its mass" in str(found)) == renormalize


@pytest.mark.slow
def test_single_coordinates_missing():
    """Two sensors, one of them silent at times: G is then that of the other."""
    ys = np.array([[0.3, 0.2], [np.nan, -0.4], [0.5, np.nan], [np.nan, np.nan], [0.1, 0.0]])
    ssm = StateSpaceModel(
        log_prior=lambda x: jnp.zeros(()),
        log_transition=lambda u, x: jnp.log1p(0.5 * u[0] * x[0]) - jnp.log(2.0),
        log_observation=lambda x, y: jnp.sum(-0.5 * jnp.square((y - x[0]) / 0.4)),
        state_box=Box([-1.0], [1.0]),
        observation_box=Box([-4.0, -4.0], [4.0, 4.0]),
        sample_observation=lambda key, x: x[0] + 0.4 * jax.random.normal(key, (2,)),
    )
    post = run_filter(learn(ssm, 1e-3, engine="nodes"), ys)
    found = post.certificate
    error = error_on_a_grid(
        post,
        [lambda u, x: 0.5 + 0.25 * u * x] * 5,
        np.ones_like,
        [
            lambda x, y=y: np.exp(-0.5 * np.nansum(np.square((y[:, None] - x) / 0.4), axis=0))
            for y in ys
        ],
    )
    for which in (*BOUNDS, *ESTIMATES):
        assert np.all(error <= 1.05 * getattr(found, which).total), which
    assert np.max(found.sharp.total) < 0.1


@pytest.mark.slow
def test_three_dimensions_get_what_is_affordable():
    system = systems.lorenz63
    _, ys = system.simulate(0, 3)
    found = run_filter(learn(system(), 1e-1, engine="nodes"), ys).certificate
    assert np.isnan(found.sharp.total).all()
    assert np.all(found.observation_error >= 0)
    assert found.prior_error >= 0
    assert "a state of 3 dimensions" in found.notes[0]
    assert "not computed" in str(found)
