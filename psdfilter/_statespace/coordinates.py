"""Coordinates without walls: x = b(z), one increasing map for each axis of the state.

A positive state is filtered in z = log x, one in an interval in z = logit x: densities that end, or
have a pole, at a wall are smooth and light-tailed there.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import Numbers, is_concrete

# Coordinates are kept where x is a number apart from its walls: exp(+-600) is, and so are
# 1 - 2e-16 and, close to zero, exp(-600).
_LOG_REACH = 600.0
_EPS_REACH = 35.0


class AbstractAxis(eqx.Module):
    """x = b(z), increasing, of one coordinate."""

    @abstractmethod
    def to_user(self, z: Array) -> Array:
        """b(z), entry by entry."""

    @abstractmethod
    def from_user(self, x: Array) -> Array:
        """b^-1(x), entry by entry; x may lie on a wall, where this is infinite."""

    @abstractmethod
    def log_slope(self, z: Array) -> Array:
        """log b'(z), entry by entry."""

    @abstractmethod
    def contains(self, x: Array) -> Array:
        """Whether x lies between the walls."""

    @property
    @abstractmethod
    def reach(self) -> tuple[Array | float, Array | float]:
        """Where z may lie so that b(z) is a number that is no wall."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The support, for messages."""


class Real(AbstractAxis):
    """x = z, on the whole line."""

    def to_user(self, z: Array) -> Array:
        """z."""
        return z

    def from_user(self, x: Array) -> Array:
        """x."""
        return x

    def log_slope(self, z: Array) -> Array:
        """Zero."""
        return jnp.zeros_like(z)

    def contains(self, x: Array) -> Array:
        """All numbers."""
        return jnp.isfinite(x)

    @property
    def reach(self) -> tuple[float, float]:
        """No limit."""
        return -np.inf, np.inf

    @property
    def words(self) -> str:
        """For messages."""
        return "the real line"


class Above(AbstractAxis):
    """x = lower + exp(z): positive for lower = 0."""

    lower: Float[Array, ""]

    def to_user(self, z: Array) -> Array:
        """lower + exp(z)."""
        return self.lower + jnp.exp(z)

    def from_user(self, x: Array) -> Array:
        """log(x - lower)."""
        return jnp.log(x - self.lower)

    def log_slope(self, z: Array) -> Array:
        """z."""
        return z

    def contains(self, x: Array) -> Array:
        """x > lower."""
        return x > self.lower

    @property
    def reach(self) -> tuple[Array | float, Array | float]:
        """Above a wall other than zero the floats end sooner."""
        size = jnp.abs(self.lower)
        low = jnp.where(size > 0, jnp.log(jnp.where(size > 0, size, 1.0)) - _EPS_REACH, -_LOG_REACH)
        return low, _LOG_REACH

    @property
    def words(self) -> str:
        """For messages."""
        return f"x > {_shown(self.lower)}"


class Below(AbstractAxis):
    """x = upper - exp(-z)."""

    upper: Float[Array, ""]

    def to_user(self, z: Array) -> Array:
        """upper - exp(-z)."""
        return self.upper - jnp.exp(-z)

    def from_user(self, x: Array) -> Array:
        """-log(upper - x)."""
        return -jnp.log(self.upper - x)

    def log_slope(self, z: Array) -> Array:
        """-z."""
        return -z

    def contains(self, x: Array) -> Array:
        """x < upper."""
        return x < self.upper

    @property
    def reach(self) -> tuple[Array | float, Array | float]:
        """As for `Above`."""
        low, high = Above(self.upper).reach
        return -high, -low

    @property
    def words(self) -> str:
        """For messages."""
        return f"x < {_shown(self.upper)}"


