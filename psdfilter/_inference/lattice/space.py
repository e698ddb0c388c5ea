"""Where the state of a model lives, axis by axis, and rules on windows of it."""

from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from ..._statespace.model import StateSpaceModel
from ..._statespace.regimes import is_boxed
from .rules import Rule, curtis_rule, even_rule

# Outermost nodes of a window, and what may lie beyond them over what they hold.
_OUTER, _BEYOND = 2, 10.0


class Window(NamedTuple):
    """A box of nodes; on a circle it may reach past the ends of the state's own box."""

    lower: Float[Array, " d"]
    upper: Float[Array, " d"]


class Space(eqx.Module):
    """Lines, intervals between walls, and circles.

    Attributes:
        lower: of the state's box.
        upper: likewise.
        kinds: "line", "walls" or "circle" of every axis.
    """

    lower: Float[Array, " d"]
    upper: Float[Array, " d"]
    kinds: tuple[str, ...] = eqx.field(static=True)

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return len(self.kinds)

    @property
    def period(self) -> Float[Array, " d"]:
        """Of circles; of others the width of the box."""
        return self.upper - self.lower

    def is_kind(self, kind: str) -> Bool[np.ndarray, " d"]:
        """The axes of a kind."""
        return np.asarray([k == kind for k in self.kinds])

    def rules(self, num: int) -> tuple[Rule, ...]:
        """One for each axis, of `num` nodes or one more."""
        return tuple(curtis_rule(num) if k == "walls" else even_rule(num) for k in self.kinds)

    def wrapped(self, x: Float[Array, "n d"]) -> Float[Array, "n d"]:
        """Points with angles inside of the box, as the functions of the model take them."""
        if "circle" not in self.kinds:
            return x
        turns = jnp.floor((x - self.lower[None, :]) / self.period[None, :])
        moved = x - turns * self.period[None, :]
        return jnp.where(jnp.asarray(self.is_kind("circle"))[None, :], moved, x)

    def whole(self, window: Window) -> Bool[Array, " d"]:
        """Axes on which a window is all there is of a circle."""
        full = (window.upper - window.lower) >= (1 - 1e-9) * self.period
        return full & jnp.asarray(self.is_kind("circle"))


def space_of(ssm: StateSpaceModel) -> Space:
    """A box that was given has walls; one that was only simulated cuts nothing."""
    box = ssm.state_box
    models = (ssm,) if ssm.regimes is None else ssm.regimes.models
    walls = "walls" if any(is_boxed(model) for model in models) else "line"
    kinds = tuple("circle" if a in box.periodic else walls for a in range(box.dim))
    return Space(box.lower, box.upper, kinds)


class Grid(NamedTuple):
    """The nodes of a window, flat, the last axis fastest."""

    nodes: Float[Array, "n d"]
    log_weights: Float[Array, " n"]
    half: Float[Array, " n"]  # weights of coarser rules, over those of this one
    quarter: Float[Array, " n"]
    ends: Float[Array, " n"]  # mass that may lie beyond the window, over that of each node


def grid_of(space: Space, window: Window, num: int) -> Grid:
    """`num` nodes on every axis of a window."""
    rules = space.rules(num)
    width = window.upper - window.lower
    mesh = np.meshgrid(*(rule.nodes for rule in rules), indexing="ij")
    unit = jnp.asarray(np.stack([m.ravel() for m in mesh], axis=-1))
    weights = _outer([rule.weights for rule in rules])
    return Grid(
        window.lower[None, :] + width[None, :] * unit,
        jnp.asarray(np.log(weights)) + jnp.sum(jnp.log(width)),
        jnp.asarray(_outer([rule.half for rule in rules])),
        jnp.asarray(_outer([rule.quarter for rule in rules])),
        _ends(space, window, [len(rule.nodes) for rule in rules]),
    )


def _outer(factors: list[np.ndarray]) -> np.ndarray:
    out = np.ones(1)
    for factor in factors:
        out = np.multiply.outer(out, factor).ravel()
    return out


def _ends(space: Space, window: Window, counts: list[int]) -> Float[Array, " n"]:
    """Nothing lies beyond walls, nor beyond a whole circle."""
    tiny = 1e-9 * space.period
    walls = jnp.asarray(space.is_kind("walls"))
    whole = space.whole(window)
    left = jnp.where(walls, window.lower > space.lower + tiny, ~whole)
    right = jnp.where(walls, window.upper < space.upper - tiny, ~whole)
    total = jnp.zeros((1,) * len(counts))
    for axis, count in enumerate(counts):
        index = np.arange(count)
        first, last = jnp.asarray(index < _OUTER), jnp.asarray(index >= count - _OUTER)
        share = _BEYOND * ((first & left[axis]) | (last & right[axis])).astype(jnp.float64)
        shape = tuple(count if a == axis else 1 for a in range(len(counts)))
        total = jnp.broadcast_to(total, counts if axis else (count,) + (1,) * (len(counts) - 1))
        total = total + share.reshape(shape)
    return jnp.broadcast_to(total, tuple(counts)).ravel()
