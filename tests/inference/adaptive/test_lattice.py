"""Sparse lattices: against a textbook Kalman filter, and what they see of kinks."""

import numpy as np
import pytest

import psdfilter as psd
from psdfilter._inference.adaptive.loop.roughness import is_rough

TOL = 1e-3


def kalman(F, Q, H, R, m, P, ys):
    """Means and log Z of every row, as in any textbook; NaN rows are missing."""
    means, logs = [], []
    for y in ys:
        m, P = F @ m, F @ P @ F.T + Q
        log_z = 0.0
        if not np.isnan(y).any():
            S = H @ P @ H.T + R
            gap = y - H @ m
            gain = np.linalg.solve(S, H @ P).T
            log_z = -0.5 * (gap @ np.linalg.solve(S, gap) + np.linalg.slogdet(2 * np.pi * S)[1])
            m, P = m + gain @ gap, P - gain @ H @ P
        means.append(m)
        logs.append(log_z)
    return np.array(means), np.array(logs)


CASES = {
    "line": (np.array([[0.9]]), np.array([[0.3]]), np.array([[1.0]]), np.array([[0.5]])),
    "precise sensor": (
        np.array([[0.95]]),
        np.array([[0.2]]),
        np.array([[1.0]]),
        np.array([[1e-3]]),
    ),
    "plane": (
        np.array([[0.9, 0.3], [-0.2, 0.8]]),
        np.array([[0.3, 0.1], [0.1, 0.2]]),
        np.array([[1.0, 0.5]]),
        np.array([[0.4]]),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_linear_models_are_kalmans(name):
    F, Q, H, R = CASES[name]
    dim = len(F)
    ys = np.array([0.4, 1.1, np.nan, -0.3, 0.2, 0.9])[:, None]
    ssm = psd.linear_gaussian(F, Q, H, R, np.zeros(dim), np.eye(dim))
    post = psd.run_filter(psd.learn(ssm, TOL, engine="adaptive"), ys)
    means, logs = kalman(F, Q, H, R, np.zeros(dim), np.eye(dim), ys)
    sd = np.sqrt(np.diagonal(np.asarray(post.covariance), axis1=1, axis2=2))
    assert np.all(np.abs(np.asarray(post.mean) - means) < TOL * sd)
    np.testing.assert_allclose(post.log_likelihoods, logs, atol=TOL)
    assert np.all(np.asarray(post.codes) == 0)


@pytest.mark.parametrize(
    ("fn", "rough"),
    [
        (np.sin, False),
        (lambda x: 0.1 * x**3, False),
        (lambda x: 3.0 * x + 1.0, False),
        (np.abs, True),
        (lambda x: np.where(x > 0.3, 2.0, -2.0), True),
        (lambda x: np.where(x > 0, np.nan, x), True),
    ],
)
def test_kinks_and_jumps_are_told_from_curvature(fn, rough):
    x = 0.5 * np.arange(-20, 21)
    # The outermost nodes, whose neighbours are not known, are taken for rough.
    found, x = is_rough(fn(x)[:, None], (len(x),))[4:-4], x[4:-4]
    assert bool(np.any(found)) == rough
    assert not np.any(found[np.abs(x) > 4]) or np.any(np.isnan(fn(x)))


def test_kinks_along_a_diagonal_are_seen():
    x, y = np.meshgrid(0.5 * np.arange(-12, 13), 0.5 * np.arange(-12, 13), indexing="ij")
    found = is_rough(np.abs(x + y).reshape(-1, 1), x.shape).reshape(x.shape)
    assert np.all(found[np.abs(x + y) < 0.1][2:-2])
    inner = (np.abs(x) < 4) & (np.abs(y) < 4)
    assert not np.any(found[inner & (np.abs(x + y) > 4)])
