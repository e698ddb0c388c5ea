"""Whole series in one compiled scan: a lattice of fixed size, placed anew at every step.

A step whose estimate misses stops the scan: the steps after it cost nothing and are left to others.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ...._statespace.functions import as_vector, call
from ...._statespace.model import (
    Inputs,
    LinearGaussian,
    StateSpaceModel,
    log_observation_table,
    log_transition_table,
)
from ...compiled import call_compiled
from ..fast import Given, Rows
from ..spikes import BUMP
from .axes import LEAST_SHARE
from .law import BEYOND

# Points of a look along each axis.
_LOOK = 17
# Looks at one step: each narrows a window up to eightfold; more where nobody knows where in a box
# the law is. They end when the window no longer shrinks by this share of its area.
_LOOKS, _BOX_LOOKS, _SHRINKS = 4, 7, 0.75
# A window is turned if that leaves less than this share of its area.
_SMALLER = 0.7
# Nats below its end within which the likelihood between nodes must stay.
_HIDDEN = 1.0
# Points along each axis of a look for peaks on a floor, of likelihoods that are the user's own.
_DENSE = 160
# Nodes along each axis of the blocks over which errors of coarser lattices are compared: every
# other node is looked at, and there are at least sixteen.
_BLOCK = 4
# Growth of the inherited error in one step that calls for better tails.
_JUMP = 4.0


class Lattice(NamedTuple):
    """Nodes low + k cell along the axes of `turn`: z = turn w; log masses, and errors carried."""

    low: Float[Array, " 2"]
    cell: Float[Array, " 2"]
    turn: Float[Array, "2 2"]
    log_v: Float[Array, "n m"]
    carried: Float[Array, "n m"]
    error: Float[Array, ""]  # total variation, accumulated
    lost: Float[Array, ""]  # mass that no lattice held, as far as it is not forgotten


class Settings(NamedTuple):
    """Numbers of a run; none of them is compiled in."""

    frame: Float[Given, "2 2"]  # x = frame z
    low: Float[Given, " 2"]  # walls in z; infinite where there are none
    high: Float[Given, " 2"]
    depth: Float[Given, ""]  # nats below the highest value where windows end
    target: Float[Given, ""]  # largest error of one step
    total: Float[Given, ""]  # largest error accumulated


class Outs(NamedTuple):
    """What a step leaves behind."""

    lattice: Lattice
    log_norm: Array
    offset: Array
    local: Array
    sampling: Array
    edge: Array
    by_axis: Array  # errors of sums over old nodes, and of the new ones, by axis (2, 2)
    idle: Array  # what half of the nodes would err by, by axis (2,)
    mean: Array  # in z
    covariance: Array
    resolved: Array  # nothing but the number of nodes may be amiss
    good: Array


class _Window(NamedTuple):
    turn: Array
    low: Array
    high: Array


class _Old(NamedTuple):
    """Old nodes: where they are in x, f of them in z if the noise is Gaussian, their masses."""

    x: Float[Array, "n 2"]
    means: Float[Array, "n 2"] | None
    log_v: Float[Array, " n"]


class _Sums(NamedTuple):
    """Factors of the transition from old nodes to a lattice, or its whole table.

    p(w_i, w_j) = sum_m v_m left[m, i] right[m, j] exp(up_i + over_j); left holds v.
    """

    left: Float[Array, "n a"]
    right: Float[Array, "n b"]
    shift: Float[Array, "a b"]


def _finite(logs: Array) -> Array:
    return jnp.where(jnp.isnan(logs), -jnp.inf, logs)


def _shifted(logs: Array) -> tuple[Array, Array]:
    peak = jnp.max(logs, axis=0)
    safe = jnp.where(jnp.isfinite(peak), peak, 0.0)
    return jnp.exp(logs - safe[None, :]), safe


def _embedded(fine: Array, coarse: Array) -> Array:
    """`rules.embedded_error`."""
    d, other = jnp.abs(fine), jnp.abs(coarse)
    rho = jnp.minimum(d, other) / jnp.maximum(other, 1e-290)
    ratio = jnp.where(rho < 0.5, rho / (1 - jnp.minimum(rho, 0.5)), 1.0)
    return d * jnp.maximum(ratio, LEAST_SHARE)


def _turned(angle: Array) -> Float[Array, "2 2"]:
    c, s = jnp.cos(angle), jnp.sin(angle)
    return jnp.stack([jnp.stack([c, -s]), jnp.stack([s, c])])


def _angle(moments: Float[Array, "2 2"]) -> Array:
    """Direction of the longer principal axis."""
    return 0.5 * jnp.arctan2(2 * moments[0, 1], moments[0, 0] - moments[1, 1])


class _Step:
    """One step; what all its parts need."""

    def __init__(self, ssm: StateSpaceModel, row: Rows, settings: Settings, kind: str, floor: bool):
        self.ssm, self.row, self.settings, self.kind, self.floor = ssm, row, settings, kind, floor
        self.missing = jnp.all(jnp.isnan(row.ys)) | jnp.any(jnp.isinf(row.ys))

    def x_of(self, z: Float[Array, "n 2"]) -> Float[Array, "n 2"]:
        return z @ jnp.asarray(self.settings.frame).T

    def log_g(self, z: Float[Array, "n 2"]) -> Float[Array, " n"]:
        row = self.row
        logs = log_observation_table(self.ssm, self.x_of(z), row.ys, row.steps, row.rows)
        inside = jnp.all((z >= self.settings.low) & (z <= self.settings.high), axis=1)
        return jnp.where(inside, jnp.where(self.missing, 0.0, _finite(logs)), -jnp.inf)

    def old(self, lattice: Lattice) -> _Old:
        num = lattice.log_v.shape
        x = self.x_of(_points(lattice.turn, lattice.low, lattice.cell, num))
        log_v = lattice.log_v.reshape(-1)
        if self.kind != "gaussian":
            return _Old(x, None, log_v)
        means = _means(self.ssm, x, self.row.steps, self.row.rows)
        means = jnp.linalg.solve(jnp.asarray(self.settings.frame), means.T).T
        there = jnp.all(jnp.isfinite(means), axis=1)
        # What is thrown to infinity stays nowhere.
        return _Old(x, jnp.where(there[:, None], means, 0.0), jnp.where(there, log_v, -jnp.inf))

    def window(self, old: _Old) -> _Window:
        """Wherever the law may be before an observation narrows it."""
        settings = self.settings
        low, high = jnp.asarray(settings.low), jnp.asarray(settings.high)
        if old.means is None:
            return _Window(jnp.eye(2), low, high)
        masses = jnp.exp(old.log_v)
        gap = old.means - masses @ old.means / jnp.sum(masses)
        turn = _turned(_angle(gap.T @ (masses[:, None] * gap)))
        means = old.means @ turn
        depth = settings.depth + old.log_v - jnp.max(old.log_v)
        used, reach = depth > 0, jnp.sqrt(2 * jnp.maximum(depth, 0.0))[:, None]
        first = jnp.min(jnp.where(used[:, None], means - reach, jnp.inf), axis=0)
        last = jnp.max(jnp.where(used[:, None], means + reach, -jnp.inf), axis=0)
        return _Window(turn, first, last)

    def sums(self, old: _Old, turn: Array, axes: tuple[Array, Array]) -> _Sums:
        """Factors of p on a lattice; of a transition that has none, the table on the left."""
        if old.means is not None:
            means = old.means @ turn
            first = -0.5 * jnp.square(axes[0][None, :] - means[:, 0, None])
            second = -0.5 * jnp.square(axes[1][None, :] - means[:, 1, None])
            constant = -jnp.log(2 * jnp.pi)
        else:
            frame = jnp.asarray(self.settings.frame)
            at = (self.row.steps, self.row.rows)
            if self.kind == "pairs":
                num = axes[0].size, axes[1].size
                mesh = jnp.stack(jnp.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
                x = self.x_of(mesh @ turn.T)
                logs = log_transition_table(self.ssm, (0, 1), old.x, x, *at)
                left, up = _shifted(_finite(logs + old.log_v[:, None]))
                constant = jnp.linalg.slogdet(frame)[1]
                return _Sums(left, jnp.ones((len(old.x), 1)), up.reshape(num) + constant)
            first, second = (
                log_transition_table(self.ssm, (k,), old.x, axes[k][:, None] * frame[k, k], *at)
                for k in range(2)
            )
            constant = jnp.linalg.slogdet(frame)[1]
        left, up = _shifted(_finite(first + old.log_v[:, None]))
        right, over = _shifted(_finite(second))
        return _Sums(left, right, up[:, None] + over[None, :] + constant)

    def looked(self, old: _Old, window: _Window) -> tuple[_Window, Array, Array]:
        """The window cut to where p G is, on few points and a quarter of the old nodes."""
        turn, low, high = window
        cell = (high - low) / (_LOOK - 1)
        axes = low[0] + cell[0] * jnp.arange(_LOOK), low[1] + cell[1] * jnp.arange(_LOOK)
        sums = self.sums(old, turn, axes)
        shape = (_LOOK, _LOOK)
        log_p = jnp.log(jnp.sum(_product(sums.left, sums.right, shape), axis=0)) + sums.shift
        w = jnp.stack(jnp.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 2)
        logs = _finite(log_p + self.log_g(w @ turn.T).reshape(shape))
        keep = _bound(logs) > jnp.max(logs) - self.settings.depth
        cut = _cut(keep, low, cell)
        if old.means is None and self.kind == "separable":
            return _Window(turn, *cut), log_p, logs
        inside = keep.reshape(-1, 1)
        count = jnp.maximum(jnp.sum(inside), 1)
        gap = jnp.where(inside, w - jnp.sum(jnp.where(inside, w, 0.0), axis=0) / count, 0.0)
        angle = _angle(gap.T @ gap / count + jnp.diag(jnp.square(cell)) / 12)
        other = _turned(angle)
        along, margin = w @ other, 0.5 * jnp.abs(other).T @ cell
        first = jnp.min(jnp.where(inside, along, jnp.inf), axis=0) - margin
        last = jnp.max(jnp.where(inside, along, -jnp.inf), axis=0) + margin
        better = jnp.prod(last - first) < _SMALLER * jnp.prod(cut[1] - cut[0])
        better &= jnp.all(jnp.isfinite(first) & jnp.isfinite(last))
        return (
            _Window(
                jnp.where(better, turn @ other, turn),
                jnp.where(better, first, cut[0]),
                jnp.where(better, last, cut[1]),
            ),
            log_p,
            logs,
        )

    def narrowed(self, lattice: Lattice, old: _Old, window: _Window) -> _Window:
        """The window after as many looks as narrow it."""
        thin = _thinned(lattice.log_v.shape, old)
        most = _LOOKS if old.means is not None else _BOX_LOOKS

        def more(carry):
            k, _, shrunk = carry
            return (k < most) & shrunk

        def again(carry):
            k, here, _ = carry
            there, _, _ = self.looked(thin, here)
            before, after = jnp.prod(here.high - here.low), jnp.prod(there.high - there.low)
            return k + 1, there, after < _SHRINKS * before

        return jax.lax.while_loop(more, again, (0, window, jnp.asarray(True)))[1]

    def spikes(self, lattice: Lattice, old: _Old, window: _Window) -> Bool[Array, ""]:
        """Whether a dense look shows peaks that nodes cannot, where the law may be."""
        thin = _thinned(lattice.log_v.shape, old)
        _, log_p, logs = self.looked(thin, window)
        place = jnp.linspace(0.0, 1.0, _DENSE)
        lines = [window.low[k] + (window.high - window.low)[k] * place for k in range(2)]
        mesh = jnp.stack(jnp.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, 2)
        log_g = self.log_g(mesh @ window.turn.T).reshape(_DENSE, _DENSE)
        between = _between(jnp.maximum(log_p, -1e6), place)
        one = jnp.abs(log_g[:-2, 1:-1] - 2 * log_g[1:-1, 1:-1] + log_g[2:, 1:-1])
        two = jnp.abs(log_g[1:-1, :-2] - 2 * log_g[1:-1, 1:-1] + log_g[1:-1, 2:])
        bend = jnp.nan_to_num(jnp.maximum(one, two), nan=0.0, posinf=jnp.inf)
        there = (between + log_g)[1:-1, 1:-1] > jnp.max(logs) - self.settings.depth
        return jnp.any(there & (bend > BUMP))

    def run(self, lattice: Lattice) -> Outs:
        settings, num = self.settings, lattice.log_v.shape
        old = self.old(lattice)
        first = self.window(old)
        turn, low, high = self.narrowed(lattice, old, first)
        if self.kind != "separable":
            # The longer axis has more nodes.
            swap = (high - low)[1] > (high - low)[0]
            turn = jnp.where(swap, jnp.stack([turn[:, 1], -turn[:, 0]], axis=1), turn)
            low, high = (
                jnp.where(swap, jnp.stack([low[1], -high[0]]), low),
                jnp.where(swap, jnp.stack([high[1], -low[0]]), high),
            )
        cell = (high - low) / jnp.asarray(num)
        axes = low[0] + cell[0] * jnp.arange(num[0]), low[1] + cell[1] * jnp.arange(num[1])
        sums = self.sums(old, turn, axes)
        total = jnp.sum(_product(sums.left, sums.right, num), axis=0)
        log_p = jnp.log(total) + sums.shift
        z = _points(turn, low, cell, num)
        logs = _finite(log_p + self.log_g(z).reshape(num))
        top = jnp.max(logs)
        safe = jnp.where(jnp.isfinite(top), top, 0.0)
        f = jnp.exp(logs - safe)
        norm = jnp.sum(f)
        masses = f / jnp.where(norm > 0, norm, 1.0)
        ratios = _companions(lattice, sums, num, total[::2, ::2])
        shares = masses[::2, ::2]
        shares = shares / jnp.maximum(jnp.sum(shares), 1e-300)
        own = _own_errors(ratios, shares)
        inherited, edge = ratios[4], BEYOND * ratios[5]
        both = own[0] + own[1] + edge
        local = jnp.sum(shares * both)
        passed = jnp.sum(shares * jnp.abs(inherited - jnp.sum(shares * inherited)))
        sign = jnp.where(inherited == 0, 1.0, jnp.sign(inherited))
        shape = sign * (jnp.abs(inherited) + both)
        offset = jnp.sum(shares * shape)
        samples, halves = _line_errors(masses)
        rim = _rim(masses)
        sampling = jnp.sum(samples) + BEYOND * rim
        lost = self._lost(lattice, passed)
        hidden = self._hidden(turn, low, cell, log_p, logs)
        walls = jnp.sum(jnp.where(_at_wall(z, cell, settings).reshape(num), masses, 0.0))
        mean = masses.reshape(-1) @ z
        gap = z - mean
        covariance = gap.T @ (masses.reshape(-1, 1) * gap)
        carried = jnp.repeat(jnp.repeat(shape - offset, 2, axis=0), 2, axis=1)
        error = passed + local
        new = Lattice(
            low,
            cell,
            turn,
            jnp.where(masses > 0, jnp.log(masses), -jnp.inf),
            jnp.where(masses > 0, carried, 0.0),
            error,
            lost,
        )
        mean_edge = jnp.sum(shares * edge)
        by_axis = jnp.stack([jnp.sum(shares[None] * own, axis=(1, 2)), samples])
        idle = jnp.sum(shares[None] * jnp.abs(1 - ratios[:2]), axis=(1, 2)) + halves
        jump = passed > _JUMP * (lattice.error + settings.target)
        resolved = (norm > 0) & ~hidden & ~jump & (walls <= 0.1 * settings.target)
        resolved &= mean_edge <= settings.target
        if self.floor:
            spikes = jax.lax.cond(
                self.missing, lambda: jnp.asarray(False), lambda: self.spikes(lattice, old, first)
            )
            resolved &= ~spikes
        enough = local + sampling <= 2 * settings.target
        good = resolved & enough & (error + sampling + lost <= settings.total)
        log_norm = jnp.log(norm) + safe + jnp.log(jnp.prod(cell))
        return Outs(
            new,
            log_norm,
            offset,
            local,
            sampling,
            mean_edge,
            by_axis,
            idle,
            mean,
            covariance,
            resolved,
            good,
        )

    def _lost(self, lattice: Lattice, passed: Array) -> Array:
        """What was lost before, times how much of the old relative errors this step has kept."""
        before = jnp.sum(jnp.exp(lattice.log_v) * jnp.abs(lattice.carried))
        kept = jnp.where(before > 0, passed / jnp.where(before > 0, before, 1.0), 1.0)
        return lattice.lost * jnp.minimum(kept, 1.0)

    def _hidden(self, turn: Array, low: Array, cell: Array, log_p: Array, logs: Array) -> Array:
        """Whether the likelihood between nodes shows what the nodes do not."""
        num = log_p.shape
        middle = self.log_g(_points(turn, low + 0.5 * cell, cell, num)).reshape(num)[:-1, :-1]
        p = 0.25 * (log_p[1:, 1:] + log_p[:-1, 1:] + log_p[1:, :-1] + log_p[:-1, :-1])
        return jnp.max(_finite(p + middle)) - jnp.max(logs) > _HIDDEN


def _means(ssm: StateSpaceModel, u: Array, t: Any, row: Inputs) -> Array:
    form = ssm.structure
    if isinstance(form, LinearGaussian):
        return u @ form.F.T + form.b[None, :]
    assert form is not None
    return jax.vmap(lambda old: as_vector(call(form.f, old, t=t, inputs=row)))(u)


def _points(turn: Array, low: Array, cell: Array, num: tuple[int, int]) -> Float[Array, "n 2"]:
    lines = [low[k] + cell[k] * jnp.arange(num[k]) for k in range(2)]
    return jnp.stack(jnp.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, 2) @ turn.T


def _product(left: Array, right: Array, num: tuple[int, int]) -> Float[Array, "k a b"]:
    """sum_m left[m, i] right[m, j]; a table has all of it on the left."""
    if right.shape[1] == 1:
        return jnp.sum(left, axis=0).reshape((1, *num))
    return (left.T @ right)[None]


def _thinned(num: tuple[int, int], old: _Old) -> _Old:
    """Every other node along both axes."""

    def thin(a: Array) -> Array:
        return a.reshape(*num, -1)[::2, ::2].reshape(-1, *a.shape[1:])

    means = None if old.means is None else thin(old.means)
    return _Old(thin(old.x), means, thin(old.log_v).reshape(-1) + jnp.log(4.0))


def _companions(
    lattice: Lattice, sums: _Sums, num: tuple[int, int], total: Array
) -> Float[Array, "6 a b"]:
    """Sums of coarser lattices, of errors carried and of the rim, over p, at every other node."""
    few = (num[0] // 2, num[1] // 2)
    if sums.right.shape[1] == 1:
        left = sums.left.reshape(-1, *num)[:, ::2, ::2].reshape(-1, few[0] * few[1])
        right = sums.right
    else:
        left, right = sums.left[:, ::2], sums.right[:, ::2]
    left, right = left.reshape(*num, -1), right.reshape(*num, -1)

    def part(rows: Array, columns: Array) -> Array:
        a, b = rows.reshape(-1, rows.shape[-1]), columns.reshape(-1, columns.shape[-1])
        return _product(a, b, few)[0]

    carried = part(left * lattice.carried[..., None], right)
    ends = [0, num[0] - 1], [0, num[1] - 1]
    rim = part(left[ends[0], :], right[ends[0], :])
    rim = rim + part(left[1:-1, ends[1]], right[1:-1, ends[1]])
    out = jnp.stack(
        [
            2 * part(left[::2], right[::2]),
            2 * part(left[:, ::2], right[:, ::2]),
            4 * part(left[::4], right[::4]),
            4 * part(left[:, ::4], right[:, ::4]),
            carried,
            rim,
        ]
    )
    return out / jnp.where(total > 0, total, 1.0)[None]


def _own_errors(
    ratios: Float[Array, "6 a b"], shares: Float[Array, "a b"]
) -> Float[Array, "2 a b"]:
    """Errors of sums over old nodes, relative to them, by axis.

    How fast coarser lattices converge is told by means over blocks of nodes: at a single one of
    them two lattices may agree by chance.
    """
    out = []
    for k in range(2):
        fine, coarse = jnp.abs(1 - ratios[k]), jnp.abs(ratios[k] - ratios[2 + k])
        mean_fine, mean_coarse = _blocks(shares * fine), _blocks(shares * coarse)
        share = _embedded(mean_fine, mean_coarse) / jnp.maximum(mean_fine, 1e-290)
        out.append(fine * jnp.where(mean_fine > 0, share, LEAST_SHARE))
    return jnp.stack(out)


def _blocks(values: Float[Array, "a b"]) -> Float[Array, "a b"]:
    """Means over blocks of nodes, at every node."""
    a, b = values.shape
    means = values.reshape(a // _BLOCK, _BLOCK, b // _BLOCK, _BLOCK).mean(axis=(1, 3))
    return jnp.repeat(jnp.repeat(means, _BLOCK, axis=0), _BLOCK, axis=1)


def _line_errors(masses: Float[Array, "n m"]) -> tuple[Float[Array, " 2"], Float[Array, " 2"]]:
    """`axes.line_errors`, and those of half the nodes."""
    out, halves = [], []
    for k in range(2):
        lines = jnp.moveaxis(masses, k, 0)
        full, two, four = lines.sum(0), 2 * lines[::2].sum(0), 4 * lines[::4].sum(0)
        out.append(jnp.sum(_embedded(full - two, two - four)))
        halves.append(jnp.sum(jnp.abs(full - two)))
    return jnp.stack(out), jnp.stack(halves)


def _rim(masses: Float[Array, "n m"]) -> Array:
    ends = jnp.sum(masses[0]) + jnp.sum(masses[-1])
    return ends + jnp.sum(masses[1:-1, 0]) + jnp.sum(masses[1:-1, -1])


def _at_wall(z: Array, cell: Array, settings: Settings) -> Array:
    """Nodes within a cell's diagonal of a wall."""
    near = jnp.sqrt(jnp.sum(jnp.square(cell)))
    return jnp.any((z < settings.low + near) | (z > settings.high - near), axis=1)


