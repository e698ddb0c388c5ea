"""Diffuse priors and precise sensors, against Kalman's formulas in 120 decimal digits."""

from decimal import Decimal, localcontext
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import psdfilter as psd

DIGITS = 120
PRIORS, NOISES = (1e6, 1e12, 1e16), (1e-12, 1.0, 1e6)
NUM = 20


class Law(NamedTuple):
    mean: np.ndarray
    covariance: np.ndarray


def exact(values) -> np.ndarray:
    """A float is a decimal number with finitely many digits."""
    array = np.asarray(values, dtype=float)
    return np.array([Decimal(float(v)) for v in array.ravel()], dtype=object).reshape(array.shape)


def inverse(matrix: np.ndarray) -> np.ndarray:
    """Gauss and Jordan, with pivots from the diagonal: covariances only."""
    num = len(matrix)
    work = np.concatenate([matrix, exact(np.eye(num))], axis=1)
    for j in range(num):
        work[j] = work[j] / work[j, j]
        for i in range(num):
            if i != j:
                work[i] = work[i] - work[i, j] * work[j]
    return work[:, num:]


def determinant(matrix: np.ndarray) -> Decimal:
    work, total = matrix.copy(), Decimal(1)
    for j in range(len(work)):
        total *= work[j, j]
        for i in range(j + 1, len(work)):
            work[i] = work[i] - work[i, j] / work[j, j] * work[j]
    return total


def textbook(model: dict, ys: np.ndarray) -> tuple[list[Law], list[Law], list[Decimal]]:
    """Filtered and predicted laws, and log-likelihoods."""
    F, Q, H, R, m, S = (exact(model[k]) for k in ("F", "Q", "H", "R", "m0", "P0"))
    two_pi = Decimal("6.283185307179586476925286766559005768394338798750211641949889")
    after, before, logs = [], [], []
    for y in ys:
        m, S = F @ m, F @ S @ F.T + Q
        before.append(Law(m, S))
        seen = np.flatnonzero(~np.isnan(y))
        log = Decimal(0)
        if seen.size:
            h, r = H[seen], R[np.ix_(seen, seen)]
            total = h @ S @ h.T + r
            residual, precision = exact(y[seen]) - h @ m, inverse(total)
            gain = S @ h.T @ precision
            m, S = m + gain @ residual, S - gain @ h @ S
            form = residual @ precision @ residual
            log = -(form + determinant(total).ln() + seen.size * two_pi.ln()) / 2
        after.append(Law(m, S))
        logs.append(log)
    return after, before, logs


def backwards(F: np.ndarray, after: list[Law], before: list[Law], end: int) -> list[Law]:
    """Rauch, Tung and Striebel, from the filtered law at index `end`."""
    F, laws = exact(F), [after[end]]
    for t in reversed(range(end)):
        gain = after[t].covariance @ F.T @ inverse(before[t + 1].covariance)
        mean = after[t].mean + gain @ (laws[0].mean - before[t + 1].mean)
        change = laws[0].covariance - before[t + 1].covariance
        laws.insert(0, Law(mean, after[t].covariance + gain @ change @ gain.T))
    return laws


