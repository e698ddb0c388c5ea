"""The compiled loop of sparse lattices: steps of a filter whose noise is isotropic.

Laws are masses at the nodes h k, k integers, of a lattice in coordinates z where the noise has
variance one; only nodes that hold mass are kept. A step spreads every node around f of it, axis by
axis; multiplies by the likelihood; and drops what is below a threshold. Arrays have four axes, of
which the first ones have a single node where the state has fewer coordinates.

On a line the transition may be a table instead.

Nodes are told apart by their indices: all multiples of four, all even, and others. Sums of each
kind are kept apart, which costs no more terms, and give those of the lattices of spacing 2 h and
4 h: three nested rules, and so the error of a step. What a lattice errs by is the Fourier transform
of its terms at the frequencies of the dual lattice, and half of each of these belongs to that of
2 h.
"""

from typing import Any, NamedTuple

import numba
import numpy as np
from jaxtyping import Bool, Float, Int

AXES = 4
# Most neighbours along an axis that a node reaches.
BAND = 128
# Nats below its end within which the likelihood between nodes must stay.
_HIDDEN = 1.0
# Least share of the difference of two nested rules that counts as error of the finer. Where maps
# have kinks, whose rules converge by factors of four, a third of the difference is left; and the
# ratio to the coarsest rule, which does not even resolve what is smooth, tells nothing.
_LEAST, _ROUGH = 0.03, 1 / 3
# Nodes of up to so many times the mass of those that are dropped are at the rim. What is missing
# beyond them is less than so much of their share in a sum: of tails that fall by 1.25 from node to
# node it is a hundredth, of those that fall by 20 a twentieth.
_RIM, _BEYOND = 100.0, 0.25
# Lines of nodes that are taken together where sums along an axis are compared: over all of the
# plane two rules may agree by chance, and single lines err by more than the sum over them.
_STRIP = 8
# Why a run of steps has ended.
DONE, MISSED, OUTSIDE, FULL, WIDE = 0, 1, 2, 3, 4


# Functions that only compiled ones call need no way in from Python: half of their compilation.
_OPTIONS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_inner = numba.njit(cache=True, **_OPTIONS)


class Tables(NamedTuple):
    """What the loop reads: values at the nodes of a region of the lattice, in C order.

    Attributes:
        low: index of the first node along every axis.
        size: number of nodes along every axis.
        means: f at the nodes, in z.
        sensor: h at the nodes, in units of the sensor's noise; none of a likelihood by tables.
        middle: the same between nodes, half a spacing on along every axis.
        inside: whether a node is where the state lives, and not beside a wall.
        rough: whether f, and h, have kinks or jumps near a node.
        logs: log G at the nodes for every row; none of a sensor with Gaussian noise.
        between: the same between nodes, its largest value where there are several points.
        bent: whether log G has structure there that nodes cannot show.
        kernel: Q at pairs of nodes, old ones first; none of Gaussian noise.
    """

    low: Int[np.ndarray, " 4"]
    size: Int[np.ndarray, " 4"]
    means: Float[np.ndarray, "r 4"]
    sensor: Float[np.ndarray, "r p"]
    middle: Float[np.ndarray, "r p"]
    inside: Int[np.ndarray, " r"]
    rough: Bool[np.ndarray, "2 r"]
    logs: Float[np.ndarray, "t r"]
    between: Float[np.ndarray, "t r"]
    bent: Bool[np.ndarray, "t r"]
    kernel: Float[np.ndarray, "r r"]


class Numbers(NamedTuple):
    """Numbers of a run."""

    axes: int  # coordinates of the state
    h: float
    threshold: float  # mass of a node that is dropped
    tail: float  # mass times kernel where the kernel of a node is cut off
    depth: float  # nats below the highest value where structure of the likelihood matters
    target: float  # largest error of one step
    total: float  # largest error accumulated


class Active(NamedTuple):
    """Nodes that hold mass, and errors carried over masses."""

    place: Int[np.ndarray, "n 4"]
    masses: Float[np.ndarray, " n"]
    carried: Float[np.ndarray, " n"]
    error: float
    lost: float


