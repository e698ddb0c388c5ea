"""Live feeds: many online filters, advanced side by side as observations arrive."""

import json
import os
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .. import _results
from .._checks import Numbers, require_x64
from .._inference.ability import Ability
from .._inference.model import AbstractModel
from .._inference.numerics.compiled import call_compiled
from .._inference.registry import as_model, require
from .._inference.series import is_partly
from .._inference.trace import Law
from .._statespace.model import Inputs
from ._fingerprint import fingerprint
from ._sources import as_labels

_FORMAT = "psdfilter online fleet 1"


class Carried(NamedTuple):
    """All filters between two ticks, S rows each."""

    laws: Law
    log_likelihood: Float[Array, " s"]
    code: Int[Array, " s"]  # of the first step that was not fine
    error: Float[Array, " s"]  # the largest estimate of a step
    step: Int[Array, ""]


def _tick(
    model: AbstractModel, carried: Carried, ys: Float[Array, "s p"], rows: Inputs, tol: float
) -> Carried:
    """One transition of all, and Bayes' rule for those that were heard."""
    step = carried.step + 1

    def one(law: Law, y: Array, row: Inputs) -> tuple[Law, Array, Array, Array]:
        law, moved, seen = model.tick(law, y, step, row)
        error = moved.error + seen.error
        code = jnp.where(seen.code == _results.UNRESOLVED, _results.OK, seen.code)
        missed = (code == _results.OK) & ~(error <= tol)
        return law, seen.log_mass, jnp.where(missed, _results.UNRESOLVED, code), error

    laws, logs, codes, errors = jax.vmap(one)(carried.laws, ys, rows)
    return Carried(
        laws,
        carried.log_likelihood + logs,
        jnp.where(carried.code == _results.OK, codes, carried.code),
        jnp.maximum(carried.error, errors),
        step,
    )


def _ticks(
    model: AbstractModel, carried: Carried, ys: Float[Array, "k s p"], tol: float
) -> Carried:
    """Several ticks, one after the other."""
    return jax.lax.scan(lambda at, y: (_tick(model, at, y, None, tol), None), carried, ys)[0]


def _moments(model: AbstractModel, laws: Law) -> tuple[Array, Array]:
    return jax.vmap(model.moments)(laws)