def _bound(logs: Float[Array, "n m"]) -> Float[Array, "n m"]:
    """`axes.upper_bound` where all nodes are known."""
    bound = logs
    for k in range(2):
        lines = jnp.moveaxis(logs, k, 0)
        ahead = jnp.where(jnp.isfinite(lines[1:]), lines[1:] - lines[:-1], 0.0)
        behind = jnp.where(jnp.isfinite(lines[:-1]), lines[:-1] - lines[1:], 0.0)
        rise = jnp.zeros(lines.shape).at[1:].max(ahead).at[:-1].max(behind)
        bound = bound + 0.5 * jnp.moveaxis(rise, 0, k)
    return bound


def _cut(keep: Bool[Array, "n m"], low: Array, cell: Array) -> tuple[Array, Array]:
    """Ends of the kept nodes along the axes, and half a cell more: `_bound` is of so much."""
    first, last = [], []
    for k in range(2):
        there = jnp.any(keep, axis=1 - k)
        first.append(jnp.maximum(jnp.argmax(there) - 0.5, 0.0))
        last.append(jnp.minimum(_LOOK - 0.5 - jnp.argmax(there[::-1]), _LOOK - 1.0))
    return low + cell * jnp.stack(first), low + cell * jnp.stack(last)


def _between(values: Float[Array, "n m"], place: Float[Array, " k"]) -> Float[Array, "k k"]:
    """Bilinear interpolation at places of (0, 1) along both axes."""
    size = values.shape[0]
    at = place * (size - 1)
    matrix = jnp.maximum(1 - jnp.abs(at[:, None] - jnp.arange(size)[None, :]), 0.0)
    return matrix @ values @ matrix.T


