"""References that certify themselves: every filter is computed twice, the second time finer."""

import hashlib
import inspect
import pickle
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from . import line_reference, plane_reference, quadrature
from .case import rows

TRUST = {1: 1e-8, 2: 1e-6}  # largest gap of the two computations, in total variation
CACHE = Path(tempfile.gettempdir()) / "psdfilter_zoo"


@dataclass(frozen=True)
class Step:
    """p(x_t | y_1 ... y_t): points (n, d), density (n,), weights (n,), and log Z_t."""

    points: np.ndarray
    density: np.ndarray
    weights: np.ndarray
    log_z: float
    missing: bool


@dataclass(frozen=True)
class Reference:
    """The exact filter of a case.

    gaps, log_gaps: what the two computations differ by at each step, in total variation and log Z.
    """

    steps: list
    gaps: np.ndarray
    log_gaps: np.ndarray

    @property
    def trusted(self):
        dim = self.steps[0].points.shape[1]
        return max(self.gaps.max(), np.abs(self.log_gaps).max()) <= TRUST[dim]


def reference(case, cache=True):
    """The reference of a case, from the cache if it was computed before."""
    path = CACHE / f"{case.name}-{_key(case)}.pickle"
    if cache and path.exists():
        kept = pickle.loads(zlib.decompress(path.read_bytes()))
    else:
        kept = _compute(case)
        if cache:
            CACHE.mkdir(exist_ok=True)
            for old in CACHE.glob(f"{case.name}-{'?' * 16}.pickle"):
                old.unlink(missing_ok=True)
            path.write_bytes(zlib.compress(pickle.dumps(kept), 1))
    return _expand(case, kept)


def _engine(case):
    return line_reference if case.dim == 1 else plane_reference


def _run(truth, setting, engine, data):
    """(pre, panels of the posterior, log mass of pre times likelihoods, first row, time) by row.

    Sensors of one time all multiply the one predicted density, so that nothing piles up.
    """
    ys, times = rows(data)
    filt = engine.Filter(truth, setting)
    filt.start()
    now, pre, out = 0, filt.post, []
    for i, time in enumerate(times):
        while now < time:
            if pre is not filt.post and (not out or out[-1][4] != now):  # a time without rows
                filt.update(pre, [], now)
            now += 1
            pre = filt.predict(now)
        first = i if not out or out[-1][4] != now else out[-1][3]
        total = filt.update(pre, _seen(ys[first : i + 1]), now)
        out.append((pre, filt.post.edges, total, first, now))
    return out


def _seen(ys):
    return [y for y in ys if not np.isnan(y).all()]


def _increment(kept, i, missing):
    """log Z of row i, from the masses of the rows of its time."""
    _, _, total, first, _ = kept[i]
    if missing:
        return np.nan
    return total - (kept[i - 1][2] if i > first else 0.0)


def _log_posterior(case, kept, x, ys, i, setting):
    """Log of pre times the likelihoods of row i's time so far, at x, over their mass."""
    pre, edges, total, first, time = kept[i]
    logs = _engine(case).log_values(pre, edges, x, setting)
    for y in _seen(ys[first : i + 1]):
        logs = logs + case.truth.log_observation(_state(case, x), y, time)
    return logs - total


def _compute(case):
    data, engine, truth = case.data(), _engine(case), case.truth
    ys, _ = rows(data)
    coarse = _run(truth, engine.COARSE, engine, data)
    fine = _run(truth, engine.FINE, engine, data)
    gaps, log_gaps = [], []
    for i, y in enumerate(ys):
        missing = np.isnan(y).all()
        x, w = engine.points(truth, coarse[i][1], engine.COARSE)
        p = np.exp(_log_posterior(case, coarse, x, ys, i, engine.COARSE))
        q = np.exp(_log_posterior(case, fine, x, ys, i, engine.FINE))
        gaps.append(np.sum(w * np.abs(p - q)) + abs(1 - np.sum(w * q)))
        gap = _increment(coarse, i, missing) - _increment(fine, i, missing)
        log_gaps.append(0.0 if missing else gap)
    return _slim(engine, coarse), np.array(gaps), np.array(log_gaps)


def _slim(engine, kept):
    """What is read again of predicted densities: sensors of one time share one."""
    used = {}
    for pre, edges, *_ in kept:
        used.setdefault(id(pre), (pre, []))[1].append(edges)
    slim = {key: engine.slim(pre, np.concatenate(parts)) for key, (pre, parts) in used.items()}
    return [(slim[id(pre)], *rest) for pre, *rest in kept]


def _state(case, x):
    return x if case.dim == 1 else plane_reference.to_state(case.truth, x)


def _expand(case, kept):
    coarse, gaps, log_gaps = kept
    ys, _ = rows(case.data())
    engine, truth = _engine(case), case.truth
    jacobian = 1.0 if case.dim == 1 else plane_reference.jacobian(truth)
    steps = []
    for i, y in enumerate(ys):
        x, w = engine.points(truth, coarse[i][1], engine.COARSE)
        missing = bool(np.isnan(y).all())
        p = np.exp(_log_posterior(case, coarse, x, ys, i, engine.COARSE))
        p = p / np.sum(w * p)
        state = _state(case, x).reshape(len(w), case.dim)
        log_z = _increment(coarse, i, missing)
        steps.append(Step(state, p / jacobian, w * jacobian, log_z, missing))
    return Reference(steps, gaps, log_gaps)


def _key(case):
    """Changes with the data, the densities' source, and the references' source."""
    digest = hashlib.sha256(b"slim, zlib")
    module = inspect.getmodule(case.truth.log_transition if case.dim == 1 else case.truth.log_axis)
    for part in (module, line_reference, plane_reference, quadrature):
        digest.update(inspect.getsource(part).encode())
    data = case.data()
    digest.update(repr((case.name, np.asarray(data["ys"]).tolist(), data.get("times"))).encode())
    return digest.hexdigest()[:16]
