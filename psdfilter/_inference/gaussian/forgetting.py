"""What is left of earlier errors after a step: a filter forgets as fast as its gains say.

An error of the law is looked at as a shift of its mean, in units of its covariance P = L L'. A
transition with slope F and Bayes' rule take a shift d to P'' P'^{-1} F d, P' and P'' being the
covariances before and after the observation. In coordinates z = L^{-1} d that is
(L'^{-1} L'')' L'^{-1} F L, whose norm is at most one: shifts in directions that are seen shrink,
the others stay. Errors of different steps are taken for independent: their squares add up.

A shift d of the mean changes log p at z by z'd: where an observation lies r deviations from what
was expected, its likelihood is off by r times as much as the law.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._gaussian.small import forward_solve, semidefinite_cholesky

# int |p - q| is at most this.
_MOST = 2.0


class Carried(NamedTuple):
    """The accumulated error, as a covariance of shifts z in units of the law."""

    mean: Float[Array, " d"]  # of the law that it is an error of
    root: Float[Array, "d d"]  # L of that law
    form: Float[Array, "d d"]

    @property
    def size(self) -> Float[Array, ""]:
        """Total variation."""
        return jnp.minimum(_length(self.form), _MOST)

    def likelihood_error(self, mean: Float[Array, " d"]) -> Float[Array, ""]:
        """Error of the likelihood of an observation that moves the mean to this one."""
        far = forward_solve(self.root, mean - self.mean)
        return jnp.minimum(jnp.sqrt(jnp.maximum(far @ self.form @ far, 0.0)), _MOST)


# Mean and covariance of a law.
Moments = tuple[Float[Array, " d"], Float[Array, "d d"]]


def no_error(law: Moments) -> Carried:
    """Of the prior."""
    mean, covariance = law
    return Carried(mean, semidefinite_cholesky(covariance), jnp.zeros(covariance.shape))


def transitioned(carried: Carried, moved: Float[Array, "d d"], law: Moments) -> Carried:
    """After a transition: `moved` is F L, the law that of the prediction."""
    mean, covariance = law
    root = semidefinite_cholesky(covariance)
    return _mapped(carried, forward_solve(root, moved), mean, root)


def conditioned(carried: Carried, law: Moments) -> Carried:
    """After an observation, which leaves this law."""
    mean, covariance = law
    root = semidefinite_cholesky(covariance)
    return _mapped(carried, forward_solve(carried.root, root).T, mean, root)


def increased(carried: Carried, error: Float[Array, ""]) -> Carried:
    """With the error of a step, in whatever direction it is."""
    ball = jnp.square(jnp.minimum(error, _MOST)) * jnp.eye(carried.form.shape[0])
    return carried._replace(form=carried.form + ball)


def _mapped(carried: Carried, matrix: Array, mean: Array, root: Array) -> Carried:
    # Shifts between modes may grow in units of a law that has lost one of them; an error does not.
    form = matrix @ carried.form @ matrix.T
    before, after = _length(carried.form), _length(form)
    shrink = jnp.where(after > before, before / jnp.where(after > 0, after, 1.0), 1.0)
    return Carried(mean, root, form * jnp.square(shrink))


def _length(form: Array) -> Array:
    """The longest half-axis."""
    return jnp.sqrt(jnp.maximum(jnp.linalg.eigvalsh(form)[-1], 0.0))