class Kept(NamedTuple):
    """Nodes of all steps, one after the other, and where each step ends."""

    place: Int[np.ndarray, "m 4"]
    masses: Float[np.ndarray, " m"]
    carried: Float[np.ndarray, " m"]
    ends: Int[np.ndarray, " t"]


# Places in `Scratch.scalars`.
_NORM, _TOP, _DROPPED, _WALL, _REST, _OFFSET, _UNSEEN, _PEAK = range(8)


class Told(NamedTuple):
    """Numbers of every step.

    Attributes:
        log_norm: log Z; of a row without observation, that of the mass kept.
        numbers: error accumulated, its own part, error of the sum over nodes, that of nodes left
            out, mass lost, mean of relative errors.
        halves: what every second node would err by, along the worst axis.
        mean, covariance: of z.
    """

    log_norm: Float[np.ndarray, " t"]
    numbers: Float[np.ndarray, "t 6"]
    halves: Float[np.ndarray, " t"]
    mean: Float[np.ndarray, "t 4"]
    covariance: Float[np.ndarray, "t 4 4"]

    def some(self, rows: slice) -> "Told":
        """Those of some steps."""
        log_norm, numbers, halves, mean, covariance = (part[rows] for part in self)
        return Told(log_norm, numbers, halves, mean, covariance)


class Scratch(NamedTuple):
    """Arrays that every step writes anew; the first ones have room for a window."""

    sums: Float[np.ndarray, "3 w"]  # nodes that are multiples of four, other even ones, others
    carried: Float[np.ndarray, " w"]
    rim: Float[np.ndarray, " w"]
    total: Float[np.ndarray, " w"]
    post: Float[np.ndarray, " w"]
    lines: Float[np.ndarray, "3 w"]
    fine: Float[np.ndarray, " w"]
    weights: Float[np.ndarray, "4 b"]
    window: Int[np.ndarray, "3 4"]  # first node, number of nodes, strides
    band: Int[np.ndarray, "2 4"]  # first neighbour of a node, number of neighbours
    scalars: Float[np.ndarray, " 8"]


@_inner
def _region_index(tables, k):  # pragma: no cover - compiled
    """Where a node is in the region; -1 if it is outside."""
    out = 0
    for a in range(AXES):
        i = k[a] - tables.low[a]
        if i < 0 or i >= tables.size[a]:
            return -1
        out = out * tables.size[a] + i
    return out


@_inner
def _window(active, tables, numbers, scratch):  # pragma: no cover - compiled
    """The nodes that old ones reach; why there are none, or DONE."""
    first, size, strides = scratch.window[0], scratch.window[1], scratch.window[2]
    tabulated = tables.kernel.size > 0
    for a in range(AXES):
        first[a], size[a] = 2**40, -(2**40)
        if tabulated:
            first[a], size[a] = tables.low[a], tables.low[a] + tables.size[a] - 1
    for m in range(0 if tabulated else active.masses.size):
        r = _region_index(tables, active.place[m])
        if r < 0:
            return OUTSIDE
        if not np.isfinite(tables.means[r, AXES - 1]):
            continue
        reach = np.sqrt(2 * np.log(active.masses[m] / numbers.tail))
        for a in range(AXES):
            low, high = 0, 0
            if a >= AXES - numbers.axes:
                low = int(np.ceil((tables.means[r, a] - reach) / numbers.h))
                high = int(np.floor((tables.means[r, a] + reach) / numbers.h))
                if high - low >= BAND:
                    return WIDE
            first[a] = min(first[a], low)
            size[a] = max(size[a], high)
    cells = 1
    for a in range(AXES - 1, -1, -1):
        if size[a] < first[a]:
            return MISSED
        if first[a] < tables.low[a] or size[a] >= tables.low[a] + tables.size[a]:
            return OUTSIDE
        size[a] += 1 - first[a]
        strides[a] = cells
        cells *= size[a]
    return DONE if cells <= scratch.total.size else WIDE


