"""One pass through rows: the compiled scan as far as it goes, robust steps where it misses.

Whole series and single steps go the same way: a pass can stop after any row and go on from there.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..._statespace.model import StateSpaceModel
from .backtrack import robust_step
from .beyond import first_beyond
from .fast import Nodes, Settings, run_fast
from .hosted import LENGTHS, Outcome, Series
from .known import known_grid
from .loop.records import ENOUGH, MISSED
from .reach import Frame
from .rules import DROPPED, scan_rule
from .scanned import Scanned, Stretch
from .sparse import (
    SparseStretch,
    active_of,
    num_levels,
    run_sparse,
    serves,
)
from .state import Law, evaluate
from .tables import CompiledValues, Values
from .trace import AdaptivePlan

# Panels with less than this share of the target are left out where a law goes to the scan.
_EMPTY = 1e-3
# Robust steps before the scan is tried again: doubled each time that it soon fails again.
_FIRST_CHUNK, _LAST_CHUNK = 2, 64
# Rows that say what observations are likely.
_LATEST = 64
# Rows on one sparse lattice before a wider one may be tried.
_LATTICE_LENGTH = 1024


class Pace(NamedTuple):
    """How a pass goes on.

    Attributes:
        level: which capacity the scan has.
        lattice: which sparse lattice; past the last of them for the scan.
        chunk: robust steps when the scan misses.
        left: robust steps before the scan is tried again.
        scanned: steps of the scan since the last robust one.
    """

    level: int = 0
    lattice: int = 0
    chunk: int = _FIRST_CHUNK
    left: int = 0
    scanned: int = 0


class Past(NamedTuple):
    """Rows that are done: the law before them, their outcomes, and how to go on."""

    start: Law
    outcomes: list[Outcome | Scanned]
    pace: Pace = Pace()

    @property
    def law(self) -> Law:
        """The law after the last row."""
        return self.outcomes[-1].law if self.outcomes else self.start


class Kit(NamedTuple):
    """What all steps of a pass share."""

    ssm: StateSpaceModel
    values: Values
    frame: Frame
    plan: AdaptivePlan
    target: float  # error of one step


def go_on(kit: Kit, series: Series, past: Past) -> Past:
    """All rows of the series that are not done yet; earlier ones may come out refined."""
    past = past._replace(outcomes=list(past.outcomes))
    while len(past.outcomes) < series.num:
        if past.pace.left == 0:
            past = past._replace(pace=_scan_on(kit, series, past))
            continue
        done = past.start, past.outcomes
        start = robust_step(kit.values, kit.frame, series.step, done, kit.target)
        past = Past(start, past.outcomes, past.pace._replace(left=past.pace.left - 1))
    return past


def _scan_on(kit: Kit, series: Series, past: Past) -> Pace:
    """Rows by the scan, added to the outcomes; if it misses, how many robust steps to make."""
    outcomes, pace, law = past.outcomes, past.pace, past.law
    first = len(outcomes)
    stop = min(series.stretch(first), first + LENGTHS[-1])
    can = isinstance(kit.values, CompiledValues) and stop > first and law.nodes.size > 1
    if can and pace.lattice < num_levels(kit.frame) and serves(kit.ssm, kit.frame):
        return _on_lattice(kit, Part(series, first, stop), past)
    if can and isinstance(kit.values, CompiledValues):
        capacity = kit.plan.capacities[pace.level]
        outcomes += _fast_stretch(kit.values, kit, Part(series, first, stop), law, capacity)
        scanned = pace.scanned + len(outcomes) - first
        if len(outcomes) == stop:
            return pace._replace(scanned=scanned)
        if pace.level + 1 < len(kit.plan.capacities):
            return pace._replace(level=pace.level + 1, scanned=scanned)
        pace = pace._replace(scanned=scanned)
    return _rested(past, pace)


class Part(NamedTuple):
    """Rows of a series that come one transition apart."""

    series: Series
    first: int
    stop: int


def _on_lattice(kit: Kit, part: Part, past: Past) -> Pace:
    """Rows on a sparse lattice, added to the outcomes; another one, or the scan, if it misses."""
    (series, first, stop), pace, num = part, past.pace, num_levels(kit.frame)
    last = past.outcomes[-1] if past.outcomes else None
    stretch = last.stretch if isinstance(last, Scanned) else None
    grid, start = None, None
    if isinstance(last, Scanned) and isinstance(stretch, SparseStretch):
        grid = stretch.grid if stretch.grid.level == pace.lattice else None
        start = None if grid is None else stretch.ran.active(last.k)
    if grid is None or start is None:
        grid = known_grid(kit.ssm, pace.lattice)
        start = active_of(kit.values, kit.frame, grid, past.law, kit.target)
    if start is None:
        # Too narrow for this lattice: a finer one may hold it.
        return pace._replace(lattice=pace.lattice + 2)
    stop = min(stop, first + _LATTICE_LENGTH)
    made = run_sparse(grid, kit.frame, start, (series, first, stop), (kit.target, kit.plan.tol))
    lacking = first_beyond(kit.values, kit.frame, made, _most_likely(past), kit.target)
    if lacking is not None:
        made.ran = made.ran._replace(done=lacking, reason=MISSED, halves=-1.0)
    past.outcomes.extend(Scanned(made, k) for k in range(made.ran.done))
    if made.ran.done == stop - first:
        worst = float(np.max(made.ran.told.halves))
        # The exponent of an error falls with the square of the spacing.
        wider = made.ran.done == _LATTICE_LENGTH and worst < ENOUGH**2 and pace.lattice > 0
        return pace._replace(lattice=pace.lattice - wider, scanned=pace.scanned + made.ran.done)
    scanned = pace.scanned + made.ran.done
    if made.ran.reason != MISSED:
        # More nodes than there is room for: left to the scan.
        return pace._replace(lattice=num, scanned=scanned)
    if made.ran.halves <= 0:
        return _rested(past, pace._replace(scanned=scanned))
    ratio = np.log(ENOUGH) / np.log(min(made.ran.halves, 0.9))
    more = int(np.clip(np.ceil(np.log2(ratio)), 1, 4))
    return pace._replace(lattice=pace.lattice + more, scanned=scanned)


def _most_likely(past: Past) -> float:
    """The highest log Z of the last rows; those without an observation have exactly zero."""
    last = (o.log_mass for o in past.outcomes[-_LATEST:])
    return max((value for value in last if value != 0), default=-np.inf)


def _rested(past: Past, pace: Pace) -> Pace:
    """Some robust steps; more of them if compiled ones have failed again soon."""
    chunk = _FIRST_CHUNK if pace.scanned > pace.chunk else min(2 * pace.chunk, _LAST_CHUNK)
    if past.outcomes and not past.outcomes[-1].law.has_panels:
        # Nodes without panels cannot be refined: the last step is made again.
        del past.outcomes[-1]
    return Pace(0, pace.lattice, chunk, chunk, 0)


def _fast_stretch(
    values: CompiledValues, kit: Kit, part: Part, law: Law, capacity: int
) -> list[Scanned]:
    """Steps of the compiled scan from a law on, up to the first that misses."""
    (series, first, stop), frame, target = part, kit.frame, kit.target
    bounded = bool(np.isfinite(frame.lower) or np.isfinite(frame.upper))
    nodes = _on_scan(values, law, capacity, target, bounded)
    if nodes is None:
        return []
    settings = Settings(
        np.asarray(frame.lower),
        np.asarray(frame.upper),
        np.asarray(3.0 + np.sqrt(2 * np.log(10 / target))),
        np.asarray(-np.log(DROPPED * target)),
        np.asarray(2 * target),
        np.asarray(kit.plan.tol),
    )
    parts = values.dynamic, values.static
    outs = run_fast(parts, nodes, series.padded(first, stop), settings, bounded)
    outs = jax.tree.map(np.asarray, outs)
    good = outs.good[: stop - first]
    count = len(good) if good.all() else int(np.argmin(good))
    stretch = Stretch(outs, nodes, frame, series, first, target)
    return [Scanned(stretch, k) for k in range(count)]


def _carry(x: np.ndarray, log_v: np.ndarray, carried: np.ndarray) -> Nodes:
    return Nodes(jnp.asarray(x), jnp.asarray(log_v), jnp.asarray(carried))


def _on_scan(values: Values, law: Law, num: int, target: float, bounded: bool) -> Nodes | None:
    """A law on the nodes of the scan; None if they do not hold it."""
    rule = scan_rule(num, bounded)
    if not law.has_panels and len(law.nodes) == num:
        return _carry(law.nodes, law.log_masses, law.ratios[2])
    low, high = law.nodes[0], law.nodes[-1]
    if law.has_panels:
        # Panels without mass are those of a wide box.
        held = law.masses.reshape(len(law.lower), -1).sum(axis=1) > _EMPTY * target
        low, high = law.lower[held][0], law.upper[held][-1]
    width = high - low
    x = low + width * rule.nodes
    logs, carried = evaluate(values, law, x)
    masses = rule.weights[0] * width * np.exp(logs)
    total = float(np.sum(masses))
    if not abs(total - 1) < 4 * target:
        return None
    with np.errstate(divide="ignore"):
        return _carry(x, np.log(masses / total), carried)
