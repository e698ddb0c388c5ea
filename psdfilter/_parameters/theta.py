"""Parameters as a flat vector: names for tables, bounds, and coordinates without bounds."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, PyTree

from .._checks import require_x64

Theta = PyTree  # any pytree of numbers: a number, an array, a dict of them ...
Bounds = Mapping[str, tuple[float | None, float | None]]


def as_theta(name: str, theta: Theta) -> Theta:
    """The same pytree with float64 arrays for leaves, so that no value becomes a constant."""
    require_x64()
    leaves = jax.tree.leaves(theta)
    if not leaves:
        raise ValueError(f"{name} must hold at least one number, got {theta!r}")
    try:
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype=jnp.float64), theta)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{name} must be a pytree of numbers, for example a dict of them, got {theta!r}"
        ) from error


def names_of(theta: Theta) -> tuple[str, ...]:
    """One name for each number of `theta`: `phi`, `scale[0]`, `noise.q` ..."""
    names = []
    for path, leaf in jax.tree_util.tree_leaves_with_path(theta):
        base = "".join(_step(entry) for entry in path).lstrip(".") or "theta"
        shape = np.shape(leaf)
        if shape == ():
            names.append(base)
        else:
            names += [f"{base}[{','.join(map(str, index))}]" for index in np.ndindex(*shape)]
    return tuple(names)


def _step(entry: Any) -> str:
    if hasattr(entry, "idx"):
        return f"[{entry.idx}]"
    return f".{entry.key if hasattr(entry, 'key') else entry.name}"


class Coordinates(eqx.Module):
    """theta <-> free coordinates z in R^p, one for each number, by its bounds.

        no bound    theta = z
        one         theta = a + e^z, or b - e^{-z}
        both        theta = a + (b - a) / (1 + e^{-z})

    Elementwise, so that the Jacobian is a diagonal.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    lower: tuple[float, ...] = eqx.field(static=True)
    upper: tuple[float, ...] = eqx.field(static=True)
    unravel: Callable[[Array], Theta] = eqx.field(static=True)

    @staticmethod
    def of(theta: Theta, bounds: Bounds | None) -> "Coordinates":
        """Coordinates around `theta`, which has to lie inside its bounds."""
        vector, _ = ravel_pytree(theta)
        names = names_of(theta)
        lower, upper = np.full(len(names), -np.inf), np.full(len(names), np.inf)
        for key, pair in (bounds or {}).items():
            inside = (f"{key}[", f"{key}.")
            at = [i for i, name in enumerate(names) if name == key or name.startswith(inside)]
            if not at:
                raise ValueError(
                    f"bounds names {key!r}, which theta does not have: it has {', '.join(names)}"
                )
            low, high = _pair(key, pair)
            lower[at], upper[at] = low, high
        for name, value, low, high in zip(names, np.asarray(vector), lower, upper, strict=True):
            if not low < value < high:
                raise ValueError(
                    f"theta must lie inside its bounds, but {name} = {value:.6g} is not in "
                    f"({low:.6g}, {high:.6g})"
                )
        return Coordinates(names, tuple(lower.tolist()), tuple(upper.tolist()), _Unravel(theta))

    @property
    def dim(self) -> int:
        """Number of parameters."""
        return len(self.names)

    def flatten(self, theta: Theta) -> Float[Array, " p"]:
        """The numbers of theta, one after the other."""
        return ravel_pytree(theta)[0]

    def to_free(self, theta: Theta) -> Float[Array, " p"]:
        """z of theta."""
        x = self.flatten(theta)
        a, b = jnp.asarray(self.lower), jnp.asarray(self.upper)
        has_a, has_b = jnp.isfinite(a), jnp.isfinite(b)
        from_a = jnp.log(jnp.where(has_a, x - a, 1.0))
        from_b = jnp.log(jnp.where(has_b, b - x, 1.0))
        free = jnp.where(has_a & has_b, from_a - from_b, jnp.where(has_a, from_a, x))
        return jnp.where(has_b & ~has_a, -from_b, free)

    def natural(self, free: Float[Array, " p"]) -> Float[Array, " p"]:
        """The numbers of theta at z."""
        a, b = jnp.asarray(self.lower), jnp.asarray(self.upper)
        has_a, has_b = jnp.isfinite(a), jnp.isfinite(b)
        low, high = jnp.where(has_a, a, 0.0), jnp.where(has_b, b, 0.0)
        both = low + (high - low) * jax.nn.sigmoid(free)
        above = low + jnp.exp(jnp.where(has_a & ~has_b, free, 0.0))
        below = high - jnp.exp(jnp.where(has_b & ~has_a, -free, 0.0))
        one = jnp.where(has_a, above, jnp.where(has_b, below, free))
        return jnp.where(has_a & has_b, both, one)

    def to_theta(self, free: Float[Array, " p"]) -> Theta:
        """theta of z."""
        return self.unravel(self.natural(free))

    def jacobian(self, free: Float[Array, " p"]) -> Float[Array, " p"]:
        """d theta / d z, a diagonal."""
        return jax.jvp(self.natural, (free,), (jnp.ones_like(free),))[1]

    def log_jacobian(self, free: Float[Array, " p"]) -> Float[Array, ""]:
        """log |d theta / d z|: what a density in theta gains when it is written in z."""
        return jnp.sum(jnp.log(self.jacobian(free)))


class _Unravel:
    """The inverse of `ravel_pytree`, equal to another if it makes the same tree.

    Programmes compiled for one fit serve the next only if their static parts are equal.
    """

    def __init__(self, theta: Theta):
        leaves, self._tree = jax.tree.flatten(theta)
        self._shapes = tuple(np.shape(leaf) for leaf in leaves)

    def __call__(self, vector: Float[Array, " p"]) -> Theta:
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes])[:-1].tolist()
        parts = jnp.split(vector, ends)
        leaves = [part.reshape(s) for part, s in zip(parts, self._shapes, strict=True)]
        return jax.tree.unflatten(self._tree, leaves)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Unravel) and (self._tree, self._shapes) == (
            other._tree,
            other._shapes,
        )

    def __hash__(self) -> int:
        return hash((self._tree, self._shapes))


def _pair(key: str, pair: Sequence[float | None]) -> tuple[float, float]:
    try:
        low, high = pair
        low = -np.inf if low is None else float(low)
        high = np.inf if high is None else float(high)
    except (TypeError, ValueError):
        raise ValueError(
            f"bounds[{key!r}] must be a pair (lower, upper) with None for no bound, got {pair!r}"
        ) from None
    if not low < high:
        raise ValueError(f"bounds[{key!r}] must have lower < upper, got {pair!r}")
    return low, high