class OnlineFleet:
    """Many filters of one model, advanced by one compiled step as observations arrive.

    Every tick is one transition for all series; those that are silent are not updated. Steps that
    the plan does not resolve have code 3 and an error above the tolerance. A checkpoint holds every
    bit, and a fleet that is loaded from it goes on as if nothing had happened.

    Attributes:
        model: from `learn`.
        labels: of the series, (S,).
    """

    def __init__(self, model: AbstractModel, labels: int | Sequence[Hashable]):
        """Start all filters at the prior.

        Args:
            model: from `learn`; engines "exact" and "nodes", and the default one in one or two
                dimensions, on a fixed plan.
            labels: of the series, or their number.
        """
        require_x64()
        self.model = as_model(model)
        plan = model.batched()
        if plan is None:
            raise ValueError(
                f'model must be one that is filtered side by side, got engine "{model.engine}": '
                'learn with engine="nodes", or keep a FilterState for each series'
            )
        self._plan = plan
        self.labels = as_labels(range(labels) if isinstance(labels, int) else labels)
        if len(set(self.labels.tolist())) < len(self.labels):
            raise ValueError("labels must be distinct")
        self._places = {label: i for i, label in enumerate(self.labels.tolist())}
        num = len(self.labels)
        start = plan.settled(plan.start())
        laws = jax.tree.map(lambda a: jnp.repeat(a[None], num, axis=0), start)
        nothing = jnp.zeros(num)
        code = jnp.zeros(num, int)
        self._carried = Carried(laws, nothing, code, nothing, jnp.zeros((), int))

    def __len__(self) -> int:
        return len(self.labels)

    def step(self, ys: Numbers | Mapping[Hashable, Numbers], *, inputs: Inputs = None) -> None:
        """One transition of all series, and the observations of those that were heard.

        Args:
            ys: an array (S, p), or (S,), in the order of the labels, rows of NaN for silent series;
                or a mapping from labels to observations, in which silent ones do not appear.
            inputs: arrays with S rows, for models that take them.
        """
        if inputs is not None:
            require(self._plan, Ability.INPUTS)
        seen = self._as_rows(ys)
        rows = jax.tree.map(lambda a: jnp.asarray(a, dtype=jnp.float64), inputs)
        self._carried = call_compiled(
            _tick, self._plan, self._carried, seen, rows, options=(self.model.tol,)
        )

    def run(self, ys: Numbers) -> None:
        """Several ticks at once, (K, S, p): the numbers of as many calls of `step`, to rounding."""
        table = np.asarray(ys, dtype=float)
        table = table[..., None] if table.ndim == 2 else table
        if table.ndim != 3 or table.shape[1] != len(self):
            raise ValueError(f"ys must have shape (K, {len(self)}, p), got {table.shape}")
        for tick in table:
            self.step(tick)

    def _as_rows(self, ys: Numbers | Mapping[Hashable, Numbers]) -> np.ndarray:
        if isinstance(ys, Mapping):
            unknown = [k for k in ys if k not in self._places]
            if unknown:
                raise ValueError(f"ys has labels that the fleet has not: {unknown[:5]}")
            width = self._plan.num_observed or np.size(
                np.asarray(next(iter(ys.values()), 0.0), dtype=float)
            )
            rows = np.full((len(self), width), np.nan)
            for label, y in ys.items():
                rows[self._places[label]] = np.asarray(y, dtype=float)
        else:
            rows = np.asarray(ys, dtype=float)
            rows = rows[:, None] if rows.ndim == 1 else rows
        width = self._plan.num_observed
        if rows.ndim != 2 or len(rows) != len(self) or (width and rows.shape[1] != width):
            wanted = f"({len(self)}, {width or 'p'})"
            raise ValueError(
                f"ys must have shape {wanted}, a row for each series, got {rows.shape}"
            )
        if is_partly(rows):
            require(self._plan, Ability.PARTLY_MISSING)
        return rows

    @property
    def time(self) -> int:
        """Number of ticks so far."""
        return int(self._carried.step)

    @property
    def mean(self) -> Float[Array, "s d"]:
        """Of every series now."""
        return call_compiled(_moments, self._plan, self._carried.laws)[0]

    @property
    def covariance(self) -> Float[Array, "s d d"]:
        """Of every series now."""
        return call_compiled(_moments, self._plan, self._carried.laws)[1]

    @property
    def log_likelihood(self) -> Float[Array, " s"]:
        """Of all observations so far."""
        return self._carried.log_likelihood

    @property
    def code(self) -> Int[Array, " s"]:
        """Of the first step of each series that was not fine, else 0; see `explain`."""
        return self._carried.code

    @property
    def error_estimate(self) -> Float[Array, " s"]:
        """The largest estimated error of a step of each series."""
        return self._carried.error

    def save(self, path: str | os.PathLike[str]) -> None:
        """A checkpoint: the file is replaced as a whole, or not at all."""
        target = Path(path)
        header = {
            "format": _FORMAT,
            "model": fingerprint(self.model),
            "labels": self.labels.tolist(),
        }
        leaves = jax.tree.leaves(self._carried)
        arrays = {f"array_{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
        for rest in target.parent.glob(f".{target.name}.*.tmp"):
            rest.unlink(missing_ok=True)  # of a process that was killed while it wrote
        partial = target.with_name(f".{target.name}.{uuid4().hex}.tmp")
        try:
            with partial.open("xb") as file:
                np.savez(file, allow_pickle=False, header=np.asarray(json.dumps(header)), **arrays)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)

    @staticmethod
    def load(path: str | os.PathLike[str], model: AbstractModel) -> "OnlineFleet":
        """The fleet of a checkpoint; `model` is the one it was made with, learned again or not."""
        with np.load(Path(path), allow_pickle=False) as file:
            header = json.loads(str(file["header"]))
            if header.get("format") != _FORMAT:
                raise ValueError(f"{path} is no checkpoint of an OnlineFleet")
            if header["model"] != fingerprint(model):
                raise ValueError(
                    f"{path} is a checkpoint of another model: its filters cannot be carried on"
                )
            fleet = OnlineFleet(model, header["labels"])
            leaves, form = jax.tree.flatten(fleet._carried)
            saved = [jnp.asarray(file[f"array_{i}"]) for i in range(len(leaves))]
        fleet._carried = jax.tree.unflatten(form, saved)
        return fleet
