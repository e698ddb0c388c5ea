"""Bayes' rule for many Gaussians and any likelihood of a few measured coordinates.

x ~ N(m, S) and G(x) that depends on z = V'x only, q = dim z. With U = S V C^{-T/2}, C = V'S V,

    x = m + U xi + rest,   xi ~ N(0, I_q),   rest ~ N(0, S - U U') independent of G,

so that the posterior is known from that of xi: its mass, mean a and covariance B give m + U a and
S + U (B - I) U'. The posterior of xi is located by a few Newton steps and integrated by
Gauss-Hermite quadrature there. What is lost by calling it a Gaussian is measured by the part of its
log-density that is no quadratic, in Hermite polynomials on the same nodes: the coefficient of
degree alpha shrinks with s^alpha if the Gaussian is split into pieces s times as wide, which tells
along which axis to split, and into how many.

Arrays have the components last and small matrices are lists of lists: everything is one long
program of elementwise operations.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from ..._gaussian.entries import (
    Entries,
    cholesky_entries,
    eigen_entries,
    entries_of,
    inverse_entries,
    matrix_of,
    times,
    transposed,
)
from ..gaussian.mixture import Mixture
from .splitting import split_table

# Moves are cut at three standard deviations of the prior: four of them reach as far as it has mass.
_NEWTON_STEPS = 4
# Log-densities lower than this below their peak weigh nothing; the residual is cut there.
_DEPTH = 20.0
# A missed part of the likelihood lies this many standard deviations from the posterior found.
_FAR = 4.0
# A likelihood this many times as narrow as the prior may have modes that no node has seen. They are
# looked for from these places, in standard deviations of the prior along each axis.
_NARROW = 4.0
_OTHER_STARTS = {1: (0.8, 2.0), 2: (1.7,), 3: (1.7,)}
_POINTS = 5  # nodes per axis
# Other modes are looked for in components above this share of the heaviest.
_WEIGHTY = 1e-6
# Multiples of a target, of which the first is used whose splits find room.
FACTORS = (1.0, 2.0, 4.0)

LogLikelihood = Callable[[Array], Array]


class Hermite(NamedTuple):
    """Gauss-Hermite nodes of N(0, I_q) and orthonormal polynomials on them."""

    nodes: np.ndarray  # (n, q)
    log_weights: np.ndarray  # (n,)
    basis: np.ndarray  # (k, n), of total degree >= 3, times the weights
    degrees: np.ndarray  # (k, q)


@lru_cache(maxsize=8)
def hermite(dim: int, num: int = _POINTS) -> Hermite:
    """The tensor rule with `num` nodes per axis."""
    points, weights = np.polynomial.hermite_e.hermegauss(num)
    weights = weights / weights.sum()
    factorials = np.cumprod(np.concatenate([[1.0], np.arange(1.0, num)]))
    lines = np.polynomial.hermite_e.hermeval(points, np.diag(1 / np.sqrt(factorials)))
    mesh = np.meshgrid(*([points] * dim), indexing="ij")
    nodes = np.stack([m.ravel() for m in mesh], axis=-1)
    total, basis = np.ones(1), np.ones((1, 1))
    for _ in range(dim):
        total = np.multiply.outer(total, weights).ravel()
        basis = np.einsum("an,bm->abnm", basis, lines).reshape(basis.shape[0] * num, -1)
    mesh = np.meshgrid(*([np.arange(num)] * dim), indexing="ij")
    degrees = np.stack([m.ravel() for m in mesh], axis=-1)
    high = degrees.sum(axis=1) >= 3
    return Hermite(nodes, np.log(total), (basis * total[None, :])[high], degrees[high])


class Tilted(NamedTuple):
    """Posteriors as Gaussians, how far they are from being such, and how to split the priors."""

    log_masses: Float[Array, " r"]  # log int G dN(m, S)
    means: Float[Array, "r d"]
    covariances: Float[Array, "r d d"]
    errors: Float[Array, " r"]  # about int |posterior - its Gaussian| / mass
    rows: Int[Array, "f r"]  # of the split table, to bring the error down to FACTORS targets
    directions: Float[Array, "r d"]  # along which


class _Frame(NamedTuple):
    """x = m + U xi: the measured part of every component, components last."""

    m: list[Array]
    U: Entries  # d rows, q columns


def _frame(mixture: Mixture, measured: np.ndarray) -> tuple[_Frame, Entries]:
    S = entries_of(mixture.covariances)
    dim, num = measured.shape
    SV: Entries = [
        [
            sum(S[i][j] * measured[j, p] for j in range(dim) if measured[j, p] != 0)
            for p in range(num)
        ]
        for i in range(dim)
    ]  # pyright: ignore[reportAssignmentType]
    C: Entries = [
        [
            sum(SV[j][o] * measured[j, p] for j in range(dim) if measured[j, p] != 0)
            for o in range(num)
        ]
        for p in range(num)
    ]  # pyright: ignore[reportAssignmentType]
    U = times(SV, transposed(inverse_entries(cholesky_entries(C))))
    return _Frame(list(mixture.means.T), U), S


def _log_posterior(frame: _Frame, xi: list[Array], fn: LogLikelihood) -> tuple[Array, Array]:
    """log G(m + U xi) at points (n, r), one array for each coordinate; and minus |xi|^2 / 2."""
    x = [
        m[None, :] + sum(u[None, :] * z for u, z in zip(row, xi, strict=True))
        for m, row in zip(frame.m, frame.U, strict=True)
    ]
    points = jnp.stack(x)
    values = jax.vmap(fn, in_axes=1)(points.reshape(len(x), -1)).reshape(points.shape[1:])
    values = jnp.where(jnp.isnan(values), -jnp.inf, values)
    return values, -0.5 * sum(jnp.square(z) for z in xi)  # pyright: ignore[reportReturnType]


def _climb(frame: _Frame, start: list[Array], fn: LogLikelihood) -> tuple[list[Array], Entries]:
    """Modes of the posteriors, and minus the Hessian next to them, made positive definite."""

    def one(xi: list[Array], m: list[Array], U: Entries) -> Array:
        rows = zip(m, U, strict=True)
        x = [a + sum(u * z for u, z in zip(row, xi, strict=True)) for a, row in rows]
        return fn(jnp.stack(x)) - 0.5 * sum(jnp.square(z) for z in xi)

    def slopes(xi: list[Array], m: list[Array], U: Entries) -> tuple[list[Array], Entries]:
        return jax.grad(one)(xi, m, U), jax.hessian(one)(xi, m, U)

    def step(carry: tuple[list[Array], Entries], _: None):
        xi, _old = carry
        slope, hessian = jax.vmap(slopes, in_axes=-1)(xi, frame.m, frame.U)
        slope = [jnp.where(jnp.isfinite(g), g, 0.0) for g in slope]
        curvature = _convex(hessian)
        inverse = inverse_entries(cholesky_entries(curvature))
        move = times(transposed(inverse), times(inverse, [[g] for g in slope]))
        length = jnp.sqrt(sum(jnp.square(row[0]) for row in move) + 1e-300)
        move = [row[0] * jnp.minimum(1.0, 3.0 / length) for row in move]
        factors = jnp.asarray([0.0, 0.3, 1.0])[:, None]
        tries = [z[None, :] + factors * d[None, :] for z, d in zip(xi, move, strict=True)]
        best = jnp.argmax(sum(_log_posterior(frame, tries, fn)), axis=0)
        new = [jnp.take_along_axis(z, best[None, :], axis=0)[0] for z in tries]
        return (new, curvature), None

    num = len(start)
    unit = [[jnp.full_like(start[0], float(i == j)) for j in range(num)] for i in range(num)]
    return jax.lax.scan(step, (start, unit), None, length=_NEWTON_STEPS)[0]


def _convex(hessian: Entries) -> Entries:
    """-H with eigenvalues of at least one: where G bends upwards, the prior sets the scale."""
    num = len(hessian)
    finite = jnp.isfinite(sum(sum(row) for row in hessian))
    matrix = [
        [
            jnp.where(finite, -0.5 * (hessian[i][j] + hessian[j][i]), float(i == j))
            for j in range(num)
        ]
        for i in range(num)
    ]
    values, vectors = eigen_entries(matrix)
    scaled = [
        [v * jnp.maximum(s, 1.0) for v, s in zip(row, values, strict=True)] for row in vectors
    ]
    return times(scaled, transposed(vectors))


class _Modes(NamedTuple):
    """The mode that weighs most, its curvature E diag(l) E', and the others that were found."""

    peak: list[Array]
    stiff: list[Array]
    axes: Entries
    others: list[Array]  # (k, r)
    other_masses: Float[Array, "k r"]  # logs, by Laplace's rule