class Between(AbstractAxis):
    """x = lower + (upper - lower) / (1 + exp(-z))."""

    lower: Float[Array, ""]
    upper: Float[Array, ""]

    def to_user(self, z: Array) -> Array:
        """Measured from the nearer wall, so that no digits are lost there."""
        width = self.upper - self.lower
        left, right = (
            self.lower + width * jax.nn.sigmoid(z),
            self.upper - width * jax.nn.sigmoid(-z),
        )
        return jnp.where(z < 0, left, right)

    def from_user(self, x: Array) -> Array:
        """The logit of the share."""
        return jnp.log(x - self.lower) - jnp.log(self.upper - x)

    def log_slope(self, z: Array) -> Array:
        """log(width sigmoid(z) sigmoid(-z))."""
        return jnp.log(self.upper - self.lower) - jax.nn.softplus(z) - jax.nn.softplus(-z)

    def contains(self, x: Array) -> Array:
        """Between the walls."""
        return (x > self.lower) & (x < self.upper)

    @property
    def reach(self) -> tuple[Array | float, Array | float]:
        """As for `Above`, with the width as the unit."""
        width = self.upper - self.lower

        def room(wall: Array) -> Array:
            size = jnp.abs(wall) / width
            safe = jnp.where(size > 0, size, 1.0)
            return jnp.where(size > 0, jnp.log(safe) - _EPS_REACH, -_LOG_REACH)

        return room(self.lower), -room(self.upper)

    @property
    def words(self) -> str:
        """For messages."""
        return f"{_shown(self.lower)} < x < {_shown(self.upper)}"


class Own(AbstractAxis):
    """The user's own increasing map and its inverse; the slope by differentiation."""

    forward: Callable[[Array], Array] = eqx.field(static=True)
    inverse: Callable[[Array], Array] = eqx.field(static=True)

    def to_user(self, z: Array) -> Array:
        """forward(z)."""
        return jnp.asarray(self.forward(z))

    def from_user(self, x: Array) -> Array:
        """inverse(x)."""
        return jnp.asarray(self.inverse(x))

    def log_slope(self, z: Array) -> Array:
        """log forward'(z)."""
        slope = jax.vmap(jax.grad(lambda one: jnp.asarray(self.forward(one)).reshape(())))
        return jnp.log(slope(z.reshape(-1))).reshape(z.shape)

    def contains(self, x: Array) -> Array:
        """Where the inverse is a number."""
        return jnp.isfinite(self.from_user(x))

    @property
    def reach(self) -> tuple[float, float]:
        """Not known."""
        return -_LOG_REACH, _LOG_REACH

    @property
    def words(self) -> str:
        """For messages."""
        return "the image of the bijection"


class Coordinates(eqx.Module):
    """x_l = b_l(z_l) for every axis l."""

    axes: tuple[AbstractAxis, ...]

    @property
    def dim(self) -> int:
        """Number of axes."""
        return len(self.axes)

    def of_dim(self, dim: int) -> "Coordinates":
        """With one axis for each coordinate; a single one is that of all."""
        if len(self.axes) == 1:
            return Coordinates(self.axes * dim)
        if len(self.axes) != dim:
            raise ValueError(
                f"support must have one entry for each of {dim} axes, got {len(self.axes)}"
            )
        return self

    @property
    def is_identity(self) -> bool:
        """Whether nothing has to be done."""
        return all(isinstance(axis, Real) for axis in self.axes)

    def to_user(self, z: Float[Array, "... d"]) -> Float[Array, "... d"]:
        """b(z)."""
        return self._each(z, lambda axis, value: axis.to_user(value))

    def from_user(self, x: Float[Array, "... d"]) -> Float[Array, "... d"]:
        """b^-1(x)."""
        return self._each(x, lambda axis, value: axis.from_user(value))

    def log_slope(self, z: Float[Array, "... d"]) -> Float[Array, "..."]:
        """log |det b'(z)|, a sum over the axes."""
        return jnp.sum(self._each(z, lambda axis, value: axis.log_slope(value)), axis=-1)

    def contains(self, x: Float[Array, "... d"]) -> Array:
        """Whether all coordinates lie between their walls."""
        return jnp.all(self._each(x, lambda axis, value: axis.contains(value)), axis=-1)

    def _each(self, points: Array, fn: Callable[[AbstractAxis, Array], Array]) -> Array:
        array = jnp.asarray(points)
        return jnp.stack([fn(axis, array[..., i]) for i, axis in enumerate(self.axes)], axis=-1)

    @property
    def words(self) -> str:
        """For messages."""
        return ", ".join(axis.words for axis in self.axes)


