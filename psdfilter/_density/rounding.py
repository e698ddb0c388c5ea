"""How many digits a signed sum has left, and which of two routes to take.

A closed form adds up terms of both signs: with coefficients a it is right to u |a|_1^2 at best
(u = 1.1e-16), and nothing in its result tells. The sum of the absolute values of the same terms
tells, and costs next to nothing beside the exponentials that both sums share:

    relative error  ~  C u  sum |terms| / sum terms.

Squares at quadrature nodes with positive weights (`squares.py`) lose only the digits of evaluation,
C u sqrt(sum |terms| / sum terms): half as many. They are taken from `SWITCH` on. Where nodes cannot
be had, or do not help, a result of fewer than six digits is refused.
"""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from .._checks import is_concrete
from .box import Box

# Errors of exp and of the error functions are 1 to 2 u, those of the sums a few u: measured errors
# of the fuzz in tests/density/test_rounding.py stay below these estimates.
UNIT = 4 * float(np.finfo(np.float64).eps)
# Above this estimate the squares are taken: closed forms keep the eleven digits that tests ask of
# algebraic laws, and well-conditioned models never pay for nodes.
SWITCH = 1e-11
LIMIT = 1e-6

# Nodes in all, and numbers in the table of nodes by anchors (512 MiB), beyond which nodes are not
# had; nodes on each axis where sizes have to be chosen before the numbers are known.
_MAX_NODES, _MAX_ENTRIES = 2**17, 2**26
_TRACED_NODES = {1: 256, 2: 64, 3: 20}
# Counts are multiples of these, so that few programs are compiled.
_STEP = {1: 32, 2: 16, 3: 8}
# Beyond this many products of pairs (a quarter of a second) a closed form is not tried if there are
# nodes: they are many times cheaper.
COSTLY = 4e6


class Plan(NamedTuple):
    """A tensor rule: its box, its static sizes, and whether it is fine enough."""

    room: Box
    counts: tuple[int, ...]
    adequate: Bool[Array, ""] | np.bool_


def plan_nodes(
    room: Box, kappa: Float[Array, " d"], outside: Float[Array, " d"], width: int
) -> Plan | None:
    """Nodes for sums of bumps exp(-kappa (t - m)^2) whose coefficients may reach 1e8.

    With b = sqrt(kappa) h on a half-width h, the Chebyshev coefficients of a bump fall like
    exp(-n^2 / b^2), and n Gauss-Legendre nodes are exact up to the n-th: 1e-32, which cancellation
    may magnify by 1e16, needs n = 8.6 b. A bump centred `outside` the interval by D is an
    exponential of rate R = 2 kappa D h there, with coefficients exp(-2 n^2 / R): n = 6 sqrt(R).
    None in more than three coordinates or where the table (nodes by `width`) would be too large.
    """
    if room.dim > 3:
        return None
    half = room.half_width
    needed = 12 + 8.6 * jnp.sqrt(kappa) * half + 6 * jnp.sqrt(2 * kappa * outside * half)
    if is_concrete(needed):
        values = np.asarray(needed)
        if not np.isfinite(values).all():
            return None
        step = _STEP[room.dim]
        counts = tuple(int(step * np.ceil(min(n, 1e9) / step)) for n in values)
        adequate = np.True_
    else:
        counts = (_TRACED_NODES[room.dim],) * room.dim
        adequate = jnp.all(needed <= counts[0])
    total = int(np.prod(counts, dtype=object))
    if total > _MAX_NODES or total * width > _MAX_ENTRIES:
        return None
    return Plan(room, counts, adequate)


def relative_error(signed: Array, absolute: Array) -> Array:
    """C u |terms| / terms: infinite if nothing but rounding is left, zero if there was nothing."""
    positive = signed > 0
    error = UNIT * absolute / jnp.where(positive, signed, 1.0)
    error = jnp.where(positive, error, jnp.where(absolute > 0, jnp.inf, 0.0))
    return jnp.where(jnp.isnan(signed), jnp.nan, error)


R = TypeVar("R")


def settle(
    closed: Callable[[], tuple[R, Array]],
    squares: Callable[[Plan], tuple[R, Array]],
    make_plan: Callable[[], Plan | None],
    costly: bool = False,
) -> tuple[R, Array]:
    """A result and the estimate of its relative error, by the route that keeps its digits.

    Decided now if the numbers can be looked at, and then nodes are planned only where they are
    needed; else in the compiled program. `costly` says that the closed form is to be avoided if
    nodes are fine enough, whatever digits it has.
    """
    if costly:
        plan = make_plan()
        if plan is None:
            return closed()
        if is_concrete(plan.adequate):
            return squares(plan)
        return jax.lax.cond(plan.adequate, lambda: squares(plan), closed)
    value, error = closed()
    worse = jax.lax.stop_gradient(error) > SWITCH
    if is_concrete(worse) and not bool(worse):
        return value, error
    plan = make_plan()
    if plan is None:
        return value, error
    worse = worse & plan.adequate
    if is_concrete(worse):
        return squares(plan) if bool(worse) else (value, error)
    return jax.lax.cond(worse, lambda: squares(plan), lambda: (value, error))


def _text(digits: int, what: str) -> str:
    left = "no digit" if digits == 0 else f"about {digits} digit{'s' if digits > 1 else ''}"
    return (
        f"{what} has {left} left in float64: its terms cancel, because coefficients are large "
        "against the values of the model, and quadrature nodes, which would not cancel, cannot be "
        "had here (more than three coordinates, kernels too narrow for the box, sizes unknown "
        "under jit) or do not help. Fit with a larger ridge, with grid anchors, or with a "
        "larger precision, so that |a|_1 is smaller"
    )


def require_digits(value: Array, error: Array, what: str) -> Array:
    """`value`, unless fewer than six digits are left: then an error that says how many."""
    error = jax.lax.stop_gradient(error)
    if is_concrete(error):
        size = float(error)
        if size > LIMIT:
            raise ValueError(_text(int(max(0.0, -np.log10(max(size, 1e-300)))), what))
        return value
    digits = jnp.clip(-jnp.log10(jnp.maximum(error, 1e-300)), 0.0, 6.0).astype(int)
    messages = [_text(n, what) for n in range(7)]
    return eqx.branched_error_if(value, error > LIMIT, digits, messages)