def _modes(frame: _Frame, start: list[Array], fn: LogLikelihood, weighty: Array) -> _Modes:
    """Climbs from `start`; then, if a mode is narrow, from both sides of the prior as well."""
    num, size = len(start), start[0].shape[0]
    starts = np.concatenate(
        [s * side * np.eye(num) for s in _OTHER_STARTS[num] for side in (1, -1)]
    )
    count = len(starts)
    sides = [jnp.repeat(jnp.asarray(starts[:, p]), size) for p in range(num)]
    every = _Frame(
        [jnp.tile(m, count) for m in frame.m],
        [[jnp.tile(u, count) for u in row] for row in frame.U],
    )
    peak, stiff, axes, mass = _climbed(frame, start, fn)
    narrow = jnp.max(jnp.stack(stiff), axis=0) > _NARROW**2

    def look(_: None):
        return _climbed(every, sides, fn)

    def skip(_: None):
        same = [jnp.tile(z, count) for z in peak]
        return (
            same,
            [jnp.tile(z, count) for z in stiff],
            [[jnp.tile(e, count) for e in row] for row in axes],
            jnp.full(count * size, -jnp.inf),
        )

    found = jax.lax.cond(jnp.any(narrow & weighty), look, skip, None)
    peaks, stiffs, many_axes, masses = jax.tree.map(
        lambda new, one: jnp.concatenate([one[None, :], new.reshape(count, size)]),
        found,
        (peak, stiff, axes, mass),
    )
    best = jnp.argmax(masses, axis=0)[None, :]

    def chosen(array: Array) -> Array:
        return jnp.take_along_axis(array, best, axis=0)[0]

    peak, stiff, axes = jax.tree.map(chosen, (peaks, stiffs, many_axes))
    return _Modes(peak, stiff, axes, peaks, masses)


