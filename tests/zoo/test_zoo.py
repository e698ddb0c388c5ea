"""The promise of `learn(model, tol)`, on models of strangers: right, or loud, never silent."""

import json
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zoo.case import rows
from zoo.random_models import draw
from zoo.reference import TRUST, reference
from zoo.registry import ZOO
from zoo.score import Outcome, honesty, score, shares, table

# cheap to filter and to refer to, of many kinds
FAST = (
    "linear_on_a_box",
    "linear_on_the_line",
    "sine_square",
    "one_observation",
    "all_missing",
    "exact_start",
    "outlier_10",
    "sharp_prior_1e2",
    "precise_sensor_1e2",
    "ten_counts",
    "laplace_noise",
    "threshold_ar",
)
RIGHT = {1: 0.95, 2: 0.85}  # smallest shares at 1e-2 and 1e-3


def test_there_are_enough_cases():
    dims = [case.dim for case in ZOO.values()]
    assert dims.count(1) >= 60
    assert dims.count(2) >= 24


def points_of(case, rng, num):
    low, high = (np.atleast_1d(np.asarray(v, dtype=float)) for v in case.truth.prior)
    if case.dim == 2 and case.truth.frame is not None:
        middle, half = (low + high) / 2, (high - low) / 6
        return (middle + half * rng.uniform(-1, 1, size=(num, 2))) @ case.truth.frame.T
    middle, half = (low + high) / 2, (high - low) / 3
    return middle + half * rng.uniform(-1, 1, size=(num, case.dim))


def log_transition_again(case, u, x, t):
    """log Q at pairs, by the truth."""
    truth = case.truth
    if case.dim == 1:
        return truth.log_transition(u[:, 0], x[:, 0], t)
    frame = np.eye(2) if truth.frame is None else truth.frame
    z = x @ np.linalg.inv(frame).T
    out = []
    for old, new in zip(u, z, strict=True):
        old = old[None]
        weights = np.zeros((1, 1)) if truth.log_weight is None else truth.log_weight(old, t)
        logs = [
            w[0] + sum(truth.log_axis(i, old, new[i : i + 1], t, c)[0, 0] for i in (0, 1))
            for c, w in enumerate(weights)
        ]
        out.append(np.logaddexp.reduce(logs))
    return np.array(out) - np.log(abs(np.linalg.det(frame)))


def of_points(fn):
    """fn of rows of points and one time, in one program."""
    from psdfilter._statespace.model import call

    def one(points, rest, t):
        return jnp.reshape(call(fn, *points, *rest, t=t), ())

    return jax.jit(jax.vmap(one, (0, None, None)))


def gap(ours, again):
    """Largest |a - b| / (1 + |b|); equal infinities have none."""
    a, b = np.asarray(ours), np.asarray(again)
    with np.errstate(invalid="ignore"):
        return np.max(np.where(a == b, 0.0, np.abs(a - b) / (1 + np.abs(b))))


def disagreement(case):
    """Gaps of the user's densities to the truth's: of Q and G, and of the prior but a constant."""
    rng, gaps = np.random.default_rng(0), []
    ssm, truth = case.build(), case.truth
    u = points_of(case, rng, 40)
    x = u + (points_of(case, rng, 40) - u) * rng.uniform(0, 0.3, size=(40, 1))
    transition, observation = of_points(ssm.log_transition), of_points(ssm.log_observation)
    for t in (1, 30):
        gaps.append(gap(transition((u, x), (), t), log_transition_again(case, u, x, t)))
    ys, times = rows(case.data())
    state = x[:, 0] if case.dim == 1 else x
    for y, t in list(zip(ys, times, strict=True))[:40]:
        if np.isnan(y).all():
            continue
        ours = observation((x,), (y,), int(t))
        gaps.append(gap(ours, truth.log_observation(state, y, int(t))))
    if case.dim == 1 and truth.start is not None:
        return np.max(gaps), 0.0
    ours = np.asarray(jax.jit(jax.vmap(lambda a: jnp.reshape(ssm.log_prior(a), ())))(x))
    again = truth.log_prior(state)
    finite = np.isfinite(again)
    if (np.isfinite(ours) != finite).any():
        return np.max(gaps), np.inf
    constants = ours[finite] - again[finite]
    off = np.max(np.abs(constants - constants[0]))
    return np.max(gaps), off / (1 + np.abs(again[finite]).max())


