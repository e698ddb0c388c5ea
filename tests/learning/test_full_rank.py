"""The full-rank estimator against an independent SDP solver and against rank one."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import slow

from psdfilter._density.anchors import TensorGrid, expand
from psdfilter._density.box import Box
from psdfilter._learning import psd_newton
from psdfilter._learning.full_rank import learn_full_rank
from psdfilter._learning.psd_newton import psd_least_squares
from psdfilter._learning.ridge import DenseRidge

SQUARE = Box([-1.0, -2.0], [1.0, 3.0])
INTERVAL = Box(-1.0, 1.0)
TIGHT = {"tol_gap_abs": 1e-10, "tol_gap_rel": 1e-10, "tol_feas": 1e-10}


def wavy(x):
    return jnp.exp(-2 * x[0] ** 2) * jnp.sin(5 * x[0]) ** 2


def kernel(x, z, eta):
    return np.exp(-np.sum(eta * (x[:, None] - z[None]) ** 2, axis=-1))


def random_program(p, r, seed):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(p, r, r))
    return 0.5 * (rows + rows.transpose(0, 2, 1)), rng.normal(size=p)


@pytest.mark.long
@pytest.mark.parametrize("ridge", [1e-1, 1e-4])
def test_newton_meets_clarabel(ridge):
    cvxpy = pytest.importorskip("cvxpy")
    rows, target = random_program(12, 5, seed=3)
    B = cvxpy.Variable((5, 5), PSD=True)
    misfit = [cvxpy.sum(cvxpy.multiply(row, B)) - b for row, b in zip(rows, target, strict=True)]
    objective = 0.5 * cvxpy.sum_squares(cvxpy.hstack(misfit)) + 0.5 * ridge * cvxpy.sum_squares(B)
    problem = cvxpy.Problem(cvxpy.Minimize(objective))
    problem.solve(solver="CLARABEL", **TIGHT)
    solution = psd_least_squares(jnp.asarray(rows), jnp.asarray(target), jnp.asarray(ridge))
    vectors, values = np.asarray(solution.eigenvectors), np.asarray(solution.eigenvalues)
    np.testing.assert_allclose(float(solution.primal), problem.value, rtol=1e-9)
    np.testing.assert_allclose((vectors * values) @ vectors.T, B.value, atol=1e-5)
    assert float(solution.residual) < 1e-11


@pytest.mark.long
def test_learned_model_meets_clarabel():
    cvxpy = pytest.importorskip("cvxpy")
    anchors, eta, ridge = np.linspace(-1.2, 1.2, 7)[:, None], 3.0, 1e-4
    points = np.linspace(-1, 1, 25)[:, None]
    fit = learn_full_rank(
        lambda x: x[0] ** 2, INTERVAL, anchors=anchors, points=points, precision=eta, ridge=ridge
    )
    phi, gram = kernel(points, anchors, eta), kernel(anchors, anchors, eta)
    values, vectors = np.linalg.eigh(gram)
    root = (vectors * np.sqrt(values)) @ vectors.T
    A = cvxpy.Variable((7, 7), PSD=True)
    residual = cvxpy.sum(cvxpy.multiply(phi @ A, phi), axis=1) - points[:, 0] ** 2
    objective = cvxpy.sum_squares(residual) / 25 + ridge * cvxpy.sum_squares(root @ A @ root)
    cvxpy.Problem(cvxpy.Minimize(objective)).solve(solver="CLARABEL", **TIGHT)
    test = np.linspace(-1, 1, 101)[:, None]
    expected = np.einsum(
        "ni,ij,nj->n", kernel(test, anchors, eta), A.value, kernel(test, anchors, eta)
    )
    np.testing.assert_allclose(fit.model(test), expected, atol=1e-5)


def test_duality_gap_is_the_squared_residual():
    rows, target = random_program(12, 5, seed=1)
    rows, target, ridge = jnp.asarray(rows), jnp.asarray(target), 1e-3
    best = float(psd_least_squares(rows, target, jnp.asarray(ridge)).primal)
    early = psd_least_squares(rows, target, jnp.asarray(ridge), max_iterations=2)
    gap = 0.5 * float(early.residual * jnp.linalg.norm(target)) ** 2
    assert 0 < float(early.primal) - best <= gap


def test_second_program_of_a_shape_is_not_traced_again(monkeypatch):
    traces, plain = [], psd_newton._newton_step
    monkeypatch.setattr(psd_newton, "_newton_step", lambda *a: traces.append(1) or plain(*a))
    rows, target = map(jnp.asarray, random_program(9, 3, seed=2))
    psd_least_squares(rows, target, jnp.asarray(1e-2))
    first = len(traces)
    psd_least_squares(rows, 2 * target, jnp.asarray(1e-3))
    assert first > 0
    assert len(traces) == first


def rank_one_error(model, f, box, ridge):
    """Sup error of the best rank-one fit on the same anchors, over a range of ridges."""
    unit = np.stack(
        np.meshgrid(*[np.sin(np.linspace(-1.5707, 1.5707, 31))] * box.dim), axis=-1
    ).reshape(-1, box.dim)
    points, anchors = np.asarray(box.from_unit(unit)), np.asarray(expand(model.anchors))
    truth = np.asarray(jax.vmap(f)(points))
    test = np.asarray(box.from_unit(np.random.default_rng(0).uniform(-1, 1, (4000, box.dim))))
    test = np.concatenate([test, np.zeros((1, box.dim))])
    phi, errors = kernel(test, anchors, np.asarray(model.precision)), []
    for lam in ridge:
        a = np.asarray(DenseRidge(anchors, points, model.precision, lam).solve(np.sqrt(truth)))
        errors.append(np.abs((phi @ a) ** 2 - np.asarray(jax.vmap(f)(test))).max())
    full = np.abs(np.asarray(model(test)) - np.asarray(jax.vmap(f)(test))).max()
    return min(errors), full


@pytest.mark.long
@pytest.mark.parametrize(
    ("f", "box"),
    [
        (lambda x: x[0] ** 2, INTERVAL),
        (wavy, INTERVAL),
        slow(lambda x: jnp.sum(x**2), SQUARE),
    ],
    ids=["x^2", "several zeros", "x1^2 + x2^2"],
)
def test_ten_times_better_than_rank_one(f, box):
    fit = learn_full_rank(f, box, num_anchors=24 if box.dim == 1 else 8)
    rank_one, full = rank_one_error(fit.model, f, box, [1e-7, 1e-10])
    assert full < 0.1 * rank_one
    assert fit.report.residual < 1e-10


@pytest.mark.slow
def test_error_falls_with_anchors():
    few, many = (learn_full_rank(wavy, INTERVAL, num_anchors=m).report.sup_error for m in (12, 24))
    assert many < few / 3


@pytest.mark.long
def test_scale_and_units_do_not_matter():
    plain = learn_full_rank(lambda x: x[0] ** 2, INTERVAL, num_anchors=12)
    moved = learn_full_rank(
        lambda x: 1e200 * ((x[0] - 5e3) / 1e3) ** 2, Box(4e3, 6e3), num_anchors=12
    )
    x = np.linspace(-1, 1, 9)[:, None]
    np.testing.assert_allclose(
        np.asarray(moved.model(5e3 + 1e3 * x)) / 1e200, plain.model(x), atol=1e-8
    )


@pytest.mark.slow
def test_numpy_functions_log_densities_and_scattered_anchors():
    def black_box(x):
        return np.exp(-4 * np.asarray(x)[:, 0] ** 2)

    one = learn_full_rank(black_box, (-1.0, 1.0), vectorized=True, num_anchors=12)
    two = learn_full_rank(lambda x: -4 * x[0] ** 2, INTERVAL, log=True, num_anchors=12)
    x = np.linspace(-1, 1, 9)[:, None]
    np.testing.assert_allclose(one.model(x), two.model(x), atol=1e-10)
    anchors = np.random.default_rng(0).uniform(-1.2, 1.2, (12, 1))
    three = learn_full_rank(black_box, INTERVAL, vectorized=True, anchors=anchors, precision=8.0)
    assert three.report.sup_error < 1e-3


def test_report_prints():
    text = str(learn_full_rank(lambda x: x[0] ** 2, INTERVAL, num_anchors=12).report)
    assert "duality gap" in text
    assert "sup error" in text


@pytest.mark.parametrize(
    ("f", "options", "message"),
    [
        (lambda x: x[0], {}, "finite value >= 0 everywhere"),
        (lambda x: 0 * x[0], {}, "f must be positive somewhere"),
        (lambda x: jnp.log(x[0]), {}, "f must return"),
        (lambda x: x, {}, "f must map"),
        (lambda x: x[0] ** 2, {"ridge": 0.0}, "ridge must be positive"),
        (lambda x: x[0] ** 2, {"anchors": [[0.0], [1.0]]}, "precision must be given"),
        (lambda x: x[0] ** 2, {"anchors": [[0.0, 1.0]], "precision": 1.0}, "anchors must have 1"),
        (lambda x: x[0] ** 2, {"points": [[0.0], [2.0]]}, "points must lie in the box"),
        (lambda x: x[0] ** 2, {"num_anchors": 2}, "num_anchors must be"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_input_is_named(f, options, message):
    with pytest.raises(ValueError, match=message):
        learn_full_rank(f, INTERVAL, **options)


def test_too_many_anchors_are_refused_with_their_cost():
    axis = np.linspace(-1.1, 1.1, 60)
    points = np.random.default_rng(0).uniform(-1, 1, (5000, 2))
    with pytest.raises(ValueError, match="at most 6000"):
        learn_full_rank(
            lambda x: jnp.sum(x**2),
            Box([-1.0, -1.0], [1.0, 1.0]),
            anchors=TensorGrid([axis, axis]),
            points=np.concatenate([points, points]),
            precision=100.0,
        )