@_inner
def _fill(scratch, a, mean, reach, h):  # pragma: no cover - compiled
    """exp(-(h k - mean)^2 / 2) for all k within reach."""
    low = int(np.ceil((mean - reach) / h))
    count = int(np.floor((mean + reach) / h)) - low + 1
    gap = low * h - mean
    # exp(-(gap + j h)^2 / 2) by recurrence: two exponentials instead of one for each.
    value = np.exp(-0.5 * gap * gap)
    ratio = np.exp(-gap * h - 0.5 * h * h)
    decay = np.exp(-h * h)
    for j in range(count):
        scratch.weights[a, j] = value
        value *= ratio
        ratio *= decay
    scratch.band[0, a], scratch.band[1, a] = low - scratch.window[0, a], count


@_inner
def _add(sums, scale, scratch):  # pragma: no cover - compiled
    """Add the kernel of one node, times a number, to sums on the window."""
    band, strides, weights = scratch.band, scratch.window[2], scratch.weights
    count, last = band[1, 3], weights[3]
    for i in range(band[1, 0]):
        at0 = (band[0, 0] + i) * strides[0] + band[0, 3]
        w0 = scale * weights[0, i]
        for j in range(band[1, 1]):
            at1 = at0 + (band[0, 1] + j) * strides[1]
            w1 = w0 * weights[1, j]
            for k in range(band[1, 2]):
                at = at1 + (band[0, 2] + k) * strides[2]
                w2 = w1 * weights[2, k]
                part = sums[at : at + count]
                for n in range(count):
                    part[n] += w2 * last[n]


@_inner
def _spread_rows(active, tables, numbers, scratch):  # pragma: no cover - compiled
    """The same for a table on a line."""
    for m in range(active.masses.size):
        k, v = active.place[m, AXES - 1], active.masses[m]
        row = tables.kernel[k - tables.low[AXES - 1]]
        kind = 2 if k & 1 else (k & 3) >> 1
        sums = scratch.sums[kind]
        for n in range(row.size):
            sums[n] += v * row[n]
        if v < _RIM * numbers.threshold:
            for n in range(row.size):
                scratch.rim[n] += v * row[n]
        if kind < 2:
            scale = 2.0 * v * active.carried[m]
            for n in range(row.size):
                scratch.carried[n] += scale * row[n]


@_inner
def _spread(active, tables, numbers, scratch):  # pragma: no cover - compiled
    """Sums over old nodes on a window: by kinds of nodes, of errors carried, and of the rim."""
    d = numbers.axes
    if tables.kernel.size > 0:
        _spread_rows(active, tables, numbers, scratch)
        return
    for a in range(AXES - d):
        scratch.weights[a, 0] = 1.0
        scratch.band[0, a], scratch.band[1, a] = 0, 1
    for m in range(active.masses.size):
        r = _region_index(tables, active.place[m])
        if not np.isfinite(tables.means[r, AXES - 1]):
            continue
        v = active.masses[m]
        reach = np.sqrt(2 * np.log(v / numbers.tail))
        bits = 0
        for a in range(AXES - d, AXES):
            _fill(scratch, a, tables.means[r, a], reach, numbers.h)
            bits |= active.place[m, a]
        kind = 2 if bits & 1 else (bits & 3) >> 1
        _add(scratch.sums[kind], v, scratch)
        if v < _RIM * numbers.threshold:
            _add(scratch.rim, v, scratch)
        if kind < 2:
            _add(scratch.carried, 2.0**d * v * active.carried[m], scratch)


@_inner
def _log_g(row, r, y, logs, sensor):  # pragma: no cover - compiled
    """log G at a node, but for a constant."""
    if logs.shape[1] > 0:
        return logs[row, r]
    total = 0.0
    for i in range(y.size):
        if not np.isnan(y[i]):
            e = y[i] - sensor[r, i]
            total -= 0.5 * e * e
    return total


