"""Mean and covariance, marginal distribution functions and quantiles, the mode."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optimistix as optx
from jaxtyping import Array, Float

from .._checks import Numbers, as_axes, as_count, as_floats, check_values, is_traced, verified
from . import block_calculus, canonical, diagonal, squares
from .anchors import TensorGrid, expand
from .blocks import GaussianBlocks, block_moments
from .box import Box
from .conversions import PSDModel, with_precisions
from .mass import (
    BoxLike,
    as_model,
    closed_integral,
    num_pairs,
    optional_box,
    positive_mass,
    verified_model,
)
from .operations import Model, integrate_out
from .pairs import joint_matrices, pair_integrals, quadratic_form
from .psd import GaussianPSD
from .rounding import COSTLY, relative_error, require_digits, settle
from .support import effective_box

# Halvings to the last digit, and mass that nodes may miss.
_HALVINGS, _WHOLE = 54, 1e-9
_NO_MASS = "f must have positive mass on the box (on R^d a finite mass as well) to have moments"


def moments(f: Model, box: BoxLike | None = None) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Mean E[x] and covariance E[(x - mean)(x - mean)'] of f / int f.

    f need not be normalised. Integrals are over the box, or over R^d if it is None.
    """
    f, domain = verified_model(f, box)
    if domain is not None and not isinstance(f, GaussianPSD):
        raise ValueError(
            "box must be None for a generalised model or a sum of blocks, whose moments are over "
            "R^d"
        )
    (mean, covariance, mass), error = settle(
        lambda: _closed_moments(f, domain),
        lambda plan: squares.moments(f, plan),  # pyright: ignore[reportArgumentType]
        lambda: squares.plan_for_integral(f, domain),
        costly=num_pairs(f) > COSTLY,
    )
    # No mass at all is an error of its own.
    nothing = (error == jnp.inf) & (mass == 0)
    mass = require_digits(mass, jnp.where(nothing, 0.0, error), "the moments of f")
    usable = (mass > 0) & jnp.isfinite(mass)
    return check_values(mean, usable, _NO_MASS), check_values(covariance, usable, _NO_MASS)


@eqx.filter_jit
def _closed_moments(f: Model, box: Box | None) -> tuple[tuple[Array, Array, Array], Array]:
    if isinstance(f, GaussianPSD):
        *found, bound = _diagonal_moments(f, box)
    elif isinstance(f, GaussianBlocks):
        mass, _, bound = block_calculus.integral_and_bound(f)
        found = (*block_moments(f), mass)
    else:
        *found, bound = canonical.moments(f)
    return tuple(found), relative_error(found[2], bound)  # pyright: ignore[reportReturnType]


def _diagonal_moments(f: GaussianPSD, box: Box | None) -> tuple[Array, Array, Array, Array]:
    # Seen from one of the anchors, so that an offset of the units costs no digits. (Seen from their
    # mean the compiled program took three times as long: the sum was redone for every entry.)
    if isinstance(f.anchors, TensorGrid):
        origin = jnp.stack([axis[0] for axis in f.anchors.axes])
        anchors = TensorGrid([axis - o for axis, o in zip(f.anchors.axes, origin, strict=True)])
    else:
        origin = f.anchors[0]
        anchors = f.anchors - origin[None, :]
    shifted = None
    if box is not None:
        shifted = eqx.tree_at(
            lambda b: (b.lower, b.upper), box, (box.lower - origin, box.upper - origin)
        )
    pairs = pair_integrals(anchors, f.precision, shifted, moments=True)

    def expectation(replaced: dict[int, Array]) -> Array:
        per_axis = tuple(replaced.get(axis, pairs.masses[axis]) for axis in range(f.dim))
        return quadratic_form(joint_matrices(pairs, per_axis), f.factor)

    mass, here = expectation({}), jnp.zeros(())
    mean = jnp.stack([expectation({k: pairs.first_about(k, here)}) for k in range(f.dim)]) / mass
    # Second moments about the mean itself: about any other point they would be differences.
    firsts = [pairs.first_about(k, mean[k]) for k in range(f.dim)]
    second = jnp.zeros((f.dim, f.dim))
    for k in range(f.dim):
        second = second.at[k, k].set(expectation({k: pairs.second_about(k, mean[k])}))
        for other in range(k):
            cross = expectation({k: firsts[k], other: firsts[other]})
            second = second.at[k, other].set(cross).at[other, k].set(cross)
    bound = quadratic_form(joint_matrices(pairs, pairs.masses), jnp.abs(f.factor))
    return origin + mean, second / mass, mass, jax.lax.stop_gradient(bound)


