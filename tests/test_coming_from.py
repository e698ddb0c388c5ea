"""The problems of "Coming from another library" have the answers of these libraries, or theirs."""

import re
from pathlib import Path

import jax
import numpy as np
import pytest

PAGE = Path(__file__).parents[1] / "docs" / "guides" / "coming_from.md"

pytest.importorskip("statsmodels")


@pytest.fixture(scope="module")
def names():
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.S | re.M)
    scope: dict[str, object] = {}
    # As a user has them: only these tests forbid promotion.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        exec("\n".join(blocks), scope)
    return scope


def log_normal(x, mean, sd):
    return -0.5 * ((x - mean) / sd) ** 2 - np.log(sd * np.sqrt(2 * np.pi))


def bootstrap(ys, start, move, log_sensor, num):
    """log-likelihood of a bootstrap filter that sees the first state, and its standard error."""
    totals = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        cloud, total = start(rng, num), 0.0
        for t, y in enumerate(ys):
            cloud = move(rng, cloud) if t else cloud
            weights = np.exp(log_sensor(cloud, y))
            total += np.log(weights.mean())
            cloud = rng.choice(cloud, num, p=weights / weights.sum())
        totals.append(total)
    return np.mean(totals), np.std(totals, ddof=1) / np.sqrt(len(totals))


@pytest.mark.slow
def test_volatility_has_the_likelihood_of_a_bootstrap_filter(names):
    spread = 0.3 / np.sqrt(1 - 0.95**2)
    mean, error = bootstrap(
        names["returns"],
        lambda rng, n: -1.0 + spread * rng.normal(size=n),
        lambda rng, x: -1.0 + 0.95 * (x + 1.0) + 0.3 * rng.normal(size=len(x)),
        lambda x, y: log_normal(y, 0.0, np.exp(0.5 * x)),
        20_000,
    )
    assert abs(float(names["sv"].log_likelihood) - mean) < 6 * error + 1e-3


@pytest.mark.slow
def test_the_sine_map_has_the_likelihood_of_a_bootstrap_filter(names):
    mean, error = bootstrap(
        [0.9, 0.7, 1.2, 0.8],
        lambda rng, n: rng.normal(size=n),
        lambda rng, x: 2.0 * np.sin(x) + np.sqrt(0.2) * rng.normal(size=len(x)),
        lambda x, y: log_normal(y, x**2 / 4, np.sqrt(0.1)),
        50_000,
    )
    assert abs(float(names["post"].log_likelihood) - mean) < 6 * error + 1e-3


@pytest.mark.slow
def test_the_walk_is_that_of_a_textbook_kalman_filter(names):
    F, H = np.array([[1.0, 1.0], [0.0, 1.0]]), np.array([[1.0, 0.0]])
    m, P = np.array([0.0, 1.0]), np.eye(2)
    for z in [1.2, 1.9, None, 4.1]:
        m, P = F @ m, F @ P @ F.T + 0.1 * np.eye(2)
        if z is not None:
            gain = P @ H.T / (H @ P @ H.T + 0.5)
            m, P = m + gain[:, 0] * (z - m[0]), (np.eye(2) - gain @ H) @ P
    np.testing.assert_allclose(names["online"].x, m, atol=1e-9)
    np.testing.assert_allclose(names["online"].P, P, atol=1e-9)


@pytest.mark.slow
def test_the_track_is_that_of_weighted_draws(names):
    rng, F, Q = np.random.default_rng(0), names["F"], names["Q"]
    num = 1_000_000
    x = np.array([-50.0, 1.0, 0.0, 1.0]) + np.sqrt([25.0, 1.0, 25.0, 1.0]) * rng.normal(
        size=(num, 4)
    )
    logs = np.zeros(num)
    for bearing, distance in names["detections"]:
        x = x @ F.T + rng.multivariate_normal(np.zeros(4), Q, num)
        turn = bearing - np.arctan2(x[:, 2], x[:, 0])
        turn = (turn + np.pi) % (2 * np.pi) - np.pi
        logs += log_normal(turn, 0.0, 0.02) + log_normal(distance, np.hypot(x[:, 0], x[:, 2]), 0.5)
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    mean = weights @ x
    # The error of a weighted mean, by the delta method.
    error = np.sqrt(weights**2 @ (x - mean) ** 2)
    sd = np.sqrt(weights @ (x - mean) ** 2)
    gap = np.abs(np.asarray(names["track"].mean)[-1] - mean)
    # A total variation of tol moves a mean by about as many standard deviations.
    assert np.all(gap < 6 * error + 0.1 * sd)


@pytest.mark.slow
def test_the_nile_is_that_of_statsmodels(names):
    np.testing.assert_allclose(
        float(names["nile"].log_likelihood), names["results"].llf, rtol=0, atol=1e-6
    )
    theirs = names["results"].filtered_state.T
    np.testing.assert_allclose(np.asarray(names["nile"].mean), theirs, rtol=1e-6)