def _climbed(
    frame: _Frame, start: list[Array], fn: LogLikelihood
) -> tuple[list[Array], list[Array], Entries, Array]:
    """Modes, their curvatures as l and E, and the logs of their masses by Laplace's rule."""
    peak, curvature = _climb(frame, start, fn)
    stiff, axes = eigen_entries(curvature)
    stiff = [jnp.maximum(s, 1.0) for s in stiff]
    heights, half = _log_posterior(frame, [z[None, :] for z in peak], fn)
    return peak, stiff, axes, (heights + half)[0] - 0.5 * sum(jnp.log(s) for s in stiff)


def tilt(
    mixture: Mixture, measured: np.ndarray, fn: LogLikelihood, targets: Float[Array, " r"]
) -> Tilted:
    """All posteriors, and the splits that would bring their errors below `targets`."""
    num = measured.shape[1]
    rule = hermite(num)
    nodes = [jnp.asarray(rule.nodes[:, p])[:, None] for p in range(num)]
    logs = jnp.asarray(rule.log_weights)[:, None]
    frame, S = _frame(mixture, measured)

    # On the prior's own scale: where to start, and what is out there.
    size = mixture.size
    spread_out = [jnp.broadcast_to(z, (z.shape[0], size)) for z in nodes]
    wide, half = _log_posterior(frame, spread_out, fn)
    first = jnp.argmax(wide + half, axis=0)
    start = [jnp.asarray(rule.nodes[:, p])[first] for p in range(num)]
    weighty = mixture.log_weights > jnp.max(mixture.log_weights) + np.log(_WEIGHTY)
    modes = _modes(frame, start, fn, weighty)
    peak, stiff, axes = modes.peak, modes.stiff, modes.axes

    # On the posterior's: eta = l^{1/2} E'(xi - peak) is standard normal where it is Gaussian.
    roots = [jnp.sqrt(s) for s in stiff]
    xi = [
        p[None, :] + sum(z * (e / s)[None, :] for z, e, s in zip(nodes, row, roots, strict=True))
        for p, row in zip(peak, axes, strict=True)
    ]
    values, half_xi = _log_posterior(frame, xi, fn)
    values = values + half_xi + 0.5 * sum(jnp.square(z) for z in nodes)
    log_sum = logsumexp(logs + values, axis=0)
    usable = jnp.isfinite(log_sum)
    log_sum = jnp.where(usable, log_sum, 0.0)
    shares = jnp.exp(logs + values - log_sum[None, :])
    log_mass = log_sum - sum(jnp.log(s) for s in roots)
    a = [jnp.sum(shares * z, axis=0) for z in xi]
    delta = [z - c[None, :] for z, c in zip(xi, a, strict=True)]
    change = [
        [jnp.sum(shares * delta[p] * delta[o], axis=0) - float(p == o) for o in range(num)]
        for p in range(num)
    ]

    energies = jnp.square(_residual(rule, values, usable))
    missed, missed_along = _missed(nodes, logs, wide, log_mass, modes)
    errors = jnp.minimum(jnp.sqrt(jnp.sum(energies, axis=0)) + missed, 2.0)
    errors = jnp.where(usable, errors, 0.0)
    axis, rows = _choose(rule, energies, stiff, missed, missed_along, targets)
    chosen = [sum(jnp.where(axis == p, e, 0.0) for p, e in enumerate(row)) for row in axes]
    moved = times(frame.U, times(change, transposed(frame.U)))
    means = [
        m + jnp.where(usable, sum(u * c for u, c in zip(row, a, strict=True)), 0.0)
        for m, row in zip(frame.m, frame.U, strict=True)
    ]
    after = [
        [s + jnp.where(usable, v, 0.0) for s, v in zip(*pair, strict=True)]
        for pair in zip(S, moved, strict=True)
    ]
    directions = [sum(u * c for u, c in zip(row, chosen, strict=True)) for row in frame.U]
    return Tilted(
        jnp.where(usable, log_mass, -jnp.inf),
        jnp.stack(means, axis=-1),
        matrix_of(after),
        errors,
        jnp.where(usable[None, :], rows, 0),
        jnp.stack(directions, axis=-1),
    )


