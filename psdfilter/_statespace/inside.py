"""A model in coordinates without walls, as engines see it; users see their own units."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import is_concrete
from .._density.box import Box
from .coordinates import Coordinates
from .functions import AbstractFunction, Inputs, Keywords, Row, Time, call
from .model import StateSpaceModel


class AbstractInside(AbstractFunction):
    """A function of the user's in coordinates x = b(z)."""

    fn: eqx.AbstractVar[AbstractFunction]
    coordinates: eqx.AbstractVar[Coordinates]

    @property
    def keywords(self) -> Keywords:
        """Those of the function."""
        return self.fn.keywords.folded()

    @property
    def wants(self) -> frozenset[str]:
        """Those of the function."""
        return self.fn.wants


class PriorInside(AbstractInside):
    """log p(b(z)) + log b'(z)."""

    fn: AbstractFunction
    coordinates: Coordinates

    def __call__(self, z: Array) -> Array:
        """At one point."""
        return _number(self.fn(self.coordinates.to_user(z))) + self.coordinates.log_slope(z)


class TransitionInside(AbstractInside):
    """log Q(b(v), b(z)) + log b'(z)."""

    fn: AbstractFunction
    coordinates: Coordinates

    def __call__(self, v: Array, z: Array, t: Time = None, inputs: Inputs = None) -> Array:
        """At one pair."""
        u, x = self.coordinates.to_user(v), self.coordinates.to_user(z)
        return _number(call(self.fn, u, x, t=t, inputs=inputs)) + self.coordinates.log_slope(z)


class TransitionAxisInside(AbstractInside):
    """log Q_i(b(v), b_i(z_i)) + log b_i'(z_i)."""

    fn: AbstractFunction
    coordinates: Coordinates

    def __call__(
        self, i: int, v: Array, z_i: Array, t: Time = None, inputs: Inputs = None
    ) -> Array:
        """At one pair."""
        axis = self.coordinates.axes[i]
        value = call(self.fn, i, self.coordinates.to_user(v), axis.to_user(z_i), t=t, inputs=inputs)
        return _number(value) + axis.log_slope(z_i)


class ObservationInside(AbstractInside):
    """log G(b(z), y)."""

    fn: AbstractFunction
    coordinates: Coordinates

    def __call__(self, z: Array, y: Array, t: Time = None, inputs: Inputs = None) -> Array:
        """At one pair."""
        row = _in_user_units(self.coordinates, inputs)
        return call(self.fn, self.coordinates.to_user(z), y, t=t, inputs=row)


class SamplerInside(AbstractInside):
    """Draws of y for b(z)."""

    fn: AbstractFunction
    coordinates: Coordinates

    def __call__(self, key: Array, z: Array, t: Time = None, inputs: Inputs = None) -> Array:
        """One draw."""
        row = _in_user_units(self.coordinates, inputs)
        return call(self.fn, key, self.coordinates.to_user(z), t=t, inputs=row)


def _in_user_units(coordinates: Coordinates, row: Inputs) -> Inputs:
    """A row with the state before in the user's units, if it holds one."""
    if not isinstance(row, Row) or row.u is None:
        return row
    return row._replace(u=coordinates.to_user(jnp.asarray(row.u)))


def _number(value: Array) -> Array:
    array = jnp.asarray(value, dtype=jnp.float64)
    if array.size != 1:
        raise ValueError(
            "a log-density must return one number for one point, got shape "
            f"{array.shape}: write it for a single state x of shape (d,), not for a batch"
        )
    return array.reshape(())


def inside(ssm: StateSpaceModel, far: bool = False) -> StateSpaceModel:
    """The model in coordinates without walls; itself if they are the user's.

    `far`: for engines that choose their nodes at every step; where no walls were given the box is
    then so wide that it cuts nothing off.
    """
    coordinates, wide = ssm.coordinates, far and not ssm.boxed and ssm.structure is None
    chosen = ssm.reach_box if wide and ssm.reach_box is not None else ssm.state_box
    if coordinates.is_identity and chosen is ssm.state_box:
        return ssm
    box = _mapped(coordinates, chosen)
    if coordinates.is_identity:
        return eqx.tree_at(lambda s: (s.state_box, s.reach_box), ssm, (box, None))
    axis_fn, sampler = ssm.log_transition_axis, ssm.sample_observation
    return StateSpaceModel(
        log_prior=PriorInside(ssm.log_prior, coordinates),
        log_transition=TransitionInside(ssm.log_transition, coordinates),
        log_observation=ObservationInside(ssm.log_observation, coordinates),
        state_box=box,
        observation_box=ssm.observation_box,
        log_transition_axis=None if axis_fn is None else TransitionAxisInside(axis_fn, coordinates),
        sample_observation=None if sampler is None else SamplerInside(sampler, coordinates),
        marginalizes_missing=ssm.marginalizes_missing,
        boxed=ssm.boxed,
        reach_box=Box(*_reach(coordinates)),
        counts=ssm.counts,
        seen_axis=ssm.seen_axis,
    )


def _reach(coordinates: Coordinates) -> tuple[Array, Array]:
    ends = [axis.reach for axis in coordinates.axes]
    least = jnp.stack([jnp.asarray(a, dtype=jnp.float64) for a, _ in ends])
    return least, jnp.stack([jnp.asarray(b, dtype=jnp.float64) for _, b in ends])


def _mapped(coordinates: Coordinates, box: Box) -> Box:
    """A box in these coordinates, within their reach."""
    if coordinates.is_identity:
        return box
    low, high = coordinates.from_user(box.lower), coordinates.from_user(box.upper)
    if is_concrete(low) and is_concrete(high):
        ends = np.concatenate([np.asarray(low), np.asarray(high)])
        if np.isnan(ends).any():
            raise ValueError(
                f"state_box must lie in the support of the state, {coordinates.words}, got "
                f"{np.asarray(box.lower)} to {np.asarray(box.upper)}"
            )
    least, most = _reach(coordinates)
    return Box(jnp.maximum(low, least), jnp.minimum(high, most))