def system(name: str, prior: float, noise: float) -> dict:
    if name == "level":
        F, Q, H = np.eye(1), 0.3 * np.eye(1), np.eye(1)
    elif name == "trend":
        F, Q, H = np.array([[1.0, 1.0], [0.0, 1.0]]), np.diag([0.2, 0.05]), np.array([[1.0, 0.0]])
    else:
        step = np.array([[1.0, 0.5], [0.0, 1.0]])
        shock = np.array([[0.5**3 / 3, 0.5**2 / 2], [0.5**2 / 2, 0.5]])
        F, Q = np.kron(np.eye(2), step), np.kron(np.eye(2), 0.1 * shock)
        H = np.array([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
    dim, num = len(F), len(H)
    return {
        "F": F, "Q": Q, "H": H, "R": noise * np.eye(num),
        "m0": np.zeros(dim), "P0": prior * np.eye(dim),
    }  # fmt: skip


def series(model: dict) -> np.ndarray:
    rng = np.random.default_rng(3)
    ys = np.cumsum(rng.normal(size=(NUM, len(model["H"]))), axis=0)
    ys[5:8] = np.nan
    ys[11, 0] = np.nan
    return ys


def build(model: dict) -> psd.StateSpaceModel:
    return psd.linear_gaussian(*(model[k] for k in ("F", "Q", "H", "R", "m0", "P0")))


def distance(got: Law, wanted: list[Law]) -> float:
    """Largest error of means, in standard deviations or relative, and of covariances, scaled."""
    worst = 0.0
    for mean, covariance, law in zip(np.asarray(got[0]), np.asarray(got[1]), wanted, strict=True):
        scale = np.sqrt(np.array([float(v) for v in np.diagonal(law.covariance)]))
        shift = np.array([float(v) for v in exact(mean) - law.mean])
        size = np.maximum(scale, np.abs(mean))
        change = exact(covariance) - law.covariance
        change = np.array([float(v) for v in change.ravel()]).reshape(change.shape)
        worst = max(worst, np.max(np.abs(shift) / size))
        worst = max(worst, np.max(np.abs(change) / np.outer(scale, scale)))
    return worst


@pytest.mark.long
@pytest.mark.parametrize(
    ("prior", "noise"),
    [
        pytest.param(prior, noise, marks=() if prior / noise in (1e12, 1e28) else pytest.mark.slow)
        for prior in PRIORS
        for noise in NOISES
    ],
)
@pytest.mark.parametrize("name", ["level", "trend", "plane"])
def test_all_digits_stay(name, prior, noise):
    model = system(name, prior, noise)
    ys = series(model)
    learned = psd.learn(build(model))
    smooth = psd.run_smoother(learned, ys)
    lagged = psd.run_smoother(learned, ys, lag=3)
    post = smooth.filtered
    with localcontext() as context:
        context.prec = DIGITS
        after, before, logs = textbook(model, ys)
        whole = backwards(model["F"], after, before, NUM - 1)
        some = [backwards(model["F"], after, before, min(t + 3, NUM - 1))[t] for t in range(NUM)]
        errors = {
            "filter": distance(Law(post.mean, post.covariance), after),
            "smoother": distance(Law(smooth.mean, smooth.covariance), whole),
            "lag": distance(Law(lagged.mean, lagged.covariance), some),
        }
        wanted = np.array([float(v) for v in logs])
    np.testing.assert_allclose(post.log_likelihoods, wanted, rtol=1e-9, atol=1e-9)
    assert max(errors.values()) < 1e-9, errors


@pytest.mark.long
def test_wide_gaps_and_precise_models_go_over_to_roots_by_themselves():
    """Nothing is diffuse at first; an unstable state is not observed for a while."""
    model = system("trend", 1.0, 1e-3) | {"F": np.array([[3.0, 1.0], [0.0, 2.5]])}
    ys = series(model)[:, :1]
    ys[4:16] = np.nan
    learned = psd.learn(build(model))
    smooth = psd.run_smoother(learned, ys)
    assert learned.start_bank.rows is None
    with localcontext() as context:
        context.prec = DIGITS
        after, before, _ = textbook(model, ys)
        whole = backwards(model["F"], after, before, NUM - 1)
        filtered = Law(smooth.filtered.mean, smooth.filtered.covariance)
        assert distance(filtered, after) < 1e-9
        assert distance(Law(smooth.mean, smooth.covariance), whole) < 1e-9
    jitted = jax.jit(lambda ys: psd.run_smoother(learned, ys).covariance)(ys)
    np.testing.assert_allclose(jitted, smooth.covariance, rtol=1e-6)
    codes = jax.jit(lambda ys: psd.run_filter(learned, ys).codes)(ys)
    assert 5 in np.asarray(codes)  # what a compiled filter cannot redo it names


@pytest.mark.slow
def test_a_mixture_keeps_the_digits_of_its_components_and_weights():
    """One component is wide; far apart they share no mass, and each is a Kalman filter."""
    model = system("trend", 1e12, 1e-6)
    ys = series(model)
    near = model | {"P0": np.eye(2), "m0": np.array([1.0, 0.0])}
    prior = psd.GaussianBlocks.mixture(
        [0.25, 0.75], np.stack([model["m0"], near["m0"]]), np.stack([model["P0"], near["P0"]])
    )
    ssm = psd.linear_gaussian(*(model[k] for k in "FQHR"), None, None, prior=prior)
    smooth = psd.run_smoother(psd.learn(ssm), ys)
    with localcontext() as context:
        context.prec = DIGITS
        totals, laws = [], []
        for share, part in ((Decimal("0.25"), model), (Decimal("0.75"), near)):
            after, before, logs = textbook(part, ys)
            totals.append(share.ln() + sum(logs))
            laws.append(backwards(part["F"], after, before, NUM - 1))
        peak = max(totals)
        log_total = peak + sum((v - peak).exp() for v in totals).ln()
        shares = [(v - log_total).exp() for v in totals]
        mixed = []
        for one, two in zip(*laws, strict=True):
            mean = shares[0] * one.mean + shares[1] * two.mean
            spread = [np.outer(law.mean - mean, law.mean - mean) for law in (one, two)]
            total = sum(
                w * (law.covariance + s)
                for w, law, s in zip(shares, (one, two), spread, strict=True)
            )
            mixed.append(Law(mean, total))
        assert distance(Law(smooth.mean, smooth.covariance), mixed) < 1e-9
        assert abs(float(smooth.filtered.log_likelihood) - float(log_total)) < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("times", [None, [0, 1, 1, 4, 5, *range(6, 21)]])
def test_online_steps_paths_and_observed_laws(times):
    model = system("trend", 1e14, 1e-6)
    ys = series(model)
    learned = psd.learn(build(model))
    assert "square roots" in str(learned.report)
    post = psd.run_filter(learned, ys, times=times)
    smooth = psd.run_smoother(learned, ys, times=times)
    # Means of paths, in standard deviations of the smoothed laws.
    paths = np.asarray(smooth.sample(key=jax.random.key(0), num=4000))
    sd = np.sqrt(np.diagonal(np.asarray(smooth.covariance), axis1=1, axis2=2))
    z = (paths.mean(axis=0) - np.asarray(smooth.mean)) / sd
    assert np.max(np.abs(z)) < 6 / np.sqrt(4000)
    ratio = paths.std(axis=0) / sd
    assert np.max(np.abs(ratio - 1)) < 6 / np.sqrt(8000)
    # Draws of single times, whose scales differ by ten orders of magnitude at the first.
    sd = np.sqrt(np.diagonal(np.asarray(post.covariance), axis1=1, axis2=2))
    draws = np.asarray(post.sample(key=jax.random.key(1), num=4000))
    assert np.max(np.abs(draws.std(axis=0) / sd - 1)) < 6 / np.sqrt(8000)
    squares = post.expect(lambda x: x**2) - post.expect(lambda x: x) ** 2
    np.testing.assert_allclose(squares[0], sd[0] ** 2, rtol=1e-3)
    if times is None:
        state = psd.init(learned)
        for y in ys:
            state = psd.update(learned, psd.predict(learned, state), y)
        assert int(state.code) == 0
        with localcontext() as context:
            context.prec = DIGITS
            before = textbook(model, ys)[1]
            R = exact(model["R"])
            H = exact(model["H"])
            wanted = [Law(H @ law.mean, H @ law.covariance @ H.T + R) for law in before]
            seen = post.predicted_observations
            assert distance(Law(seen.mean, seen.covariance), wanted) < 1e-9
        np.testing.assert_allclose(state.moments(learned)[1], post.covariance[-1], rtol=1e-12)
        np.testing.assert_allclose(state.log_likelihood, post.log_likelihood, rtol=1e-12)


@pytest.mark.slow
def test_gradients_of_likelihoods_on_roots():
    """Against differences of the same likelihood in 120 digits."""
    ys = series(system("trend", 1e12, 1.0))

    def with_noise(scale) -> dict:
        model = system("trend", 1e12, 1e-3)
        return model | {"Q": scale * model["Q"]}

    def build_at(theta):
        model = system("trend", 1e12, 1e-3)
        return build(model | {"Q": jnp.exp(theta) * model["Q"]})

    ll = psd.likelihood(build_at, 0.3, ys)
    value, slope = jax.value_and_grad(ll)(0.3)
    with localcontext() as context:
        context.prec = DIGITS
        values = [
            sum(textbook(with_noise(float(np.exp(0.3 + h))), ys)[2]) for h in (-1e-4, 0.0, 1e-4)
        ]
        wanted = float(values[1]), float((values[2] - values[0]) / Decimal("2e-4"))
    np.testing.assert_allclose(value, wanted[0], rtol=1e-10)
    np.testing.assert_allclose(slope, wanted[1], rtol=1e-6)
