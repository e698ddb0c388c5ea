"""Nyström-PCG against the dense augmented least-squares solution, and its sources of data."""

import numpy as np
import pytest

from psdfilter._learning import nystrom
from psdfilter._learning.nystrom import nystrom_ridge, whiten

RNG = np.random.default_rng(0)
POINTS = RNG.uniform(-1, 1, (5000, 2))
TARGETS = np.exp(-2 * (POINTS[:, 1] - np.sin(2 * POINTS[:, 0])) ** 2)
GRID = np.stack(np.meshgrid(*[np.linspace(-1.2, 1.2, 11)] * 2), axis=-1).reshape(-1, 2)
SCATTERED = RNG.uniform(-1, 1, (150, 2))


def kernel(x, z, eta):
    return np.exp(-np.sum(eta * (x[:, None] - z[None]) ** 2, axis=-1))


def dense_values(points, targets, anchors, eta, ridge, left_out=0):
    """Fitted values, whitened and augmented, without normal equations."""
    values, vectors = np.linalg.eigh(kernel(anchors, anchors, eta))
    kept = values > len(values) * np.finfo(float).eps * values[-1]
    kept &= np.cumsum(kept) > left_out
    white = kernel(points, anchors, eta) @ (vectors[:, kept] / np.sqrt(values[kept]))
    n, rank = white.shape
    design = np.vstack([white / np.sqrt(n), np.sqrt(ridge) * np.eye(rank)])
    right = np.concatenate([targets / np.sqrt(n), np.zeros(rank)])
    return white @ np.linalg.lstsq(design, right, rcond=None)[0]


@pytest.mark.long
@pytest.mark.parametrize("ridge", [1e-4, 1e-9])
@pytest.mark.parametrize(
    ("anchors", "eta"),
    [(GRID, 6.0), (SCATTERED, 6.0), (SCATTERED, 0.5)],
    ids=["grid", "scattered", "ill-conditioned"],
)
def test_fitted_values_equal_dense_solution(anchors, eta, ridge):
    eta = np.array([eta, 1.5 * eta])
    fit = nystrom_ridge(
        POINTS, TARGETS, anchors, eta, ridge=ridge, tol=1e-10, num_preconditioner=2000
    )
    expected = dense_values(POINTS, TARGETS, anchors, eta, ridge)
    fitted = kernel(POINTS, anchors, eta) @ np.asarray(fit.coefficients)
    # Rounding of a = T c is about eps |a|_1, whatever solves for it.
    rounding = 10 * np.finfo(float).eps * float(np.abs(fit.coefficients).sum())
    # What the least direction gives is right to the rounding of its eigenvalue.
    values = np.linalg.eigvalsh(kernel(anchors, anchors, eta))
    least = np.min(values[values > len(values) * np.finfo(float).eps * values[-1]])
    without = dense_values(POINTS, TARGETS, anchors, eta, ridge, left_out=1)
    share = np.sqrt(np.mean((without - expected) ** 2))
    rounding += share * np.finfo(float).eps * values[-1] / least
    assert np.sqrt(np.mean((fitted - expected) ** 2)) < 1e-9 + rounding
    np.testing.assert_allclose(fit.model(POINTS[:50]), fitted[:50] ** 2, atol=1e-9 + rounding)
    assert fit.report.converged
    assert fit.report.iterations > 0


@pytest.mark.long
def test_larger_samples_precondition_better():
    iterations = [
        nystrom_ridge(
            POINTS, TARGETS, GRID, 6.0, ridge=1e-8, num_preconditioner=size
        ).report.iterations
        for size in (400, 1600, 5000)
    ]
    assert iterations[0] > iterations[1] > iterations[2]
    assert iterations[2] <= 1


@pytest.mark.long
def test_arrays_memmaps_and_generators_agree(tmp_path, monkeypatch):
    monkeypatch.setattr(nystrom, "_ROWS_PER_READ", 700)
    x = np.memmap(tmp_path / "x", dtype=float, mode="w+", shape=POINTS.shape)
    x[:] = POINTS

    def blocks():
        for start in range(0, len(POINTS), 333):
            yield POINTS[start : start + 333], TARGETS[start : start + 333]

    options = {"ridge": 1e-6, "num_preconditioner": 1000}
    fits = [
        nystrom_ridge(POINTS, TARGETS, GRID, 6.0, **options),
        nystrom_ridge(x, TARGETS.astype(np.float64), GRID, 6.0, **options),
        nystrom_ridge(blocks, None, GRID, 6.0, **options),
    ]
    for fit in fits[1:]:
        np.testing.assert_allclose(fit.coefficients, fits[0].coefficients, rtol=1e-9, atol=1e-11)
        assert fit.report.iterations == fits[0].report.iterations