def _residual(rule: Hermite, values: Float[Array, "n r"], usable: Array) -> Float[Array, "k r"]:
    """Coefficients, of degree three and more, of the log-density over that of a Gaussian."""
    cut = jnp.maximum(values - jnp.max(values, axis=0)[None, :], -_DEPTH)
    cut = jnp.where(usable[None, :], cut, 0.0)
    return jnp.asarray(rule.basis) @ cut


def _missed(
    nodes: list[Array],
    logs: Array,
    wide: Float[Array, "n r"],
    log_mass: Float[Array, " r"],
    modes: _Modes,
) -> tuple[Float[Array, " r"], list[Array]]:
    """Mass far from the posterior that was found, and how it is spread along its axes.

    Seen by nodes on the prior's scale, if the likelihood is wide, and as other modes, if it is
    narrow; the larger of the two.
    """
    seen = jnp.exp(jnp.minimum(logs + wide - log_mass[None, :], 0.0))
    here = [z - p[None, :] for z, p in zip(nodes, modes.peak, strict=True)]
    by_nodes, nodes_along = _far_mass(seen, here, modes)
    by_nodes = jnp.sum(by_nodes, axis=0)
    other = jnp.exp(jnp.minimum(modes.other_masses - log_mass[None, :], 0.0))
    here = [z - p[None, :] for z, p in zip(modes.others, modes.peak, strict=True)]
    by_modes, modes_along = _far_mass(other, here, modes)
    # Several climbs end at one mode: no sum.
    by_modes = jnp.max(by_modes, axis=0)
    along = [
        jnp.sum(a, axis=0) + jnp.sum(b, axis=0)
        for a, b in zip(nodes_along, modes_along, strict=True)
    ]
    return jnp.maximum(by_nodes, by_modes), along


def _far_mass(
    masses: Float[Array, "n r"], delta: list[Array], modes: _Modes
) -> tuple[Float[Array, "n r"], list[Array]]:
    """Masses at points far from the mode, and times the square of their place on each axis."""
    num = len(delta)
    along = [sum(delta[p] * modes.axes[p][o][None, :] for p in range(num)) for o in range(num)]
    distance = sum(jnp.square(z) * s[None, :] for z, s in zip(along, modes.stiff, strict=True))
    far = jnp.where(distance > _FAR**2, masses, 0.0)
    return far, [far * jnp.square(z) for z in along]


def _choose(
    rule: Hermite,
    energies: Float[Array, "k r"],
    stiff: list[Array],
    missed: Float[Array, " r"],
    missed_along: list[Array],
    targets: Float[Array, " r"],
) -> tuple[Int[Array, " r"], Int[Array, "f r"]]:
    """The axis to split, and the smallest splits expected to reach multiples of the target.

    Splitting the prior of an axis into pieces s times as wide makes the posterior s_eff times as
    wide, s_eff^2 = l / (1 / s^2 + l - 1): an axis that the likelihood has fixed (large l) is no
    narrower for it until the pieces are.
    """
    widths = jnp.asarray(split_table().widths)[:, None]
    total = sum(missed_along) + 1e-300
    lines = []
    for p, (level, part) in enumerate(zip(stiff, missed_along, strict=True)):
        squared = level[None, :] / (1.0 / jnp.square(widths) + level[None, :] - 1.0)
        expected = jnp.zeros_like(squared)
        for degree in reversed(range(_POINTS)):
            having = np.asarray(rule.degrees[:, p] == degree, dtype=float)
            expected = expected * squared + (jnp.asarray(having) @ energies)[None, :]
        # Missed mass is found by pieces narrower than its distance.
        found = jnp.where(widths < 0.7, 1.0 - (part / total)[None, :], 1.0)
        lines.append(jnp.sqrt(expected) + missed[None, :] * found)
    every = jnp.stack(lines)
    axis = jnp.argmin(every[:, 4], axis=0)
    line = jnp.take_along_axis(every, axis[None, None, :], axis=0)[0]
    rows = []
    for factor in FACTORS:
        good = line <= factor * targets[None, :]
        first, least = jnp.argmax(good, axis=0), jnp.argmin(line, axis=0)
        rows.append(jnp.where(jnp.any(good, axis=0), first, least))
    return axis, jnp.stack(rows)
