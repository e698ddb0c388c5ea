"""Likelihoods on frozen plans held against a filter that controls its error."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import jax
import numpy as np
from jaxtyping import Array, Float

from .._inference.engine import AbstractEngine, Task
from .._statespace.inside import inside
from .._statespace.model import StateSpaceModel
from .settings import Settings
from .theta import Theta

# How many tolerances an increment may be off: the plan keeps one, and so does the filter.
_SLACK = 3.0
# Series that are compared, of many: a plan is sized by one of them and errs on those unlike it.
_MOST_SERIES = 16


class Truth(NamedTuple):
    """Increments of some of the series, by the filter."""

    which: tuple[int, ...]
    increments: tuple[Float[np.ndarray, " t"], ...]


class Incremental(Protocol):
    """What is compared."""

    def increments(self, theta: Theta) -> Float[Array, " t"] | list[Float[Array, " t"]]:
        """log p(y_t | y before t; theta)."""
        ...


class Judge(NamedTuple):
    """The filter that likelihoods have to agree with."""

    engine: AbstractEngine
    settings: Settings
    tol: float

    def increments(self, ssm: StateSpaceModel) -> Truth | None:
        """By the filter; None if it cannot take these series."""
        within = inside(ssm, self.engine.roams)
        if self.engine.obstacle(within, self.tol) is not None:
            return None
        parts = self.settings.parts(within.num_observed)
        chosen = np.unique(
            np.linspace(0, len(parts) - 1, min(len(parts), _MOST_SERIES)).astype(int)
        )
        found = []
        for i in chosen:
            model = self.engine.learn(Task(within, self.tol, inputs=parts[i].rows))
            if model.sized(parts[i]) is not model:
                return None
            with jax.ensure_compile_time_eval():
                found.append(np.asarray(model.run(parts[i], False).log_likelihoods))
        return Truth(tuple(int(i) for i in chosen), tuple(found))


def disagreement(
    made: Incremental,
    places: Sequence[tuple[Theta, StateSpaceModel]],
    truths: Sequence[Truth | None],
    tol: float,
) -> str | None:
    """Where increments differ most from those of the filter; None if that is within tolerance."""
    worst, where, total = 0.0, "", 0.0
    for (theta, _), truth in zip(places, truths, strict=True):
        if truth is None:
            continue
        ours = made.increments(theta)
        each = ours if isinstance(ours, list) else [ours]
        for i, exact in zip(truth.which, truth.increments, strict=True):
            gaps = np.abs(np.asarray(each[i]) - exact)
            # Both are -inf where an observation is impossible.
            gaps = np.where(np.asarray(each[i]) == exact, 0.0, gaps)
            gaps = np.where(np.isnan(gaps), np.inf, gaps)
            t = int(np.argmax(gaps))
            if gaps[t] > worst:
                name = f"ys[{t}]" if len(each) == 1 else f"ys[{i}][{t}]"
                worst, where, total = float(gaps[t]), name, float(np.sum(gaps))
    if worst <= _SLACK * tol:
        return None
    return (
        f"this likelihood is off by {total:.1e}, {worst:.1e} of it at {where} (tol = {tol:g}): its "
        "plan does not resolve what the filter does. Use a smaller tol"
    )