@pytest.mark.long
def test_blocks_are_compiled_once(monkeypatch):
    traces = []
    monkeypatch.setattr(
        nystrom, "features", lambda x, z, plain=nystrom.features: traces.append(1) or plain(x, z)
    )
    for shift in (0.0, 0.1):
        targets = TARGETS[:3001] + shift
        nystrom_ridge(POINTS[:3001], targets, GRID[:113], 6.0, ridge=1e-6, num_preconditioner=500)
    assert len(traces) == 1


def test_whitening_keeps_what_is_above_rounding():
    good = kernel(GRID, GRID, 6.0)
    transform = whiten(good)
    assert transform.shape == good.shape
    np.testing.assert_allclose(transform.T @ good @ transform, np.eye(len(good)), atol=1e-9)
    bad = kernel(SCATTERED, SCATTERED, 0.1)
    transform = whiten(bad)
    assert transform.shape[1] < len(bad)
    defect = np.abs(transform.T @ bad @ transform - np.eye(transform.shape[1])).max()
    assert defect < 0.1


def test_zero_targets_give_zero():
    fit = nystrom_ridge(POINTS, np.zeros(len(POINTS)), GRID, 6.0, ridge=1e-6)
    assert not np.any(np.asarray(fit.coefficients))


def test_report_prints():
    text = str(nystrom_ridge(POINTS, TARGETS, GRID, 6.0, ridge=1e-6).report)
    assert "5000" in text
    assert "residual" in text


def test_progress_bar_is_silent_unless_asked(capsys):
    nystrom_ridge(POINTS, TARGETS, GRID, 6.0, ridge=1e-6)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
    nystrom_ridge(POINTS, TARGETS, GRID, 6.0, ridge=1e-6, progress=True)
    assert capsys.readouterr().err != ""


def test_unreached_tolerance_is_said():
    options = {"ridge": 1e-8, "num_preconditioner": 150, "max_iterations": 2}
    with pytest.raises(RuntimeError, match="num_preconditioner"):
        nystrom_ridge(POINTS, TARGETS, GRID, 6.0, **options)
    fit = nystrom_ridge(POINTS, TARGETS, GRID, 6.0, throw=False, **options)
    assert not fit.report.converged
    assert "NOT REACHED" in str(fit.report)


def _with_nan():
    targets = TARGETS.copy()
    targets[4321] = np.nan
    return targets


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"points": POINTS[:, :1]}, r"points must have shape \(n, 2\)"),
        ({"targets": TARGETS[:-1]}, r"targets must have shape \(5000,\)"),
        ({"targets": _with_nan()}, "targets must be finite, got nan at row 4321"),
        ({"points": iter([(POINTS, TARGETS)]), "targets": None}, "more than once"),
        ({"points": lambda: iter([POINTS]), "targets": None}, "yield pairs"),
        ({"points": lambda: iter([(POINTS, TARGETS)])}, "targets must be None"),
        ({"ridge": 0.0}, "ridge must be positive"),
        ({"tol": -1.0}, "tol must be positive"),
        ({"precision": [1.0, -1.0]}, "precision must be positive"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_input_is_named(change, message):
    arguments = {
        "points": POINTS,
        "targets": TARGETS,
        "anchors": GRID,
        "precision": 6.0,
        "ridge": 1e-6,
    }
    with pytest.raises(ValueError, match=message):
        nystrom_ridge(**{**arguments, **change})


def test_source_that_changes_is_noticed():
    lengths = iter([5000, 5000, 4000])

    def blocks():
        n = next(lengths)
        yield POINTS[:n], TARGETS[:n]

    with pytest.raises(ValueError, match="same pairs on every pass"):
        nystrom_ridge(blocks, None, GRID, 6.0, ridge=1e-6)