def _line_model(
    f: Model, axis: int, box: BoxLike | None, **points: Array
) -> tuple[PSDModel, Box | None, Array]:
    """The marginal of one coordinate, its interval, and points on it, once all are looked at."""
    f = as_model("f", f)
    named = as_axes("axis", axis, f.dim)
    if len(named) != 1:
        raise ValueError(f"axis must be one integer, got {axis!r}")
    domain = optional_box(box, f.dim)
    if f.dim > 1 and domain is not None and not isinstance(f, GaussianPSD):
        raise ValueError(
            "box must be None for a generalised model, or a sum of blocks, of several coordinates"
        )
    f, domain, at = verified(f=f, box=domain, **points)
    f = with_precisions(f)
    line = f if f.dim == 1 else integrate_out(f, domain, named)
    return with_precisions(line), None if domain is None else domain.keep(named), at


def _mass_below(
    line: PSDModel, t: Float[Array, ""], interval: Box | None, bracket: Box, num_nodes: int
) -> tuple[Array, Array]:
    """z and s with int_{-inf}^t f = z exp(s), over the interval; at nodes unless there are none."""
    if num_nodes:
        return squares.mass_below(line, t, bracket.lower[0], num_nodes)  # pyright: ignore[reportArgumentType]
    low = jnp.full((1,), -jnp.inf) if interval is None else interval.lower
    room = eqx.tree_at(lambda b: (b.lower, b.upper), Box(-1.0, 1.0), (low, t[None]))
    if isinstance(line, GaussianPSD):
        return diagonal.scaled_integral(line, room)
    return canonical.scaled_integral(line, room)


def _on_line(
    line: PSDModel, interval: Box | None, along: Callable[[int], Float[Array, " n"]]
) -> Float[Array, " n"]:
    """`along(num_nodes)`: without nodes unless distribution functions would lose digits.

    Their absolute error is that of the whole mass, which is refused if nothing helps.
    """
    _, error = closed_integral(line, interval)
    value, _ = settle(
        lambda: (along(0), error),
        lambda plan: (along(plan.counts[0]), error),
        lambda: squares.plan_for_integral(line, interval),
    )
    return value


@eqx.filter_jit
def _cdf(
    line: PSDModel, t: Float[Array, " n"], interval: Box | None, log_mass: Array, num_nodes: int
) -> Array:
    bracket = squares.room_of(line, interval)

    def below(point: Float[Array, ""]) -> Float[Array, ""]:
        if interval is not None:
            point = jnp.clip(point, interval.lower[0], interval.upper[0])
        if num_nodes:
            point = jnp.clip(point, bracket.lower[0], bracket.upper[0])
        mass, log_scale = _mass_below(line, point, interval, bracket, num_nodes)
        return jnp.clip(mass * jnp.exp(log_scale - log_mass), 0.0, 1.0)

    return jax.lax.map(below, t, batch_size=64)


def _with_mass(f: GaussianBlocks) -> GaussianBlocks:
    """f, if it has a mass to divide by."""
    mass = positive_mass(f, None)
    safe = check_values(f.log_weights, jnp.isfinite(mass), _NO_MASS)
    return eqx.tree_at(lambda m: m.log_weights, f, safe)


def cdf(f: Model, axis: int, t: Numbers, box: BoxLike | None = None) -> Float[Array, "..."]:
    """P(x_axis <= t) under f / int f, for any array of t."""
    if isinstance(f, GaussianBlocks) and box is None:
        blocks, points = verified(f=f, t=as_floats("t", t))
        return _with_mass(blocks).cdf(axis, points)
    line, interval, points = _line_model(f, axis, box, t=as_floats("t", t))
    log_mass = positive_mass(line, interval)
    flat = points.ravel()
    values = _on_line(line, interval, lambda num: _cdf(line, flat, interval, log_mass, num))
    return values.reshape(points.shape)


def _by_series(
    line: PSDModel, interval: Box | None, q: Float[Array, " n"], log_mass: Array
) -> Array | None:
    """Quantiles from Legendre series; None if few are asked for, or numbers are not known yet.

    Every halving of an interval takes all pairs of a closed form, and the terms of one series.
    """
    if is_traced((line, interval, q)) or num_pairs(line) * q.size < COSTLY:
        return None
    plan = squares.plan_for_integral(line, interval)
    if plan is None:
        return None
    below = squares.series_below(line, plan, log_mass)  # pyright: ignore[reportArgumentType]
    # Nodes that do not see the whole mass do not serve.
    if not abs(float(below(np.ones(1))[0]) - 1) < _WHOLE:
        return None
    levels, low, high = np.asarray(q), np.full(q.shape, -1.0), np.ones(q.shape)
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        short = below(middle) < levels
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    room = plan.room
    return room.center[0] + room.half_width[0] * jnp.asarray(0.5 * (low + high))