_WORDS: dict[str, Callable[[], AbstractAxis]] = {
    "real": Real,
    "positive": lambda: Above(jnp.zeros(())),
    "unit": lambda: Between(jnp.zeros(()), jnp.ones(())),
}


def as_axis(support: object) -> AbstractAxis:
    """A word, a pair (lower, upper) with None for no wall, or a bijection."""
    if isinstance(support, AbstractAxis):
        return support
    if isinstance(support, str):
        if support not in _WORDS:
            raise ValueError(
                f'support must be "real", "positive" or "unit", a pair (lower, upper) or a '
                f"bijection with forward and inverse, got {support!r}"
            )
        return _WORDS[support]()
    if isinstance(support, tuple | list) and len(support) == 2:
        return _between(*support)
    forward: Callable[..., Array] | None = getattr(support, "forward", None)
    inverse: Callable[..., Array] | None = getattr(support, "inverse", None)
    if callable(forward) and callable(inverse):
        return _own(forward, inverse)
    raise ValueError(
        'support must be "real", "positive" or "unit", a pair (lower, upper) or a bijection with '
        f"forward and inverse, got {type(support).__name__}"
    )


def as_support(support: object) -> Coordinates | None:
    """One support for all axes, or a list with one for each; None if nothing is said."""
    if support is None or isinstance(support, Coordinates):
        return support
    is_pair = isinstance(support, tuple) and len(support) == 2 and _is_bound(support)
    if isinstance(support, Sequence) and not isinstance(support, str) and not is_pair:
        return Coordinates(tuple(as_axis(one) for one in support))
    return Coordinates((as_axis(support),))


def _is_bound(pair: tuple[object, ...]) -> bool:
    """Whether a pair is (lower, upper), rather than the supports of two axes."""
    return all(one is None or isinstance(one, int | float | np.number | Array) for one in pair)


def _between(lower: Numbers | None, upper: Numbers | None) -> AbstractAxis:
    low = None if lower is None or _is(lower, -np.inf) else jnp.asarray(lower, dtype=jnp.float64)
    high = None if upper is None or _is(upper, np.inf) else jnp.asarray(upper, dtype=jnp.float64)
    for name, wall in (("lower", low), ("upper", high)):
        if wall is not None and wall.ndim > 0:
            raise ValueError(f"the {name} wall of a support must be a number, got {wall.shape}")
    if low is None and high is None:
        return Real()
    if high is None:
        assert low is not None
        return Above(low)
    if low is None:
        return Below(high)
    if is_concrete(low) and is_concrete(high) and not float(low) < float(high):
        raise ValueError(f"a support must have lower < upper, got ({float(low)}, {float(high)})")
    return Between(low, high)


def _is(value: Numbers, number: float) -> bool:
    return isinstance(value, float | int) and float(value) == number


def _own(forward: Callable[..., Array], inverse: Callable[..., Array]) -> Own:
    """Checked at a few points: increasing, and the inverse of one another."""
    z = jnp.linspace(-2.0, 2.0, 9)
    try:
        x = jnp.asarray(forward(z))
        back = jnp.asarray(inverse(x))
    except TypeError as error:
        raise ValueError(f"the bijection of a support failed on numbers: {error}") from error
    if x.shape != z.shape or not bool(jnp.all(jnp.diff(x) > 0)):
        raise ValueError("the bijection of a support must be an increasing function of one number")
    if not bool(jnp.allclose(back, z, atol=1e-6)):
        raise ValueError("inverse must undo forward in the bijection of a support")
    return Own(forward, inverse)


def _shown(value: Array) -> str:
    return f"{float(value):g}" if is_concrete(value) else "?"
