"""The tolerance is honoured, by points that the library never saw."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from helpers import slow
from hypothesis import given
from hypothesis import strategies as st

from psdfilter._density.anchors import TensorGrid
from psdfilter._density.box import Box
from psdfilter._learning.points import padded_grid, training_grid, uniform_points
from psdfilter._learning.rank_one import learn_rank_one

from .functions import REGISTRY, gaussian, sine_transition


def unit_box(dim):
    return Box([-1.0] * dim, [1.0] * dim)


def evaluate(model, x):
    """f_hat / exp(log_scale) from the definition, in NumPy: nothing is compiled for every shape."""
    eta, factor = np.asarray(model.precision), np.asarray(model.factor)
    if not isinstance(model.anchors, TensorGrid):
        delta = x[:, None, :] - np.asarray(model.anchors)[None]
        return np.sum((np.exp(-np.sum(eta * delta**2, axis=2)) @ factor) ** 2, axis=1)
    values = factor.reshape(1, -1)
    for i, axis in enumerate(model.anchors.axes):
        phi = np.exp(-eta[i] * np.square(x[:, i, None] - np.asarray(axis)))
        if i == 0:
            values = phi @ factor.reshape(phi.shape[1], -1)
        else:
            values = np.einsum("nm,nmr->nr", phi, values.reshape(len(x), phi.shape[1], -1))
    return np.sum(values.reshape(len(x), -1) ** 2, axis=1)


def independent_error(f, fit, dim, *, log=False, num=8000, seed=7):
    """sup |f_hat - f| / max f at random points, faces, corners, and around the highest of them."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (num, dim))
    faces = np.where(rng.uniform(size=(num // 4, dim)) < 0.4, np.sign(x[: num // 4]), x[: num // 4])
    x = np.concatenate([x, faces])
    values = np.asarray(jax.vmap(f)(x))
    top = np.repeat(x[np.argsort(-values)[:20]], num // 40, axis=0)
    scale = rng.choice([0.003, 0.03, 0.2], size=(len(top), 1))
    x = np.concatenate([x, np.clip(top + scale * rng.normal(size=top.shape), -1, 1)])
    shift = fit.report.log_peak
    values = np.asarray(jax.vmap(f)(x))
    truth = np.exp(values - shift) if log else values * np.exp(-shift)
    model = evaluate(fit.model, x)
    assert truth.max() < 1.06, "the peak was missed"
    return np.max(np.abs(model - truth)) / max(truth.max(), 1.0)


# The rest costs more to compile than it adds to these.
QUICK = {"wave", "gaussian", "mixture", "bump_3d", "steep", "sine_transition", "zero_line", "edge"}


@pytest.mark.long
@pytest.mark.parametrize("name", [n if n in QUICK else slow(n) for n in REGISTRY])
def test_tolerance_is_honoured(name):
    dim, f = REGISTRY[name]
    fit = learn_rank_one(f, unit_box(dim), tol=1e-3)
    assert fit.report.met
    assert independent_error(f, fit, dim) <= 1e-3
    assert fit.report.coefficient_l2 < 1e2
    assert fit.report.coefficient_max < 1e2
    assert isinstance(fit.model.anchors, TensorGrid)


@pytest.mark.slow
@pytest.mark.parametrize("tol", [1e-2, 1e-5, 1e-7])
@pytest.mark.parametrize("name", sorted(set(REGISTRY) - {"zero_line", "zero_plane"}))
def test_tolerances_are_honoured(name, tol):
    dim, f = REGISTRY[name]
    fit = learn_rank_one(f, unit_box(dim), tol=tol)
    assert independent_error(f, fit, dim) <= tol
    assert fit.report.coefficient_l2 < 1e2


@pytest.mark.slow
@given(
    st.floats(-1.2, 1.2),
    st.floats(0.02, 3.0),
    st.floats(-1.2, 1.2),
    st.floats(0.05, 3.0),
    st.sampled_from([1e-2, 1e-4]),
)
def test_any_truncated_gaussian(c0, s0, c1, s1, tol):
    # Parameters are data of a pytree, so that all examples share one compiled program.
    f = jax.tree_util.Partial(_bump, jnp.array([c0, c1]), jnp.array([s0, s1]))
    fit = learn_rank_one(f, unit_box(2), tol=tol)
    assert independent_error(f, fit, 2, num=4000) <= tol


def _bump(center, sd, z):
    return jnp.exp(-0.5 * jnp.sum(jnp.square((z - center) / sd)))


@pytest.mark.long
def test_narrow_peak_is_found_through_its_tails():
    def f(z):
        return -0.5 * jnp.sum(jnp.square((z - jnp.array([0.3137, -0.777, 0.1])) / 0.06))

    fit = learn_rank_one(f, unit_box(3), tol=1e-2, log=True)
    assert fit.report.log_peak == pytest.approx(0.0, abs=1e-3)
    assert independent_error(f, fit, 3, log=True, num=2000) <= 1e-2


@pytest.mark.long
def test_answer_does_not_depend_on_units():
    lower, upper = np.array([3.0, -50.0]), np.array([3.5, 150.0])
    box = Box(lower, upper)

    def f(x):
        return sine_transition((x - box.center) / box.half_width)

    plain, scaled = (
        learn_rank_one(g, b, tol=1e-4) for g, b in [(sine_transition, unit_box(2)), (f, box)]
    )
    assert plain.report.shape == scaled.report.shape
    z = np.random.default_rng(0).uniform(-1, 1, (200, 2))
    np.testing.assert_allclose(
        plain.model(z),
        scaled.model(np.asarray(box.center) + np.asarray(box.half_width) * z),
        atol=1e-9,
    )


@pytest.mark.long
def test_log_density_is_never_exponentiated_whole():
    fit = learn_rank_one(lambda z: -5000.0 - 8.0 * jnp.sum(z * z), unit_box(1), tol=1e-6, log=True)
    assert fit.report.log_peak == pytest.approx(-5000.0, abs=1e-6)
    x = np.linspace(-1, 1, 50)[:, None]
    np.testing.assert_allclose(
        fit.model.log_density(x)[20:30], -5000.0 - 8 * x[20:30, 0] ** 2, atol=1e-4
    )


@pytest.mark.parametrize(
    "form", ["numpy point", "numpy batch", "jax batch", "scipy point", "python float"]
)
def test_forms_of_f(form):
    f, vectorized = {
        "numpy point": (lambda x: float(np.exp(-4 * np.sum(x**2))), False),
        "numpy batch": (lambda x: np.exp(-4 * np.sum(np.asarray(x) ** 2, axis=1)), True),
        "jax batch": (lambda x: jnp.exp(-4 * jnp.sum(x**2, axis=1)), True),
        "scipy point": (lambda x: scipy.stats.norm.pdf(x[0], 0, 8**-0.5), False),
        "python float": (lambda x: 2 if x[0] is None else 1, False),
    }[form]
    fit = learn_rank_one(f, unit_box(1), tol=1e-3, vectorized=vectorized)
    assert fit.report.met


def test_a_second_call_does_not_compile_again():
    traces = []

    def f(z):
        traces.append(1)
        return gaussian(z, [0.1, 0.2], [0.3, 0.2])

    learn_rank_one(f, unit_box(2), tol=1e-3)
    first = len(traces)
    learn_rank_one(f, unit_box(2), tol=1e-3)
    assert len(traces) - first <= 1  # one abstract look at its shape


@pytest.mark.slow
def test_own_grid_and_points():
    box = unit_box(2)
    anchors, precision = padded_grid(box, (48, 24), pad=1.75)
    for points in (
        None,
        training_grid(box, (70, 40), "legendre"),
        training_grid(box, (80, 50), "chebyshev"),
    ):
        fit = learn_rank_one(
            sine_transition, box, anchors=anchors, points=points, precision=precision
        )
        assert independent_error(sine_transition, fit, 2) < 2e-5
        assert fit.report.tol is None
        assert fit.report.met is None


@pytest.mark.slow
def test_precision_alone_makes_a_grid():
    fit = learn_rank_one(sine_transition, unit_box(2), precision=[90.0, 18.0], tol=1e-3)
    assert fit.report.met


@pytest.mark.slow
@pytest.mark.parametrize("kind", [slow("uniform"), "sobol"])
def test_random_anchors_reach_the_tolerance(kind):
    dim, f = REGISTRY["exponential_model"]
    fit = learn_rank_one(
        f, unit_box(dim), tol=1e-2, anchors=kind, points=kind, key=jax.random.key(0)
    )
    assert fit.report.met
    assert independent_error(f, fit, dim) <= 2e-2


@pytest.mark.slow
def test_own_scattered_anchors():
    box = unit_box(1)
    anchors = uniform_points(box, 60, key=jax.random.key(3))
    fit = learn_rank_one(lambda z: gaussian(z, [0.2], [0.3]), box, anchors=anchors)
    assert fit.report.sup_error < 1e-4
    assert fit.report.shape == (60,)


@pytest.mark.long
def test_periodic_axis_has_no_seam():
    box = Box([-np.pi, -1.0], [np.pi, 1.0])

    def f(x):
        return jnp.exp(4.0 * jnp.cos(x[0] - 3.0 - x[1]))

    fit = learn_rank_one(f, box, tol=1e-4, periodic=0)
    y = np.linspace(-1, 1, 41)
    left, right = (fit.model(np.stack([np.full(41, s * np.pi), y], 1)) for s in (-1, 1))
    np.testing.assert_allclose(left, right, atol=1e-5 * np.exp(4.0))
    x = np.random.default_rng(0).uniform(-1, 1, (5000, 2)) * np.array([np.pi, 1.0])
    assert np.max(np.abs(fit.model(x) - jax.vmap(f)(x))) <= 1e-4 * np.exp(4.0)


@pytest.mark.long
def test_solver_relearns():
    fit = learn_rank_one(sine_transition, unit_box(2), tol=1e-4)
    solver = fit.solver()
    values = jnp.sqrt(jax.vmap(sine_transition)(fit.points.points()))
    again = solver.solve(values)
    scale = np.exp(0.5 * fit.report.log_peak)
    np.testing.assert_allclose(again, fit.model.factor[:, 0] * scale, atol=1e-7)


def test_report_prints():
    fit = learn_rank_one(sine_transition, unit_box(2), tol=1e-3)
    text = str(fit.report)
    for word in ("sup error", "L1 error", "L2 error", "anchors", "|a|_1", "condition", "time"):
        assert word in text
    assert max(map(len, text.splitlines())) < 100


def test_norms_match_quadrature():
    fit = learn_rank_one(lambda z: gaussian(z, [0.2], [0.3]), unit_box(1), tol=1e-2)
    x, w = np.polynomial.legendre.leggauss(400)
    truth = np.exp(-0.5 * ((x - 0.2) / 0.3) ** 2)
    error = np.abs(np.asarray(fit.model(x[:, None])) - truth)
    assert fit.report.l1_error == pytest.approx(w @ error / (w @ truth), rel=0.1)
    assert fit.report.l2_error == pytest.approx(np.sqrt(w @ error**2 / (w @ truth**2)), rel=0.1)