@pytest.mark.long
@pytest.mark.parametrize("name", FAST)
def test_both_writings_of_a_model_agree(name):
    densities, prior = disagreement(ZOO[name])
    assert densities <= 1e-7
    assert prior <= 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_both_writings_of_all_models_agree(name):
    densities, prior = disagreement(ZOO[name])
    assert densities <= 1e-7
    assert prior <= 1e-8


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_both_writings_of_a_random_model_agree(seed):
    densities, prior = disagreement(draw(seed))
    assert densities <= 1e-7
    assert prior <= 1e-8


def kalman(ys, f, q, r, mean, variance):
    """log Z and moments of the textbook's filter, as a third opinion."""
    for y in ys:
        mean, variance = f * mean, f * f * variance + q
        total = variance + r
        log_z = -0.5 * (np.log(2 * np.pi * total) + (y - mean) ** 2 / total)
        mean, variance = mean + variance / total * (y - mean), variance * r / total
        yield log_z, mean, variance


@pytest.mark.long
def test_the_reference_is_the_kalman_filter():
    case = ZOO["linear_on_the_line"]
    exact = reference(case, cache=False)
    ys = case.data()["ys"]
    for step, (log_z, mean, variance) in zip(
        exact.steps, kalman(ys, 1.0, 0.25, 1e-6, 0.0, 1e4), strict=True
    ):
        x, p = step.points[:, 0], step.density * step.weights
        assert abs(step.log_z - log_z) < 1e-9
        assert abs(np.sum(p * x) - mean) < 1e-9
        assert abs(np.sum(p * (x - mean) ** 2) / variance - 1) < 1e-8


@pytest.mark.parametrize("name", FAST)
def test_references_certify_themselves(name):
    exact = reference(ZOO[name])
    assert max(exact.gaps.max(), np.abs(exact.log_gaps).max()) <= TRUST[1]
    for step in exact.steps:
        assert abs(np.sum(step.weights * step.density) - 1) < 1e-12


@pytest.mark.long
@pytest.mark.parametrize("name", FAST)
def test_fast_cases_are_not_silent(name):
    out = score(ZOO[name], 1e-2)
    assert out.verdict in ("right", "loud"), (out.verdict, out.worst, out.worst_log, out.reason)


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_all_references_certify_themselves(name):
    case = ZOO[name]
    exact = reference(case)
    assert max(exact.gaps.max(), np.abs(exact.log_gaps).max()) <= TRUST[case.dim]


TOLS = (1e-2, 1e-3, 1e-5)


@pytest.fixture(scope="session")
def outcome(tmp_path_factory, worker_id):
    """Scores of this run, (name, tol) -> Outcome: each is made once and shared by all workers."""
    base = tmp_path_factory.getbasetemp()
    store = (base if worker_id == "master" else base.parent) / "zoo"
    store.mkdir(exist_ok=True)
    last = [""]

    def scored(name, tol):
        path = store / f"{name}-{tol:g}.json"
        if path.exists():
            return Outcome(**json.loads(path.read_text()))
        if name != last[0]:
            # Tolerances of a case share its programs; another case has programs of its own.
            jax.clear_caches()
            last[0] = name
        out = score(ZOO[name], tol)
        with tempfile.NamedTemporaryFile("w", dir=store, delete=False) as file:
            json.dump(out.to_dict(), file)
        Path(file.name).replace(path)
        return out

    return scored


@pytest.mark.slow
@pytest.mark.parametrize("tol", TOLS)
@pytest.mark.parametrize("name", ZOO)
def test_a_case_is_right_or_loud(outcome, name, tol):
    out = outcome(name, tol)
    assert out.verdict in ("right", "loud", "refused"), table([out])
    _, worst, _ = honesty([out])
    assert worst >= 0.1, table([out])


@pytest.mark.slow
@pytest.mark.parametrize("tol", TOLS)
@pytest.mark.parametrize("dim", [1, 2])
def test_most_cases_are_right(outcome, dim, tol):
    outcomes = [outcome(name, tol) for name, case in ZOO.items() if case.dim == dim]
    report = table(outcomes)
    if tol >= 1e-3:
        assert shares(outcomes)[dim, tol]["right"] >= RIGHT[dim], report
    within, _, _ = honesty(outcomes)
    assert within >= 0.95, report


@pytest.mark.slow
@pytest.mark.parametrize("block", range(20))
def test_random_models_are_never_silent(block):
    # ten a block; `run.py --random 0 10000` is the long run
    for seed in range(10 * block, 10 * block + 10):
        out = score(draw(seed), 1e-3)
        assert out.verdict in ("right", "loud", "refused"), (seed, table([out]))
