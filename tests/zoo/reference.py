"""References that certify themselves: every filter is computed twice, the second time finer."""

import hashlib
import inspect
import pickle
import tempfile
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
        with path.open("rb") as file:
            kept = pickle.load(file)
    else:
        kept = _compute(case)
        if cache:
            CACHE.mkdir(exist_ok=True)
            with path.open("wb") as file:
                pickle.dump(kept, file)
    return _expand(case, kept)


def _engine(case):
    return line_reference if case.dim == 1 else plane_reference


def _run(truth, setting, engine, data):
    """(pre, panels of the posterior, log Z) of every row."""
    ys, times = rows(data)
    filt = engine.Filter(truth, setting)
    filt.start()
    now, pre, out = 0, filt.post, []
    for y, time in zip(ys, times, strict=True):
        while now < time:
            if pre is not filt.post:  # a time without rows
                filt.update(pre, None, now)
            now += 1
            pre = filt.predict(now)
        seen = None if np.isnan(y).all() else y
        log_z = filt.update(pre, seen, now)
        if seen is None:
            log_z = np.nan
        out.append((pre, filt.post.edges, log_z, now))
        pre = filt.post
    return out


def _compute(case):
    data, engine, truth = case.data(), _engine(case), case.truth
    ys, _ = rows(data)
    coarse = _run(truth, engine.COARSE, engine, data)
    fine = _run(truth, engine.FINE, engine, data)
    gaps, log_gaps = [], []
    for y, (pre, edges, log_z, time), (other, _, other_z, _) in zip(
        ys, coarse, fine, strict=True
    ):
        missing = np.isnan(y).all()
        x, w = engine.points(truth, edges, engine.COARSE)
        seen = 0.0 if missing else truth.log_observation(_state(case, x), y, time)
        scale, other_scale = (0.0, 0.0) if missing else (log_z, other_z)
        p = np.exp(engine.log_values(pre, edges, x, engine.COARSE) + seen - scale)
        q = np.exp(engine.log_values(other, None, x, engine.FINE) + seen - other_scale)
        if missing:
            p, q = p / np.sum(w * p), q / np.sum(w * q)
        gaps.append(np.sum(w * np.abs(p - q)) + abs(1 - np.sum(w * q)))
        log_gaps.append(0.0 if missing else log_z - other_z)
    return coarse, np.array(gaps), np.array(log_gaps)


def _state(case, x):
    return x if case.dim == 1 else plane_reference.to_state(case.truth, x)


def _expand(case, kept):
    coarse, gaps, log_gaps = kept
    ys, _ = rows(case.data())
    engine, truth = _engine(case), case.truth
    jacobian = 1.0 if case.dim == 1 else plane_reference.jacobian(truth)
    steps = []
    for y, (pre, edges, log_z, time) in zip(ys, coarse, strict=True):
        x, w = engine.points(truth, edges, engine.COARSE)
        missing = bool(np.isnan(y).all())
        state = _state(case, x)
        logs = engine.log_values(pre, edges, x, engine.COARSE)
        if not missing:
            logs = logs + truth.log_observation(state, y, time) - log_z
        p = np.exp(logs)
        p = p / np.sum(w * p)
        steps.append(
            Step(state.reshape(len(w), case.dim), p / jacobian, w * jacobian, log_z, missing)
        )
    return Reference(steps, gaps, log_gaps)


def _key(case):
    """Changes with the data, the densities' source, and the references' source."""
    digest = hashlib.sha256()
    module = inspect.getmodule(case.truth.log_transition if case.dim == 1 else case.truth.log_axis)
    for part in (module, line_reference, plane_reference, quadrature):
        digest.update(inspect.getsource(part).encode())
    data = case.data()
    digest.update(repr((case.name, np.asarray(data["ys"]).tolist(), data.get("times"))).encode())
    return digest.hexdigest()[:16]
