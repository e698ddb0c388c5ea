"""Laws of one short step of a stochastic differential equation: they may lean to one side."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .noise import Noise

# Laws that lean less are known to first order, which leaves 1e-10; quotients keep ten digits.
_UPRIGHT = 1e-5


class Leaning(eqx.Module):
    """m + s (e^{b xi - b^2 / 2} - 1) / y, xi standard normal: of mean m, variance s^2, one sided.

    Attributes:
        mean: m.
        covariance: s^2.
        y: with y^3 + 3 y the skewness; b^2 = log(1 + y^2), of the sign of y.
    """

    mean: Float[Array, " 1"]
    covariance: Float[Array, "1 1"]
    y: Float[Array, ""]

    @staticmethod
    def of(mean: Array, covariance: Array, skewness: Array) -> "Leaning":
        """The law with these three moments."""
        return Leaning(mean, covariance, 2.0 * jnp.sinh(jnp.arcsinh(0.5 * skewness) / 3.0))

    @property
    def _shape(self) -> tuple[Array, Array, Array]:
        """Whether it leans, y and b; any other numbers if it does not."""
        leans = jnp.abs(self.y) >= _UPRIGHT
        y = jnp.where(leans, self.y, _UPRIGHT)
        return leans, y, jnp.sign(y) * jnp.sqrt(jnp.log1p(jnp.square(y)))

    def log_density(self, z: Float[Array, " 1"]) -> Array:
        """log p(z); -inf beyond the end, where p falls to zero with all its derivatives."""
        spread, (leans, y, b) = jnp.sqrt(self.covariance[0, 0]), self._shape
        r = (z - self.mean)[0] / spread
        inside = y * r > -1.0
        grown = jnp.log1p(jnp.where(inside, y * r, 0.0))
        logs = -0.5 * jnp.square(grown / b + 0.5 * b) - grown + jnp.log(y / b)
        upright = -0.5 * jnp.square(r) + 0.5 * self.y * (r**3 - 3 * r)
        logs = jnp.where(leans, jnp.where(inside, logs, -jnp.inf), upright)
        return logs - jnp.log(spread) - 0.5 * np.log(2 * np.pi)

    def draw(self, key: Array) -> Array:
        """One draw."""
        xi, (leans, y, b) = jax.random.normal(key, (1,)), self._shape
        grown = jnp.expm1(b * xi - 0.5 * jnp.square(b)) / y
        upright = xi + 0.5 * self.y * (jnp.square(xi) - 1)
        return self.mean + jnp.sqrt(self.covariance[0]) * jnp.where(leans, grown, upright)


class Upright(eqx.Module):
    """A Gaussian step."""

    mean: Float[Array, " d"]
    covariance: Float[Array, "d d"]

    def log_density(self, z: Float[Array, " d"]) -> Array:
        """log p(z)."""
        return Noise(self.covariance).log_density(z - self.mean)

    def draw(self, key: Array) -> Array:
        """One draw."""
        return self.mean + Noise(self.covariance).draw(key)
