"""Laws of the observations under laws of the state: p(y) = int G(x, y) p(x) dx, by quadrature."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._density.box import Box
from ..._gaussian.quadrature import legendre_rule
from ..numerics.observed import NUM_NODES, GridLaws, observation_grid
from .compress import SquareSum
from .observation import AbstractObservation
from .step import StepSizes, rule_for

# Nodes on each side of what was seen.
_SIDE = 128


def box_of(observation: AbstractObservation, what: str) -> Box:
    """The box of y, or an error that asks for it."""
    box = observation.box
    if box is None:
        raise ValueError(
            f"{what} needs observation_box: say where y lives, "
            "StateSpaceModel(..., observation_box=psdfilter.Box(lower, upper))"
        )
    if box.dim not in NUM_NODES:
        raise ValueError(
            f"{what} is a quadrature in at most {max(NUM_NODES)} observed coordinates, got "
            f"{box.dim}"
        )
    return box


def observation_laws(
    observation: AbstractObservation, laws: SquareSum, sizes: StepSizes
) -> GridLaws:
    """The laws of y for stacked laws of x."""
    box = box_of(observation, "the law of y")
    nodes, _ = observation_grid(box)
    return GridLaws.of(box, _values(observation, laws, nodes, sizes))


def _table(
    observation: AbstractObservation, x: Float[Array, "n d"], ys: Float[Array, "k p"]
) -> Float[Array, "n k"]:
    """G(x_i, y_j)."""
    return jnp.exp(jax.vmap(lambda y: observation.logs(x, y), out_axes=1)(ys))


@eqx.filter_jit
def _values(
    observation: AbstractObservation, laws: SquareSum, ys: Array, sizes: StepSizes
) -> Float[Array, "t k"]:
    def one(law: SquareSum) -> Float[Array, " k"]:
        rule = rule_for(law, sizes)
        return (rule.weights * law(rule.nodes)) @ _table(observation, rule.nodes, ys)

    return jax.lax.map(one, laws)


def transforms(
    observation: AbstractObservation, laws: SquareSum, ys: Float[Array, "t p"], sizes: StepSizes
) -> Float[Array, " t"]:
    """P(Y_t <= y_t) for laws of x_t that have not seen y_t; NaN where it is missing."""
    box = box_of(observation, "the probability transform")
    if box.dim != 1:
        raise ValueError(f"the probability transform needs a scalar y, got {box.dim} coordinates")
    return _transforms(observation, box, laws, ys[:, 0], sizes)


@eqx.filter_jit
def _transforms(
    observation: AbstractObservation, box: Box, laws: SquareSum, ys: Array, sizes: StepSizes
) -> Float[Array, " t"]:
    z, w = (jnp.asarray(part) for part in legendre_rule(_SIDE))

    def one(at: tuple[SquareSum, Array]) -> Float[Array, ""]:
        law, y = at
        rule = rule_for(law, sizes)
        shares = rule.weights * law(rule.nodes)

        def mass(low: Array, high: Array) -> Array:
            nodes = 0.5 * (low + high) + 0.5 * (high - low) * z
            table = _table(observation, rule.nodes, nodes[:, None])
            return 0.5 * (high - low) * (shares @ table @ w)

        middle = jnp.clip(y, box.lower[0], box.upper[0])
        below, above = mass(box.lower[0], middle), mass(middle, box.upper[0])
        return jnp.where(jnp.isnan(y), jnp.nan, below / (below + above))

    return jax.lax.map(one, (laws, ys))