@_inner
def _weigh(row, y, seen, tables, scratch):  # pragma: no cover - compiled
    """p and p G on the window."""
    first, size = scratch.window[0], scratch.window[1]
    total, post, sums = scratch.total, scratch.post, scratch.sums
    at, top, peak = 0, -np.inf, 0.0
    for i in range(size[0]):
        for j in range(size[1]):
            for k in range(size[2]):
                r = first[0] + i - tables.low[0]
                r = r * tables.size[1] + first[1] + j - tables.low[1]
                r = r * tables.size[2] + first[2] + k - tables.low[2]
                r = r * tables.size[3] + first[3] - tables.low[3]
                for _ in range(size[3]):
                    p = sums[0, at] + sums[1, at] + sums[2, at]
                    total[at] = p
                    post[at] = -np.inf
                    if p > 1e-280 and tables.inside[r] > 0:
                        peak = max(peak, p)
                        g = _log_g(row, r, y, tables.logs, tables.sensor) if seen else 0.0
                        if not np.isnan(g):
                            post[at] = g
                            top = max(top, g)
                    at += 1
                    r += 1
    norm, most = 0.0, 0.0
    for n in range(at):
        value = 0.0
        if post[n] > -np.inf:
            value = total[n] * np.exp(post[n] - top)
        post[n] = value
        norm += value
        most = max(most, value)
    scratch.scalars[_NORM], scratch.scalars[_TOP] = norm, top
    scratch.scalars[_PEAK] = peak
    # Where the likelihood is highest p may vanish: then nothing is left of their product.
    return most > 1e-250


@_inner
def _keep(row, y, seen, numbers, tables, scratch, state):  # pragma: no cover - compiled
    """The nodes that hold mass; how many."""
    active, new = state
    tails = active.masses.size * numbers.tail
    first, size = scratch.window[0], scratch.window[1]
    total, post, scalars = scratch.total, scratch.post, scratch.scalars
    norm, d = scalars[_NORM], numbers.axes
    for n in range(_DROPPED, _UNSEEN + 1):
        scalars[n] = 0.0
    most, diagonal = 0.0, 0
    for n in range(size[0] * scratch.window[2, 0]):
        most = max(most, post[n])
    for a in range(AXES - d, AXES):
        diagonal += scratch.window[2, a]
    # Where log G between nodes exceeds this, p times it may matter.
    least = np.log(most) + _HIDDEN - np.log(scalars[_PEAK])
    if tables.bent.size > 0:
        least -= _HIDDEN + numbers.depth
    count, at = 0, -1
    for i in range(size[0]):
        for j in range(size[1]):
            for k in range(size[2]):
                r = first[0] + i - tables.low[0]
                r = r * tables.size[1] + first[1] + j - tables.low[1]
                r = r * tables.size[2] + first[2] + k - tables.low[2]
                r = r * tables.size[3] + first[3] - tables.low[3] - 1
                inner = (d < 4 or i + 1 < size[0]) and (d < 3 or j + 1 < size[1])
                inner = inner and (d < 2 or k + 1 < size[2])
                for l in range(size[3]):
                    at += 1
                    r += 1
                    if seen and inner and l + 1 < size[3]:
                        g = _log_g(row, r, y, tables.between, tables.middle) - scalars[_TOP]
                        if g > least and min(total[at], total[at + diagonal]) > 1e-280:
                            p = 0.5 * (np.log(total[at]) + np.log(total[at + diagonal]))
                            bent = tables.bent.size > 0 and tables.bent[row, r]
                            if p + g > np.log(most) + (-numbers.depth if bent else _HIDDEN):
                                scalars[_UNSEEN] = 1.0
                    share = post[at] / norm
                    if share < numbers.threshold:
                        scalars[_DROPPED] += share
                        continue
                    if count >= new.masses.size:
                        return -1
                    if tables.inside[r] == 2:
                        scalars[_WALL] += share
                    inherited = scratch.carried[at] / total[at]
                    # Nodes that were dropped, and tails that were cut off.
                    left_out = (_BEYOND * scratch.rim[at] + tails) / total[at]
                    scalars[_OFFSET] += share * inherited
                    scalars[_REST] += share * min(1.0, left_out)
                    new.place[count, 0], new.place[count, 1] = first[0] + i, first[1] + j
                    new.place[count, 2], new.place[count, 3] = first[2] + k, first[3] + l
                    new.masses[count], new.carried[count] = share, inherited
                    count += 1
    return count