def _scan(
    ssm: StateSpaceModel, lattice: Lattice, rows: Rows, settings: Settings, kind: str, floor: bool
) -> Outs:
    def step(state: Lattice, row: Rows) -> Outs:
        return _Step(ssm, row, settings, kind, floor).run(state)

    first = jax.tree.map(lambda a: a[0], rows)
    blank = jax.eval_shape(step, lattice, first)
    nothing = jax.tree.map(lambda a: jnp.zeros(a.shape, a.dtype), blank)

    def body(carry, row):
        state, going = carry
        go = going & row.used
        out = jax.lax.cond(go, lambda: step(state, row), lambda: nothing)
        keep = go & out.good
        state = jax.tree.map(lambda a, b: jnp.where(keep, a, b), out.lattice, state)
        return (state, going & (out.good | ~row.used)), out

    _, outs = jax.lax.scan(body, (lattice, jnp.asarray(True)), rows)
    return outs


def run_scan(
    ssm: StateSpaceModel, lattice: Lattice, rows: Rows, settings: Settings, kind: str, floor: bool
) -> Outs:
    """Steps until the first that misses; `good` says how far it went.

    `kind` of transition: "gaussian" noise around a map, "separable" along the axes, or "pairs";
    `floor`: the likelihood is the user's own, and may have peaks on a floor.
    """
    return call_compiled(_scan, ssm, lattice, rows, settings, options=(kind, floor))
