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

import hashlib
from pathlib import Path

import numba
import numpy as np

from .errors import (
    DROPPED,
    NORM,
    OFFSET,
    PEAK,
    REST,
    TOP,
    UNSEEN,
    WALL,
    differences,
    errors_of,
    inner,
    region_index,
)
from .records import AXES, BAND, DONE, FULL, MISSED, OUTSIDE, WIDE, Active

# Nats below its end within which the likelihood between nodes must stay.
_HIDDEN = 1.0
# How much finer than nodes the structure of a likelihood is, if that is not known.
_LOST = np.inf
# Bends of what nodes do not show: half the spacing is tried next.
_UNSHOWN = 4.0


@inner
def _window(active, tables, numbers, scratch):  # pragma: no cover - compiled
    """The nodes that old ones reach; why there are none, or DONE."""
    first, size, strides = scratch.window[0], scratch.window[1], scratch.window[2]
    tabulated = tables.kernel.size > 0
    for a in range(AXES):
        first[a], size[a] = 2**40, -(2**40)
        if tabulated:
            first[a], size[a] = tables.low[a], tables.low[a] + tables.size[a] - 1
    for m in range(0 if tabulated else active.masses.size):
        r = region_index(tables, active.place[m])
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


@inner
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


@inner
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


@inner
def _spread_rows(active, tables, numbers, scratch):  # pragma: no cover - compiled
    """The same for a table on a line."""
    for m in range(active.masses.size):
        k, v = active.place[m, AXES - 1], active.masses[m]
        r = k - tables.low[AXES - 1]
        first, stop = tables.band[r, 0], tables.band[r, 1]
        row = tables.kernel[r, first:stop]
        kind = 2 if k & 1 else (k & 3) >> 1
        sums = scratch.sums[kind, first:stop]
        for n in range(row.size):
            sums[n] += v * row[n]
        if kind < 2:
            scale, carried = 2.0 * v * active.carried[m], scratch.carried[first:stop]
            for n in range(row.size):
                carried[n] += scale * row[n]


@inner
def _spread(active, tables, numbers, scratch):  # pragma: no cover - compiled
    """Sums over old nodes on a window: by kinds of nodes, and of errors carried."""
    d = numbers.axes
    if tables.kernel.size > 0:
        _spread_rows(active, tables, numbers, scratch)
        return
    for a in range(AXES - d):
        scratch.weights[a, 0] = 1.0
        scratch.band[0, a], scratch.band[1, a] = 0, 1
    for m in range(active.masses.size):
        r = region_index(tables, active.place[m])
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
        if kind < 2:
            _add(scratch.carried, 2.0**d * v * active.carried[m], scratch)


@inner
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


@inner
def _log_g_between(row, r, y, between, middle, spread):  # pragma: no cover - compiled
    """The highest log G from a node to the next, but for a constant."""
    if between.shape[1] > 0:
        return between[row, r]
    total = 0.0
    for i in range(y.size):
        if not np.isnan(y[i]):
            e = max(abs(y[i] - middle[r, i]) - spread[r, i], 0.0)
            total -= 0.5 * e * e
    return total


@inner
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
    scratch.scalars[NORM], scratch.scalars[TOP] = norm, top
    scratch.scalars[PEAK] = peak
    # Where the likelihood is highest p may vanish: then nothing is left of their product.
    return most > 1e-250


