"""Normal distributions recognised: models given by them get the structure that engines use."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from .distributions import AbstractOfLaw, Distribution, is_product, size_of_law
from .functions import AbstractFunction, Inputs, Row, Time, call


def gaussian_of(law: Distribution) -> tuple[Array, Array] | None:
    """Mean (d,) and covariance (d, d) of a normal distribution; None for another."""
    if isinstance(law, tuple | list):
        each = [gaussian_of(part) for part in law]
        if any(one is None for one in each):
            return None
        found = [one for one in each if one is not None]
        mean = jnp.concatenate([one[0] for one in found])
        return mean, jnp.diag(jnp.concatenate([one[1].reshape(-1) for one in found]))
    base = getattr(law, "base_dist", None)
    if base is not None and type(law).__name__ == "Independent" and is_product(base):
        return gaussian_of(base)
    name = type(law).__name__
    if name not in ("Normal", "MultivariateNormal"):
        return None
    dim = size_of_law("the law", law)
    mean = jnp.broadcast_to(jnp.asarray(law.loc, dtype=jnp.float64).reshape(-1), (dim,))
    if name == "Normal":
        scale = jnp.asarray(law.scale, dtype=jnp.float64).reshape(-1)
        return mean, jnp.diag(jnp.broadcast_to(jnp.square(scale), (dim,)))
    return mean, jnp.asarray(law.covariance_matrix, dtype=jnp.float64).reshape(dim, dim)


class LawMean(AbstractOfLaw):
    """The mean of law(x), a normal distribution."""

    law: AbstractFunction

    def __call__(self, x: Array, t: Time = None, inputs: Inputs = None) -> Array:
        """At one point."""
        found = gaussian_of(call(self.law, x, t=t, inputs=inputs))
        assert found is not None
        return found[0]


def additive_parts(fn: AbstractFunction, x: Array, row: Row) -> tuple[LawMean, Array] | None:
    """The mean as a function, and the covariance, of normal laws whose covariance is constant."""
    law = call(fn, x, t=1, inputs=row)
    if gaussian_of(law) is None:
        return None

    def covariance(at: Any) -> Array:
        point, t, rows = at
        found = gaussian_of(call(fn, point, t=t, inputs=rows))
        assert found is not None
        return found[1]

    dynamic, static = eqx.partition((x, jnp.asarray(1), row), eqx.is_array_like)
    arrays = jax.tree.map(jnp.asarray, dynamic)
    jaxpr = jax.make_jaxpr(lambda leaves: covariance(eqx.combine(leaves, static)))(arrays).jaxpr
    if _depends(jaxpr):
        return None
    found = gaussian_of(law)
    assert found is not None
    return LawMean(fn), found[1]


def _depends(jaxpr: Any) -> bool:
    """Whether an output of a traced function may depend on its arguments."""
    reached = set(jaxpr.invars)
    for equation in jaxpr.eqns:
        if any(_is_variable(v) and v in reached for v in equation.invars):
            reached |= set(equation.outvars)
    return any(_is_variable(v) and v in reached for v in jaxpr.outvars)


def _is_variable(value: object) -> bool:
    return not hasattr(value, "val")  # a literal number has one