@_inner
def _rough_share(active, rough, tables, target):  # pragma: no cover - compiled
    """The least share of differences, by whether nodes that matter are near a kink."""
    mass = 0.0
    for m in range(active.masses.size):
        r = _region_index(tables, active.place[m])
        if r >= 0 and rough[r]:
            mass += active.masses[m]
    return _ROUGH if mass > target else _LEAST


@_inner
def _differences(count, numbers, scratch, state, told, t):  # pragma: no cover - compiled
    """How far sums over lattices of twice and four times the spacing are off."""
    active, every, tables = state
    new = Active(every.place[:count], every.masses[:count], every.carried[:count], 0.0, 0.0)
    least_old = _rough_share(active, tables.rough[0], tables, numbers.target)
    least_new = _rough_share(new, tables.rough[1], tables, numbers.target)
    d, first, sums = numbers.axes, scratch.window[0], scratch.sums
    strides, fine = scratch.window[2], scratch.fine
    second, fourth = 2.0**d, 4.0**d
    one, two, even, few = 0.0, 0.0, 0.0, 0.0
    for i in range(count):
        at, bits, mass = 0, 0, new.masses[i]
        for a in range(AXES):
            at += (new.place[i, a] - first[a]) * strides[a]
            bits |= new.place[i, a]
        half = second * (sums[0, at] + sums[1, at]) / scratch.total[at]
        fine[i] = abs(1 - half)
        one += mass * fine[i]
        two += mass * abs(half - fourth * sums[0, at] / scratch.total[at])
        if bits & 1 == 0:
            even += second * mass
        if bits & 3 == 0:
            few += fourth * mass
    share = _share(one, two, least_old)
    for i in range(count):
        fine[i] *= share
    whole = 1 - scratch.scalars[_DROPPED]
    halves, sampling = max(one, abs(whole - even)), abs(whole - even)
    sampling *= _share(sampling, abs(even - few), least_new)
    lines = 0.0
    for e in range(d):
        one, two = _line_sums(e, d, count, new, scratch)
        lines += one * _share(one, two, least_new)
        halves = max(halves, one)
    # A cut leaves an error of what is beside it.
    told.numbers[t, 2] = max(sampling, lines) + scratch.scalars[_DROPPED] + scratch.scalars[_WALL]
    told.halves[t] = halves


@_inner
def _share(fine, coarse, least):  # pragma: no cover - compiled
    """What the finest rule errs by, over the difference to the next: `rules.embedded_error`."""
    rho = fine / coarse if fine < coarse else 1.0
    ratio = rho / (1 - rho) if rho < 0.5 else 1.0
    return max(ratio, least)


@_inner
def _line_sums(e, d, count, new, scratch):  # pragma: no cover - compiled
    """|all - every second|, and |every second - every fourth|, of sums along an axis, by strips."""
    axis, first, size = AXES - d + e, scratch.window[0], scratch.window[1]
    lines = scratch.lines
    num = 1
    for a in range(AXES):
        if a != axis:
            num *= size[a]
    num = (num - 1) // _STRIP + 1
    lines[:, :num] = 0.0
    for i in range(count):
        line = 0
        for a in range(AXES):
            if a != axis:
                line = line * size[a] + new.place[i, a] - first[a]
        line //= _STRIP
        k, mass = new.place[i, axis], new.masses[i]
        lines[0, line] += mass
        if k & 1 == 0:
            lines[1, line] += 2 * mass
        if k & 3 == 0:
            lines[2, line] += 4 * mass
    one, two = 0.0, 0.0
    for j in range(num):
        one += abs(lines[0, j] - lines[1, j])
        two += abs(lines[1, j] - lines[2, j])
    return one, two


