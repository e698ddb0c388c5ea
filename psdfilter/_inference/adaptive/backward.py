"""Smoothed laws on panels of their own, where the nodes of the filter do not resolve them.

    s_k(x) = pi_k(x) b_k(x),    b_{k-1}(u) = int Q(u, x) G_k(x) b_k(x) dx / Z_k

Nodes of a filtered law resolve the law, and that is all they are chosen for. A transition whose
noise is narrow beside the posterior falls between them, and so may a smoothed law that is narrower
than the filtered one. Here every row has panels for s_k, and those are halved until the integral
over them is right wherever the row before has mass.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import logsumexp

from ..._statespace.model import Inputs
from .density import Sink
from .panels import MOST_PANELS, Field, Panels, level_ratios, nodes_of, resolve
from .rules import PANEL, embedded_error, patterson
from .state import Law, evaluate
from .tables import Values

# Rounds of halving panels of a row because the row before does not see through them: 2^10
# resolves noise of a thousandth of what a panel held.
_HALVINGS = 10
# The most panels after that.
_MOST = 4 * MOST_PANELS
# Pieces of a law without panels, to begin with.
_FIRST = 8
# Pairs of nodes that are looked at together, 32 MB of them.
_PAIRS = 2**22
# Nodes with less than this share of the target are not asked how well they see.
_LIGHT = 1e-3


class Resolved(NamedTuple):
    """A smoothed law: panels of s_k, and what comes after it.

    `error` is what the integral over the panels of the next row adds, and the panels' own.
    """

    law: Law
    sink: Sink | None
    error: float


def smooth_resolved(values: Values, laws: list[Law], target: float) -> list[Resolved]:
    """Smoothed laws of times with one transition between any two, the first of them first.

    Args:
        values: of Q and G.
        laws: filtered ones; rows of one time share the last of theirs.
        target: error of a row.
    """
    out = [_last(values, laws[-1], target)]
    for k in range(len(laws) - 2, -1, -1):
        out.append(_before(values, laws[k], laws[k + 1], out[-1], target))
    return out[::-1]


def _last(values: Values, law: Law, target: float) -> Resolved:
    """Nothing comes after: the filtered law, on panels."""
    if len(law.nodes) == 1:
        return Resolved(law, None, 0.0)
    field = _field(values, law, None)
    panels = resolve(field, *_first_panels(law), target)
    return Resolved(_on(law, panels), None, float(np.sum(panels.errors)))


def _first_panels(law: Law) -> tuple[np.ndarray, np.ndarray]:
    if law.has_panels:
        return law.lower, law.upper
    edges = np.linspace(law.nodes[0], law.nodes[-1], _FIRST + 1)
    return edges[:-1], edges[1:]


def _field(values: Values, law: Law, sink: Sink | None) -> Field:
    """log of pi_k b_k at points; no companions."""

    def field(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        logs = evaluate(values, law, x)[0]
        if sink is not None:
            logs = logs + _log_beta(values, sink, x)
        return logs, np.zeros((4, len(x)))

    return field


def _in_blocks(fn: Callable[[slice], np.ndarray], num: int, width: int) -> np.ndarray:
    """fn of all points, some of them at a time."""
    size = max(1, _PAIRS // max(width, 1))
    return np.concatenate([fn(slice(k, k + size)) for k in range(0, num, size)])


def _log_beta(values: Values, sink: Sink, u: np.ndarray) -> np.ndarray:
    def block(at: slice) -> np.ndarray:
        return np.asarray(logsumexp(_log_terms(values, sink, u[at]), axis=1))

    with np.errstate(divide="ignore"):
        return _in_blocks(block, len(u), len(sink.nodes))


def _log_terms(values: Values, sink: Sink, u: np.ndarray) -> np.ndarray:
    return values.log_q(u, sink.nodes, sink.t, sink.row) + sink.log_weights[None, :]


def _on(law: Law, panels: Panels) -> Law:
    """The same law on other panels."""
    ratios = np.concatenate([level_ratios(len(panels.lower)), np.zeros((1, len(panels.nodes)))])
    return law._replace(
        nodes=panels.nodes,
        log_masses=panels.log_masses,
        ratios=ratios,
        lower=panels.lower,
        upper=panels.upper,
    )


class _Panels(NamedTuple):
    """Panels of a row, and log G b / Z at their nodes, (k, PANEL)."""

    lower: np.ndarray
    upper: np.ndarray
    logs: np.ndarray

    def as_sink(self, t: int, row: Inputs) -> Sink:
        """With the weights of the rule."""
        half = 0.5 * (self.upper - self.lower)
        logs = self.logs + np.log(half[:, None] * patterson().weights[0][None, :])
        return Sink(nodes_of(self.lower, self.upper).reshape(-1), logs.reshape(-1), t, row)


def _before(values: Values, law: Law, after: Law, known: Resolved, target: float) -> Resolved:
    """The smoothed law before a transition; `after` is the filtered law after it."""
    assert after.source is not None
    at = after.source.t, after.source.row
    if len(known.law.nodes) == 1:
        return _resolved(values, law, Sink(known.law.nodes, np.zeros(1), *at), target)

    def looked(lower: np.ndarray, upper: np.ndarray) -> _Panels:
        x = nodes_of(lower, upper).reshape(-1)
        logs = np.full(len(x), -after.log_norm)
        for seen in after.seen:
            logs = logs + values.log_likelihood(x, seen)
        if known.sink is not None:
            logs = logs + _log_beta(values, known.sink, x)
        return _Panels(lower, upper, logs.reshape(-1, PANEL))

    panels = looked(known.law.lower, known.law.upper)
    halvings = 0
    while True:
        sink = panels.as_sink(*at)
        found = _resolved(values, law, sink, target)
        errors = _not_seen(values, found.law, sink, target)
        want = errors > target / len(errors)
        if halvings == _HALVINGS or not want.any() or len(want) + want.sum() > _MOST:
            return found._replace(error=found.error + float(np.sum(errors)))
        lower, upper = panels.lower[want], panels.upper[want]
        middle = 0.5 * (lower + upper)
        fresh = looked(np.concatenate([lower, middle]), np.concatenate([middle, upper]))
        joined = (np.concatenate([a[~want], b]) for a, b in zip(panels, fresh, strict=True))
        panels = _Panels(*joined)
        order = np.argsort(panels.lower)
        panels = _Panels(*(part[order] for part in panels))
        halvings += 1


def _resolved(values: Values, law: Law, sink: Sink, target: float) -> Resolved:
    """pi b on panels, of mass one, and the sink with b in its scale."""
    if len(law.nodes) == 1:
        return Resolved(law, sink, 0.0)
    panels = resolve(_field(values, law, sink), *_first_panels(law), target)
    scaled = sink._replace(log_weights=sink.log_weights - panels.log_total)
    return Resolved(_on(law, panels), scaled, float(np.sum(panels.errors)))


def _not_seen(values: Values, law: Law, sink: Sink, target: float) -> Float[np.ndarray, " k"]:
    """The error of b(u) = int Q(u, x) ... dx by each panel of the sink, a mean over u."""
    heavy = law.masses > _LIGHT * target / len(law.nodes)
    u, masses = law.nodes[heavy], law.masses[heavy]
    levels = np.concatenate([np.ones((1, PANEL)), level_ratios(1)])

    def block(at: slice) -> np.ndarray:
        logs = _log_terms(values, sink, u[at])
        total = np.asarray(logsumexp(logs, axis=1, keepdims=True))
        shares = np.exp(logs - np.where(np.isfinite(total), total, 0.0))
        sums = np.einsum("ukp,lp->luk", shares.reshape(len(logs), -1, PANEL), levels)
        errors = embedded_error(sums[0] - sums[1], sums[1] - sums[2])
        return (masses[at] @ np.minimum(errors, 2.0))[None]

    return _in_blocks(block, len(u), len(sink.nodes)).sum(axis=0)