@inner
def _keep(row, y, seen, numbers, tables, scratch, state):  # pragma: no cover - compiled
    """The nodes that hold mass; how many."""
    active, new = state
    # Wherever nodes that were dropped are, their kernels have no more than its highest value.
    lacking = active.dropped * tables.peak + active.masses.size * numbers.tail
    first, size = scratch.window[0], scratch.window[1]
    total, post, scalars = scratch.total, scratch.post, scratch.scalars
    norm, d = scalars[NORM], numbers.axes
    for n in range(DROPPED, UNSEEN + 1):
        scalars[n] = 0.0
    most, diagonal = 0.0, 0
    for n in range(size[0] * scratch.window[2, 0]):
        most = max(most, post[n])
    for a in range(AXES - d, AXES):
        diagonal += scratch.window[2, a]
    # Where log G between nodes exceeds this, p times it may matter.
    least = np.log(most) + _HIDDEN - np.log(scalars[PEAK])
    if tables.bent.size > 0 or tables.hides:
        least -= _HIDDEN + numbers.depth
    count, at = 0, -1
    between, middle, spread = tables.between, tables.middle, tables.spread
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
                        g = _log_g_between(row, r, y, between, middle, spread) - scalars[TOP]
                        if g > least and min(total[at], total[at + diagonal]) > 1e-280:
                            p = 0.5 * (np.log(total[at]) + np.log(total[at + diagonal]))
                            bent = _UNSHOWN if tables.hidden[r] else 0.0
                            if tables.bent.size > 0:
                                bent = tables.bent[row, r]
                            if p + g > np.log(most) + (-numbers.depth if bent > 1 else _HIDDEN):
                                scalars[UNSEEN] = max(scalars[UNSEEN], bent if bent > 1 else _LOST)
                    share = post[at] / norm
                    if share < numbers.threshold:
                        scalars[DROPPED] += share
                        continue
                    if count >= new.masses.size:
                        return -1
                    if tables.inside[r] == 2:
                        scalars[WALL] += share
                    inherited = scratch.carried[at] / total[at]
                    left_out = min(1.0, lacking / total[at])
                    scratch.left_out[count] = left_out
                    scalars[OFFSET] += share * inherited
                    scalars[REST] += share * left_out
                    new.place[count, 0], new.place[count, 1] = first[0] + i, first[1] + j
                    new.place[count, 2], new.place[count, 3] = first[2] + k, first[3] + l
                    new.masses[count], new.carried[count] = share, inherited
                    count += 1
    return count


@inner
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


@inner
def _missed(active, tables):  # pragma: no cover - compiled
    """Mass that goes where the nodes do not show."""
    total = 0.0
    for m in range(active.masses.size):
        total += active.masses[m] * tables.missed[region_index(tables, active.place[m])]
    return total


@inner
def _step(t, y, seen, state, numbers, scratch, told):  # pragma: no cover - compiled
    """One step; the number of nodes kept, or why there are none, negative."""
    active, new, tables = state
    reason = _window(active, tables, numbers, scratch)
    if reason != DONE:
        return -reason
    cells = scratch.window[1, 0] * scratch.window[2, 0]
    scratch.sums[:, :cells] = 0.0
    scratch.carried[:cells] = 0.0
    _spread(active, tables, numbers, scratch)
    told.halves[t] = -1.0
    if not _weigh(t, y, seen, tables, scratch):
        return -MISSED
    count = _keep(t, y, seen, numbers, tables, scratch, (active, new))
    if count < 0:
        return -FULL
    if _missed(active, tables) > numbers.target:
        scratch.scalars[UNSEEN] = max(scratch.scalars[UNSEEN], _UNSHOWN)
    differences(count, numbers, scratch, state, told, t)
    good = errors_of(count, numbers, scratch, state, told, t)
    _moments(count, numbers, new, told, t)
    return count if good else -MISSED


def _loop(stamp: str):
    """The loop, compiled once and kept on disk for sources of this digest."""

    @numba.njit(cache=True)
    def run_steps(
        data, active, tables, numbers, scratch, kept, told
    ):  # pragma: no cover - compiled
        """Steps until one misses; how many are done, and why no more."""
        if len(stamp) == 0:
            return 0, DONE
        ys, seen = data
        at = 0
        for t in range(len(ys)):
            new = Active(kept.place[at:], kept.masses[at:], kept.carried[at:], 0.0, 0.0, 0.0)
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
                told.numbers[t, 6],
            )
            at += count
        return len(ys), DONE

    return run_steps


def _digest() -> str:
    """Of all sources that are compiled into the loop."""
    here = Path(__file__).parent
    parts = [(here / name).read_bytes() for name in ("errors.py", "kernel.py", "records.py")]
    return hashlib.sha256(b"".join(parts)).hexdigest()


run_steps = _loop(_digest())
