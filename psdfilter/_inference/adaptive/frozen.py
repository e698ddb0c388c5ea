"""Likelihoods of parameters on the windows of a run: exact values of Q and G at constant nodes."""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from ..._statespace.model import (
    Inputs,
    StateSpaceModel,
    log_observation_table,
    log_prior_table,
    log_transition_table,
)
from ..model import AbstractFrozen, PlanCheck
from ..series import Series
from .fast import embedded, finite
from .reach import Frame
from .state import Law, evaluate, relative_errors
from .tables import Source, Values, shares_of
from .windows import Row, Window, halved, row_of, united, window_of

# Rows have a number of nodes that is a multiple of this: few sizes, so that few programs.
_MULTIPLE = 16
# Most halvings of panels: 16 times as many nodes.
_HALVINGS = 4


class Nodes(NamedTuple):
    """Those of every row, (..., n); `Row` filled up with nodes of no weight."""

    x: Float[Array, "*t n"]
    log_weights: Float[Array, "*t n"]
    ratios: Float[Array, "*t 2 n"]
    rim: Float[Array, "*t n"]


class Steps(NamedTuple):
    """Rows of a series, as the scan takes them."""

    nodes: Nodes
    y: Float[Array, "t p"]
    moves: Bool[Array, " t"]
    step: Array
    row: Inputs


class Kept(NamedTuple):
    """Of every step: log Z, and the estimated error of its sums."""

    log_masses: Float[Array, "*s t"]
    errors: Float[Array, "*s t"]


class FrozenWindows(AbstractFrozen):
    """Nodes of every row of stacked series, (S, T, n), and of their priors, (S, n)."""

    has_plan: ClassVar[bool] = True
    start: Nodes
    nodes: Nodes
    windows: tuple[tuple[Window, ...], ...] = eqx.field(static=True)
    frame: Frame = eqx.field(static=True)

    @staticmethod
    def of(windows: Sequence[Sequence[Window]], frame: Frame) -> "FrozenWindows":
        """For each series the windows of prior and rows; shorter ones are filled up."""
        rows = [[row_of(one, frame) for one in each] for each in windows]
        size = max(len(one.nodes) for each in rows for one in each)
        size = _MULTIPLE * -(-size // _MULTIPLE)
        num = max(len(each) for each in rows)
        filled = [[_filled(one, size) for one in each] for each in rows]
        # Rows beyond the end of a series have no transition: the nodes stay.
        filled = [each + [each[-1]] * (num - len(each)) for each in filled]
        stacked = [np.stack([_stack(each, i) for each in filled]) for i in range(4)]
        kept = tuple(tuple(each) for each in windows)
        return FrozenWindows(
            Nodes(*(jnp.asarray(part[:, 0]) for part in stacked)),
            Nodes(*(jnp.asarray(part[:, 1:]) for part in stacked)),
            _Constant(kept),
            frame,
        )

    def _kept(self, ssm: StateSpaceModel, series: Series) -> Kept:
        def one(start: Nodes, nodes: Nodes, part: Series) -> Kept:
            steps = Steps(nodes, jnp.asarray(part.ys), part.hops > 0, part.steps, part.rows)
            return _scan(ssm, start, steps)

        return jax.lax.map(lambda args: one(*args), (self.start, self.nodes, series))

    def increments(
        self, ssm: StateSpaceModel, series: Series, forward: bool
    ) -> Float[Array, "s t"]:
        """log p(y_t | y before t) of stacked series."""
        del forward
        return self._kept(ssm, series).log_masses

    def evidence(
        self, ssm: StateSpaceModel, series: Series
    ) -> tuple[Float[Array, ""], PlanCheck, Kept]:
        """log p(y; theta), and the errors of all steps."""
        kept = self._kept(ssm, series)
        errors = jax.lax.stop_gradient(kept.errors)
        none = jnp.zeros(())
        failed = jnp.any(~jnp.isfinite(kept.log_masses))
        mean = jnp.mean(jnp.minimum(errors, 1.0))
        check = PlanCheck(none, jnp.max(errors), mean, none, jax.lax.stop_gradient(failed))
        return jnp.sum(kept.log_masses), check, kept

    def unresolved(self, facts: PyTree) -> Float[Array, "s t"]:
        """Errors of every step."""
        return facts.errors

    def log_masses(self, facts: PyTree) -> Float[Array, "s t"]:
        """Those of every step."""
        return facts.log_masses

    def merged(self, other: AbstractFrozen) -> "FrozenWindows":
        """Windows that hold those of both."""
        assert isinstance(other, FrozenWindows)
        both = [
            [united(pair) for pair in zip(mine, theirs, strict=True)]
            for mine, theirs in zip(self.windows, other.windows, strict=True)
        ]
        return FrozenWindows.of(both, self.frame)


class _Constant(tuple[tuple[Window, ...], ...]):
    """Windows, all of them equal: programs do not depend on them, and arrays have no hash."""

    __slots__ = ()

    def __hash__(self) -> int:
        return 0

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Constant)


