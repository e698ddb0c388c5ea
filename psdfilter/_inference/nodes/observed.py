"""Laws of the observations: what the filter expected to see.

p(y) = int G(x, y) p(x) dx for a density of the state at quadrature nodes. A G learned jointly over
(x, y) makes this a PSD model in y, with closed forms (joint.py). Otherwise integrals over y are
Gauss-Legendre quadratures over `observation_box`, where G has to live.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..._checks import is_traced
from ..._density.psd import GaussianPSD
from ..._gaussian.quadrature import legendre_rule
from ..._statespace.model import Inputs, log_observation_grid, observation_box
from ..numerics.observed import AbstractObservedLaws, GridLaws, observation_grid
from ..numerics.seen import laws_of_y
from .filtered import FilteredLaws
from .laws import AbstractNodeLaws
from .refine import FineNodes, fine_nodes

# Nodes on each side of what was seen.
_SIDE = 128


def observation_laws(
    laws: AbstractNodeLaws, steps: Int[Array, " k"], rows: Inputs
) -> AbstractObservedLaws:
    """The laws of y for laws of x at the same steps."""
    model = laws.model
    fine = fine_nodes(model)
    if model.joint is None and not is_traced((laws, steps, rows)):
        x, weights = np.asarray(fine.points(model)), np.asarray(fine.flat_weights())
        shares = np.asarray(laws.values_on(fine)) * weights[None, :]
        each = [(x, np.maximum(share, 0.0)) for share in shares]
        if (found := laws_of_y(model.ssm, each, steps, rows)) is not None:
            return found
    box = observation_box(model.ssm, "the law of y")
    nodes, _ = observation_grid(box)
    points, shares = fine.points(model), laws.values_on(fine) * fine.flat_weights()[None, :]
    if model.joint is not None:
        table = model.joint.tabulate(model.plan, fine.nodes)
        return GridLaws.of(box, shares @ model.joint.values(table, nodes))

    def one(share: Array, t: Array, row: Inputs) -> Array:
        return share @ jnp.exp(log_observation_grid(model.ssm, points, nodes, t, row))

    if model.ssm.vectorized:
        values = jnp.stack([one(s, t, None) for s, t in zip(shares, steps, strict=True)])
    else:
        values = jax.lax.map(lambda a: one(*a), (shares, steps, rows))
    return GridLaws.of(box, values)


def probability_transforms(predicted: FilteredLaws) -> Float[Array, " t"]:
    """PIT: P(Y_t <= y_t | y before t), uniform if the model is right; NaN where y_t is missing."""
    model, series = predicted.model, predicted.series
    if model.joint is None and not is_traced(predicted) and series.ys.shape[1] == 1:
        laws = observation_laws(predicted, series.steps, series.rows)
        seen = jnp.asarray(series.ys)
        levels = laws.cdfs(jnp.where(jnp.isnan(seen), laws.mean, seen))[:, 0]
        return jnp.where(jnp.isnan(seen[:, 0]), jnp.nan, levels)
    ssm, box = model.ssm, observation_box(model.ssm, "the probability transform")
    if box.dim != 1 or series.ys.shape[1] != 1:
        raise ValueError(
            f"the probability transform needs a scalar y, got {series.ys.shape[1]} coordinates"
        )
    ys = jnp.asarray(series.ys[:, 0])
    if model.joint is not None:
        levels = _joint_transforms(predicted, jnp.where(jnp.isnan(ys), box.center[0], ys))
        return jnp.where(jnp.isnan(ys), jnp.nan, levels)
    fine = fine_nodes(model)
    shares = predicted.values_on(fine) * fine.flat_weights()[None, :]
    points = fine.points(model)
    z, w = (jnp.asarray(a) for a in legendre_rule(_SIDE))
    low, high = box.lower[0], box.upper[0]

    def mass(share: Array, a: Array, b: Array, t: Array, row: Inputs) -> Array:
        nodes = 0.5 * (a + b) + 0.5 * (b - a) * z
        table = log_observation_grid(ssm, points, nodes[:, None], t, row)
        return 0.5 * (b - a) * (share @ jnp.exp(table) @ w)

    def one(share: Array, y: Array, t: Array, row: Inputs) -> Array:
        inside = jnp.clip(y, low, high)
        below, above = mass(share, low, inside, t, row), mass(share, inside, high, t, row)
        return jnp.where(jnp.isnan(y), jnp.nan, below / (below + above))

    if ssm.vectorized:
        each = zip(shares, ys, series.steps, strict=True)
        return jnp.stack([one(s, y, t, None) for s, y, t in each])
    return jax.lax.map(lambda a: one(*a), (shares, ys, series.steps, series.rows))


@eqx.filter_jit
def _joint_transforms(predicted: FilteredLaws, seen: Float[Array, " t"]) -> Float[Array, " t"]:
    joint = predicted.model.joint
    assert joint is not None
    return joint.cdf(_shares(predicted), seen)


def _shares(predicted: FilteredLaws) -> Float[Array, "t n"]:
    """Masses of p(x_t | y before t) at the nodes of the recursion."""
    plan = predicted.model.plan
    return predicted.values_on(FineNodes(plan.nodes, plan.weights)) * plan.node_weights()[None, :]


@eqx.filter_jit
def joint_law(predicted: FilteredLaws, t: int) -> GaussianPSD:
    """p(y_t | y before t) as a PSD model of mass one on `observation_box`."""
    joint = predicted.model.joint
    assert joint is not None
    return joint.law(_shares(predicted)[t])
