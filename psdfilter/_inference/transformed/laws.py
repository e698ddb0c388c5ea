"""Laws of x = b(z) from laws of z: every answer in the user's units."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..._checks import Numbers, as_points, require_finite
from ..._density.psd import AbstractDensity
from ..._gaussian.quadrature import legendre_rule
from ..._statespace.coordinates import Coordinates
from ..laws import AbstractLaws
from ..trace import Moments

# Deviations to each side, and nodes on each axis, of the rule for the moments of one law: a
# Gaussian in log x of deviation 3 has its second moment 6 deviations out.
_REACH, _NODES = 16.0, {1: 800, 2: 120}


class TransformedDensity(AbstractDensity):
    """p(x) = q(b^-1(x)) / |det b'|: zero outside of the support."""

    inner: AbstractDensity
    coordinates: Coordinates

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.coordinates.dim

    def _scaled_value(self, x: Float[Array, " d"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        inside, z = self._inside(x)
        value, scale = self.inner._scaled_value(z)
        return jnp.where(inside, value, 0.0), scale - self.coordinates.log_slope(z)

    def _inside(self, x: Array) -> tuple[Array, Array]:
        """Whether points lie in the support, and their coordinates; of some point if not."""
        inside = self.coordinates.contains(x)
        middle = self.coordinates.to_user(jnp.zeros(self.dim))
        safe = jnp.where(inside[..., None], x, jnp.broadcast_to(middle, x.shape))
        return inside, self.coordinates.from_user(safe)

    def _evaluate(self, x: Numbers, what: str) -> Array:
        points = as_points("x", x, self.dim)
        require_finite("x", points)
        inside, z = self._inside(points)
        if what == "gradient":
            slope = jax.vmap(jax.grad(lambda one: jnp.exp(self._log_at(one))))
            flat = slope(points.reshape(-1, self.dim)).reshape(points.shape)
            return jnp.where(inside[..., None], flat, 0.0)
        logs = self.inner.log_density(z) - self.coordinates.log_slope(z)
        logs = jnp.where(inside, logs, -jnp.inf)
        return logs if what == "log" else jnp.exp(logs)

    def _log_at(self, x: Float[Array, " d"]) -> Float[Array, ""]:
        value, scale = self._scaled_value(x)
        return jnp.log(value) + scale


class TransformedLaws(AbstractLaws):
    """Laws of z, asked in terms of x."""

    inner: AbstractLaws
    coordinates: Coordinates

    def quantiles(self, levels: Float[Array, " k"]) -> Float[Array, "k t d"]:
        """b is increasing: b of the quantiles."""
        return self.coordinates.to_user(self.inner.quantiles(levels))

    def cdfs(self, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
        """Axis by axis; 0 or 1 beyond a wall."""
        axes = self.coordinates.axes
        inside = jnp.stack([axis.contains(x[:, i]) for i, axis in enumerate(axes)], axis=-1)
        middle = self.coordinates.to_user(jnp.zeros(len(axes)))
        z = self.coordinates.from_user(jnp.where(inside, x, middle[None, :]))
        return jnp.where(inside, self.inner.cdfs(z), (x > middle[None, :]).astype(x.dtype))

    def expectations(self, fn: Callable[[Array], Numbers]) -> Array:
        """E fn(b(z_t))."""
        to_user = self.coordinates.to_user
        return self.inner.expectations(lambda z: fn(to_user(z)))

    def tail_shares(
        self, image: Callable[[Array], Numbers], rows: Int[np.ndarray, " k"]
    ) -> Float[np.ndarray, "k d"] | None:
        """Those of image(b(z))."""
        return self.inner.tail_shares(lambda z: image(self.coordinates.to_user(z)), rows)

    def draws(self, key: PRNGKeyArray, num: int) -> Float[Array, "n t d"]:
        """b of draws."""
        return self.coordinates.to_user(self.inner.draws(key, num))

    def density(self, t: int) -> TransformedDensity:
        """With the slope of b."""
        return TransformedDensity(self.inner.density(t), self.coordinates)

    def circles(self) -> dict[int, tuple[float, float]]:
        """Angles are never bent."""
        return self.inner.circles()

    def log_mass(self, t: int) -> Float[Array, ""]:
        """Masses do not change."""
        return self.inner.log_mass(t)


@jax.jit
def _first_two(coordinates: Coordinates, near: Array, z: Float[Array, " d"]) -> Float[Array, " k"]:
    gap = coordinates.to_user(z) - near
    return jnp.concatenate([gap, (gap[:, None] * gap[None, :]).reshape(-1)])


def moments_of(laws: AbstractLaws, coordinates: Coordinates, near: Float[Array, " d"]) -> Moments:
    """Means and covariances of x; `near` is a typical x, from which squares are measured."""
    dim = coordinates.dim
    both = laws.expectations(lambda z: _first_two(coordinates, near, z))
    shift, squares = both[:, :dim], both[:, dim:].reshape(-1, dim, dim)
    return Moments(near[None, :] + shift, squares - shift[:, :, None] * shift[:, None, :])


def moments_of_density(
    density: AbstractDensity,
    moments: tuple[Float[Array, " d"], Float[Array, "d d"]],
    coordinates: Coordinates,
) -> tuple[Float[Array, " d"], Float[Array, "d d"]]:
    """Mean and covariance of x of one law of z, by a rule around its moments."""
    dim = coordinates.dim
    if dim not in _NODES:
        raise ValueError(f"moments of one law with a support need d <= 2, got {dim}")
    mean, deviations = np.asarray(moments[0]), np.sqrt(np.diagonal(np.asarray(moments[1])))
    nodes, weights = legendre_rule(_NODES[dim])
    # Nodes are close in the middle: z = m + reach sd s^3 along each axis.
    grids, masses = [], []
    for i, axis in enumerate(coordinates.axes):
        z = mean[i] + _REACH * deviations[i] * nodes**3
        low, high = (float(end) for end in axis.reach)
        grids.append(np.clip(z, low, high))
        masses.append(np.where((z > low) & (z < high), weights * 3 * nodes**2, 0.0))
    z = np.stack([g.ravel() for g in np.meshgrid(*grids, indexing="ij")], axis=-1)
    flat = np.prod(np.stack(np.meshgrid(*masses, indexing="ij")), axis=0).ravel()
    shares = flat * np.asarray(density(jnp.asarray(z)))
    shares = jnp.asarray(shares / np.sum(shares))
    x = coordinates.to_user(jnp.asarray(z))
    # A rule may reach to where x overflows, with no mass.
    x = jnp.where(shares[:, None] > 0, x, coordinates.to_user(jnp.asarray(mean))[None, :])
    center = shares @ x
    gap = x - center[None, :]
    return center, (gap * shares[:, None]).T @ gap