class Run(NamedTuple):
    """A filter of one series, and what its transitions are held to."""

    values: Values
    frame: Frame
    start: Law
    laws: Sequence[Law]
    moves: Bool[np.ndarray, " t"]
    target: float


def windows_of(run: Run) -> list[Window]:
    """Windows of the prior and of all rows; rows of one time share theirs."""
    groups: list[list[Law]] = [[run.start]]
    of_row = []
    for law, moved in zip(run.laws, run.moves, strict=True):
        if moved:
            groups.append([law])
        else:
            groups[-1].append(law)
        of_row.append(len(groups) - 1)
    each = [united([window_of(law, run.frame) for law in group]) for group in groups]
    for k in range(len(groups) - 2, -1, -1):
        each[k] = _refined(run, (groups[k][-1], each[k]), (groups[k + 1][0], each[k + 1]))
    return [each[0], *(each[i] for i in of_row)]


def _refined(run: Run, old: tuple[Law, Window], new: tuple[Law, Window]) -> Window:
    """Panels halved until sums over their nodes are right for the transition out of them.

    The filter takes a law on panels for what it is between its nodes; sums over nodes need them as
    close as the transition is narrow.
    """
    (before, window), (law, after) = old, new
    row, source = row_of(after, run.frame), law.source
    if window.h != 0 or window.lower[0] == window.upper[-1] or source is None:
        return window
    masses = np.exp(evaluate(run.values, law, row.nodes)[0] + row.log_weights)
    for _ in range(_HALVINGS):
        now = row_of(window, run.frame)
        logs = evaluate(run.values, before, now.nodes)[0] + now.log_weights
        ratios = np.concatenate([now.ratios, np.zeros((1, len(logs))), now.rim[None]])
        sums = run.values.push(Source(now.nodes, logs, ratios, None, *source[4:]), row.nodes)
        if float(masses @ np.abs(relative_errors(sums.companions)[1])) <= run.target:
            break
        window = halved(window)
    return window


def _filled(row: Row, size: int) -> Row:
    extra = size - len(row.nodes)
    return Row(
        np.concatenate([row.nodes, np.repeat(row.nodes[-1:], extra)]),
        np.concatenate([row.log_weights, np.full(extra, -np.inf)]),
        np.concatenate([row.ratios, np.zeros((2, extra))], axis=1),
        np.concatenate([row.rim, np.zeros(extra)]),
    )


def _stack(rows: Sequence[Row], i: int) -> np.ndarray:
    return np.stack([row[i] for row in rows])


def _scan(ssm: StateSpaceModel, start: Nodes, steps: Steps) -> Kept:
    first = finite(log_prior_table(ssm, start.x[:, None]) + start.log_weights)
    first = first - _log_sum(first)
    # Only laws are kept for the reverse pass; Q at all pairs of nodes is evaluated again.
    step = jax.checkpoint(lambda carry, one: _step(ssm, carry, one))
    _, kept = jax.lax.scan(step, (start, first), steps)
    return kept


def _step(
    ssm: StateSpaceModel, carry: tuple[Nodes, Array], one: Steps
) -> tuple[tuple[Nodes, Array], Kept]:
    old, log_v = carry
    new, at = one.nodes, (one.step, one.row)
    log_q = log_transition_table(ssm, (0,), old.x[:, None], new.x[:, None], *at)
    shares, log_p = shares_of(log_q, log_v)
    log_p = jnp.where(one.moves, log_p + new.log_weights, log_v)
    missing = jnp.all(jnp.isnan(one.y))
    log_g = log_observation_table(ssm, new.x[:, None], one.y, *at)
    logs = finite(jnp.where(missing, log_p, log_p + finite(log_g)))
    log_z = _log_sum(logs)
    logs = logs - jnp.where(jnp.isfinite(log_z), log_z, 0.0)
    errors = _error(old, new, jax.lax.stop_gradient((shares, logs)), one.moves)
    return (new, logs), Kept(jnp.where(missing, 0.0, log_z), errors)


def _error(old: Nodes, new: Nodes, found: tuple[Array, Array], moves: Array) -> Array:
    """Of the sum over old nodes and of that over new ones, and what may lie beyond the ends."""
    shares, logs = found
    masses = jnp.exp(logs)
    sums = old.ratios @ shares
    inner = embedded(1 - sums[0], sums[0] - sums[1]) + old.rim @ shares
    half, quarter = new.ratios @ masses
    outer = embedded(1 - half, half - quarter) + new.rim @ masses
    return jnp.where(moves, masses @ inner + outer, 0.0)


def _log_sum(logs: Array) -> Array:
    peak = jax.lax.stop_gradient(jnp.max(logs))
    safe = jnp.where(jnp.isfinite(peak), peak, 0.0)
    return safe + jnp.log(jnp.sum(jnp.exp(logs - safe)))