@_inner
def _errors(count, numbers, scratch, state, told, t):  # pragma: no cover - compiled
    """Errors of the step; whether they are small enough."""
    active, new, tables = state
    d, scalars, numbers_t = numbers.axes, scratch.scalars, told.numbers[t]
    # Of the Gaussian kernel, which sums leave out.
    constant = 0.0 if tables.kernel.size > 0 else -0.5 * d * np.log(2 * np.pi)
    local, passed, offset, before = scalars[_REST] + scalars[_WALL], 0.0, 0.0, 0.0
    for i in range(count):
        inherited, own = new.carried[i], scratch.fine[i]
        passed += new.masses[i] * abs(inherited - scalars[_OFFSET])
        local += new.masses[i] * own
        both = abs(inherited) + own
        new.carried[i] = -both if inherited < 0 else both
        offset += new.masses[i] * new.carried[i]
    whole = 1 - scalars[_DROPPED]
    for i in range(count):
        new.carried[i] -= offset
        new.masses[i] /= whole
    for i in range(active.masses.size):
        before += active.masses[i] * abs(active.carried[i])
    lost = active.lost * (min(passed / before, 1.0) if before > 0 else 1.0)
    sampling, target = numbers_t[2], numbers.target
    numbers_t[0], numbers_t[1], numbers_t[3] = passed + local, local, scalars[_REST]
    numbers_t[4], numbers_t[5] = lost, offset
    told.log_norm[t] = np.log(scalars[_NORM]) + scalars[_TOP] + d * np.log(numbers.h) + constant
    if scalars[_UNSEEN] > 0 or scalars[_WALL] > target or scalars[_REST] > target:
        told.halves[t] = -1.0  # more nodes are of no use
        return False
    if passed > 4 * (active.error + target):
        told.halves[t] = -1.0
        return False
    return local + sampling <= 2 * target and passed + local + sampling + lost <= numbers.total


@_inner
def _moments(count, numbers, new, told, t):  # pragma: no cover - compiled
    mean, covariance, h = told.mean[t], told.covariance[t], numbers.h
    for a in range(AXES - numbers.axes, AXES):
        mean[a] = 0.0
        for i in range(count):
            mean[a] += new.masses[i] * new.place[i, a] * h
    for a in range(AXES - numbers.axes, AXES):
        for b in range(AXES - numbers.axes, a + 1):
            total = 0.0
            for i in range(count):
                gap = new.place[i, a] * h - mean[a]
                total += new.masses[i] * gap * (new.place[i, b] * h - mean[b])
            covariance[a, b] = total
            covariance[b, a] = total


@_inner
def _step(t, y, seen, state, numbers, scratch, told):  # pragma: no cover - compiled
    """One step; the number of nodes kept, or why there are none, negative."""
    active, new, tables = state
    reason = _window(active, tables, numbers, scratch)
    if reason != DONE:
        return -reason
    cells = scratch.window[1, 0] * scratch.window[2, 0]
    scratch.sums[:, :cells] = 0.0
    scratch.carried[:cells] = 0.0
    scratch.rim[:cells] = 0.0
    _spread(active, tables, numbers, scratch)
    told.halves[t] = -1.0
    if not _weigh(t, y, seen, tables, scratch):
        return -MISSED
    count = _keep(t, y, seen, numbers, tables, scratch, (active, new))
    if count < 0:
        return -FULL
    _differences(count, numbers, scratch, state, told, t)
    good = _errors(count, numbers, scratch, state, told, t)
    _moments(count, numbers, new, told, t)
    return count if good else -MISSED


@numba.njit(cache=True)
def run_steps(data, active, tables, numbers, scratch, kept, told):  # pragma: no cover - compiled
    """Steps until one misses; how many are done, and why no more."""
    ys, seen = data
    at = 0
    for t in range(len(ys)):
        new = Active(kept.place[at:], kept.masses[at:], kept.carried[at:], 0.0, 0.0)
        count = _step(t, ys[t], seen[t], (active, new, tables), numbers, scratch, told)
        if count < 0:
            return t, -count
        kept.ends[t] = at + count
        active = Active(
            kept.place[at : at + count],
            kept.masses[at : at + count],
            kept.carried[at : at + count],
            told.numbers[t, 0],
            told.numbers[t, 4],
        )
        at += count
    return len(ys), DONE
