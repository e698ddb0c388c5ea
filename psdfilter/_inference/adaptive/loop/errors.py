"""Errors of a step on a sparse lattice, from lattices of twice and four times the spacing."""

from typing import Any

import numba
import numpy as np

from .records import AXES, ENOUGH, Active

# How smooth what is summed is. Maps with kinks have rules that converge by factors of four: a third
# of the difference of two nested rules is left as error of the finer, and the ratio to the coarsest
# rule, which does not even resolve what is smooth, tells nothing. Nobody knows of likelihoods and
# transitions that are given by their values.
_SMOOTH, _UNKNOWN, _ROUGH = 0, 1, 2
# Least share of the difference that counts as error, for each of these: on lattices as wide as two
# thirds of a law, smooth ones err by up to .036 of it. In the plane that of smooth ones falls with
# the difference itself: `_share`.
_LEAST = (0.03, 0.03, 1 / 3)
# Lines of nodes that are taken together where sums along an axis are compared: over all of the
# plane two rules may agree by chance, and single lines err by more than the sum over them.
_STRIP = 8

# Likelihoods that bend by more than so many times what nodes resolve are left to other steps: five
# lattices, each finer by sqrt 2, would be skipped.
_FINE = 32.0

# Functions that only compiled ones call need no way in from Python. They are kept on disk as parts
# of the loop, and not by themselves: Numba does not see when a function in another file changes.
_OPTIONS: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
inner = numba.njit(**_OPTIONS)

# Places in `Scratch.scalars`.
NORM, TOP, DROPPED, WALL, REST, OFFSET, UNSEEN, PEAK = range(8)


@inner
def region_index(tables, k):  # pragma: no cover - compiled
    """Where a node is in the region; -1 if it is outside."""
    out = 0
    for a in range(AXES):
        i = k[a] - tables.low[a]
        if i < 0 or i >= tables.size[a]:
            return -1
        out = out * tables.size[a] + i
    return out


@inner
def _smoothness(active, rough, tables, target):  # pragma: no cover - compiled
    """Of what is summed, by whether nodes that matter are near a kink."""
    mass = 0.0
    for m in range(active.masses.size):
        r = region_index(tables, active.place[m])
        if r >= 0 and rough[r]:
            mass += active.masses[m]
    if mass > target:
        return _ROUGH
    return _SMOOTH if tables.kernel.size == 0 and tables.logs.shape[1] == 0 else _UNKNOWN


@inner
def differences(count, numbers, scratch, state, told, t):  # pragma: no cover - compiled
    """How far sums over lattices of twice and four times the spacing are off."""
    active, every, tables = state
    new = Active(every.place[:count], every.masses[:count], every.carried[:count], 0.0, 0.0, 0.0)
    kind_old = _smoothness(active, tables.rough[0], tables, numbers.target)
    kind_new = _smoothness(new, tables.rough[1], tables, numbers.target)
    if kind_old != _ROUGH:
        # Old masses have the kinks of the sensor that saw them.
        kind_old = _smoothness(active, tables.rough[1], tables, numbers.target)
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
    share = _share(one, two, kind_old, d)
    for i in range(count):
        # Where few nodes lead the mean over all of them says little; outliers rest on such places.
        fine[i] *= max(share, min(fine[i] * fine[i], 1.0))
    whole = 1 - scratch.scalars[DROPPED]
    halves, sampling = max(one, abs(whole - even)), abs(whole - even)
    sampling *= _share(sampling, abs(even - few), kind_new, d)
    lines = 0.0
    for e in range(d):
        one, two = _line_sums(e, d, count, new, scratch)
        lines += one * _share(one, two, kind_new, d)
        halves = max(halves, one)
    # A cut leaves an error of what is beside it.
    told.numbers[t, 2] = max(sampling, lines) + scratch.scalars[DROPPED] + scratch.scalars[WALL]
    told.halves[t] = halves


@inner
def _share(fine, coarse, kind, axes):  # pragma: no cover - compiled
    """What the finest rule errs by, over the difference to the next: `rules.embedded_error`.

    Errors of rules for what is analytic near the line fall as exp(-a / h): each halving squares
    their ratio, and the error itself. For Gaussians they fall as exp(-b / h^2), and a halving takes
    the error to its fourth power. The ratio may be small by chance, the difference itself is not:
    at least its third power counts, which is between the two. On a line, where nodes are cheap, as
    large a share is kept as of what is unknown: an outlier rests on tails, whose own errors on wide
    lattices are larger than the mean of them.
    """
    rho = fine / coarse if fine < coarse else 1.0
    least = _LEAST[kind]
    if kind == _SMOOTH:
        rho *= rho
        if axes > 1:
            least = min(fine * fine, 1.0)
    ratio = rho / (1 - rho) if rho < 0.5 else 1.0
    return max(ratio, least)


@inner
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


@inner
def errors_of(count, numbers, scratch, state, told, t):  # pragma: no cover - compiled
    """Errors of the step; whether they are small enough."""
    active, new, tables = state
    d, scalars, numbers_t = numbers.axes, scratch.scalars, told.numbers[t]
    # Of the Gaussian kernel, which sums leave out.
    constant = 0.0 if tables.kernel.size > 0 else -0.5 * d * np.log(2 * np.pi)
    local, passed, offset, before = scalars[WALL], 0.0, 0.0, 0.0
    for i in range(count):
        # What tails lack is carried on with them: outliers later on may rest on them alone.
        inherited, own = new.carried[i], scratch.fine[i] + scratch.left_out[i]
        passed += new.masses[i] * abs(inherited - scalars[OFFSET])
        local += new.masses[i] * own
        both = abs(inherited) + own
        new.carried[i] = -both if inherited < 0 else both
        offset += new.masses[i] * new.carried[i]
    whole = 1 - scalars[DROPPED]
    for i in range(count):
        new.carried[i] -= offset
        new.masses[i] /= whole
    for i in range(active.masses.size):
        before += active.masses[i] * abs(active.carried[i])
    lost = active.lost * (min(passed / before, 1.0) if before > 0 else 1.0)
    sampling, target = numbers_t[2], numbers.target
    numbers_t[0], numbers_t[1], numbers_t[3] = passed + local, local, scalars[REST]
    numbers_t[4], numbers_t[5], numbers_t[6] = lost, offset, scalars[DROPPED]
    told.log_norm[t] = np.log(scalars[NORM]) + scalars[TOP] + d * np.log(numbers.h) + constant
    if scalars[UNSEEN] > 0:
        # Second differences fall with the square of the spacing, as the exponents of errors do.
        bent = scalars[UNSEEN]
        told.halves[t] = ENOUGH ** (1 / bent) if bent < _FINE else -1.0
        return False
    if scalars[WALL] > target or scalars[REST] > target:
        told.halves[t] = -1.0  # more nodes are of no use
        return False
    if passed > 4 * (active.error + target):
        told.halves[t] = -1.0
        return False
    return local + sampling <= 2 * target and passed + local + sampling + lost <= numbers.total
