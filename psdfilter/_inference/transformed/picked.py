"""Some of the laws of several times: those at the ends of steps that were made of sub-steps."""

from collections.abc import Callable

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..._checks import Numbers
from ..._density.psd import AbstractDensity
from ..laws import AbstractLaws
from ..numerics.observed import AbstractObservedLaws


class PickedLaws(AbstractLaws):
    """Laws at some of the times of others."""

    inner: AbstractLaws
    ends: tuple[int, ...] = eqx.field(static=True)

    @property
    def _at(self) -> np.ndarray:
        return np.array(self.ends)

    def quantiles(self, levels: Float[Array, " k"]) -> Float[Array, "k t d"]:
        """Those of the others."""
        return self.inner.quantiles(levels)[:, self._at]

    def cdfs(self, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
        """Those of the others."""
        num = self.ends[-1] + 1
        every = jnp.zeros((num, x.shape[1])).at[self._at].set(x)
        return self.inner.cdfs(every)[self._at]

    def expectations(self, fn: Callable[[Array], Numbers]) -> Array:
        """Those of the others."""
        return self.inner.expectations(fn)[self._at]

    def tail_shares(
        self, image: Callable[[Array], Numbers], rows: Int[np.ndarray, " k"]
    ) -> Float[np.ndarray, "k d"] | None:
        """Those of the others."""
        return self.inner.tail_shares(image, self._at[rows])

    def draws(self, key: PRNGKeyArray, num: int) -> Float[Array, "n t d"]:
        """Those of the others."""
        return self.inner.draws(key, num)[:, self._at]

    def density(self, t: int) -> AbstractDensity:
        """That of the other."""
        return self.inner.density(self.ends[t])

    def circles(self) -> dict[int, tuple[float, float]]:
        """Those of the others."""
        return self.inner.circles()


class PickedSeen(AbstractObservedLaws):
    """The same for laws of y."""

    picked: PickedLaws
    mean: Float[Array, "k p"]
    covariance: Float[Array, "k p p"]
    leak: Float[Array, " k"]

    @staticmethod
    def of(laws: AbstractObservedLaws, ends: tuple[int, ...]) -> "PickedSeen":
        """At these ends."""
        at = np.array(ends)
        picked = PickedLaws(laws, ends)
        return PickedSeen(
            picked=picked,
            mean=laws.mean[at],
            covariance=laws.covariance[at],
            leak=laws.leak[at],
        )

    def quantiles(self, levels: Float[Array, " k"]) -> Float[Array, "k t p"]:
        """Those of the others."""
        return self.picked.quantiles(levels)

    def cdfs(self, x: Float[Array, "t p"]) -> Float[Array, "t p"]:
        """Those of the others."""
        return self.picked.cdfs(x)

    def expectations(self, fn: Callable[[Array], Numbers]) -> Array:
        """Those of the others."""
        return self.picked.expectations(fn)

    def draws(self, key: PRNGKeyArray, num: int) -> Float[Array, "n t p"]:
        """Those of the others."""
        return self.picked.draws(key, num)

    def density(self, t: int) -> AbstractDensity:
        """That of the other."""
        return self.picked.density(t)