@eqx.filter_jit
def _quantile(
    line: PSDModel, q: Float[Array, " n"], interval: Box | None, log_mass: Array, num_nodes: int
) -> Array:
    bracket = squares.room_of(line, interval) if num_nodes else effective_box(line, interval)
    low, high = bracket.lower[0], bracket.upper[0]
    scale = jnp.maximum(jnp.abs(low), jnp.abs(high))

    def excess(t: Float[Array, ""], level: Float[Array, ""]) -> Float[Array, ""]:
        mass, log_scale = _mass_below(line, t, interval, bracket, num_nodes)
        return mass * jnp.exp(log_scale - log_mass) - level

    def one(level: Float[Array, ""]) -> Float[Array, ""]:
        # Rounding can leave excess(high) below zero for a level next to one: the bracket is then
        # the answer, which the clipped levels give.
        nothing = jnp.zeros(())
        inner = jnp.clip(level, excess(low, nothing), excess(high, nothing))
        solver = optx.Bisection(
            rtol=1e-14,
            atol=1e-14 * scale,  # pyright: ignore[reportArgumentType]
            flip=False,
            expand_if_necessary=False,
        )
        options = {"lower": low, "upper": high}
        middle = 0.5 * (low + high)
        root = optx.root_find(
            excess, solver, middle, args=inner, options=options, max_steps=80, throw=False
        )
        return root.value

    return jax.lax.map(one, q, batch_size=64)


def quantile(f: Model, axis: int, q: Numbers, box: BoxLike | None = None) -> Float[Array, "..."]:
    """The t with P(x_axis <= t) = q, by bisection of the closed-form distribution function.

    Differentiable in f by the implicit function theorem. q = 0 and q = 1 give the bounds of the
    box, infinite on R^d.
    """
    if isinstance(f, GaussianBlocks) and box is None:
        blocks, levels = verified(f=f, q=as_floats("q", q))
        return _with_mass(blocks).quantile(axis, levels)
    line, interval, levels = _line_model(f, axis, box, q=as_floats("q", q))
    levels = check_values(levels, (levels >= 0) & (levels <= 1), f"q must lie in [0, 1], got {q}")
    log_mass = positive_mass(line, interval)
    flat = levels.ravel()
    inner = _by_series(line, interval, flat, log_mass)
    if inner is None:
        inner = _on_line(line, interval, lambda num: _quantile(line, flat, interval, log_mass, num))
    inner = inner.reshape(levels.shape)
    low, high = (-jnp.inf, jnp.inf) if interval is None else (interval.lower[0], interval.upper[0])
    return jnp.where(levels == 0, low, jnp.where(levels == 1, high, inner))


@eqx.filter_jit
def _mode(f: PSDModel, room: Box, starts: Float[Array, "n d"], num: int) -> Float[Array, " d"]:
    # The optimiser's tolerances are relative to its objective: a large log_scale would blunt them.
    f = eqx.tree_at(lambda m: m.log_scale, f, jnp.zeros(()))

    # x = center + half_width sin(z) covers the closed box with finite z, so that a maximum on the
    # boundary is an ordinary stationary point of an unconstrained problem.
    def place(z: Float[Array, " d"]) -> Float[Array, " d"]:
        return room.center + room.half_width * jnp.sin(z)

    def log_value(x: Float[Array, " d"]) -> Float[Array, ""]:
        size, log_scale = f._scaled_value(x)
        return jnp.log(size) + log_scale

    heights = jax.lax.map(log_value, starts, batch_size=1024)
    _, best = jax.lax.top_k(heights, num)
    unit = (starts[best] - room.center[None, :]) / room.half_width[None, :]
    guesses = jnp.arcsin(jnp.clip(unit, -0.999, 0.999))

    def climb(z: Float[Array, " d"]) -> Float[Array, " d"]:
        solver = optx.BFGS(rtol=1e-12, atol=1e-12)
        found = optx.minimise(
            lambda z, _: -log_value(place(z)), solver, z, max_steps=256, throw=False
        )
        return place(found.value)

    peaks = jnp.concatenate([jax.vmap(climb)(guesses), starts[best]])
    values = jax.vmap(log_value)(peaks)
    return peaks[jnp.argmax(jnp.where(jnp.isnan(values), -jnp.inf, values))]


def mode(f: Model, box: BoxLike | None = None, *, num_starts: int = 8) -> Float[Array, " d"]:
    """argmax f over the box, by quasi-Newton ascent from the best of many points.

    Starts are the `num_starts` highest of the anchors and of a grid over the box: a peak is missed
    if none of these lies on its flank, or if they all lie on others.
    """
    given, domain = verified_model(f, box)
    f = with_precisions(given)
    room = effective_box(f, domain)
    per_axis = max(2, round(1024 ** (1 / f.dim)))
    unit = jnp.linspace(-0.995, 0.995, per_axis)
    mesh = TensorGrid([unit] * f.dim).points()
    starts = room._place(mesh)
    if isinstance(f, GaussianPSD):
        inside = jnp.clip(expand(f.anchors), room.lower[None, :], room.upper[None, :])
        starts = jnp.concatenate([starts, inside])
    num = min(as_count("num_starts", num_starts), starts.shape[0])
    return _mode(f, room, starts, num)
