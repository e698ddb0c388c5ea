"""Laws of the observations: what the filter expected to see.

p(y) = int G(x, y) p(x) dx for a density of the state at quadrature nodes. A G learned jointly over
(x, y) makes this a PSD model in y, with closed forms (joint.py). Otherwise integrals over y are
Gauss-Legendre quadratures over `observation_box`, where G has to live.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp, ndtri
from jaxtyping import Array, Float, Int

from .._checks import Numbers, as_floats
from .._density.box import Box
from .._density.psd import GaussianPSD
from .._gaussian.quadrature import gauss_legendre, legendre_rule
from .._statespace.model import StateSpaceModel, log_observation_grid, observation_box
from .posterior import moments_on
from .refine import FineNodes, fine_nodes
from .summaries import check_level, line_quantiles

NUM_NODES = {1: 256, 2: 48, 3: 20}


class ObservationLaws(eqx.Module):
    """Densities of y at K times, on a quadrature grid over `observation_box`.

    Attributes:
        mean: (K, p).
        covariance: (K, p, p).
        leak: mass of y outside of observation_box, (K,).
    """

    box: Box  # of y
    nodes: Float[Array, "n p"]
    weights: Float[Array, " n"]
    values: Float[Array, "k n"]
    mean: Float[Array, "k p"]
    covariance: Float[Array, "k p p"]
    leak: Float[Array, " k"]

    @staticmethod
    def make(
        model: Any, fine: FineNodes, densities: Float[Array, "k n"], steps: Int[Array, " k"], rows
    ) -> "ObservationLaws":
        """From densities of x on fine nodes at K times."""
        box = observation_box(model.ssm, "the law of y")
        counts = [NUM_NODES[box.dim]] * box.dim
        nodes, weights = gauss_legendre(box.lower, box.upper, counts)
        points, shares = fine.points(model), densities * fine.flat_weights()[None, :]
        if model.joint is not None:
            table = model.joint.tabulate(model.plan, fine.nodes)
            values = shares @ model.joint.values(table, nodes)
            return laws_on(box, nodes, weights, values)

        def one(share: Array, t: Array, row: Any) -> Array:
            table = log_observation_grid(model.ssm, points, nodes, t, row)
            return share @ jnp.exp(table)

        if model.ssm.vectorized:
            values = jnp.stack([one(s, t, None) for s, t in zip(shares, steps, strict=True)])
        else:
            values = jax.lax.map(lambda a: one(*a), (shares, steps, rows))
        return laws_on(box, nodes, weights, values)

    def quantile(self, q: Numbers) -> Float[Array, "k p"]:
        """The q-quantile of a scalar y at every time; a leading axis for several q."""
        box = self._scalar_box("quantile")
        levels = as_floats("q", q)
        check_level(np.asarray(levels))
        wanted = jnp.broadcast_to(levels.ravel()[None, :], (self.values.shape[0], levels.size))
        z = line_quantiles(self.values, wanted)
        values = (box.center[0] + box.half_width[0] * z).T[..., None]
        return values[0] if levels.ndim == 0 else values.reshape(*levels.shape, *values.shape[1:])

    def interval(self, mass: float = 0.9) -> tuple[Float[Array, "k p"], Float[Array, "k p"]]:
        """Lower and upper end of the central interval of a scalar y."""
        ends = self.quantile([0.5 * (1 - mass), 0.5 * (1 + mass)])
        return ends[0], ends[1]

    def _scalar_box(self, what: str) -> Box:
        if self.box.dim != 1:
            raise ValueError(f"{what} needs a scalar y, got {self.box.dim} coordinates")
        return self.box


def laws_on(box: Box, nodes: Array, weights: Array, values: Array) -> ObservationLaws:
    """From densities of y at the nodes of a rule on its box, not normalised there."""
    mass = values @ weights
    mean, covariance = moments_on(nodes, weights[None, :] * values / mass[:, None])
    return ObservationLaws(box, nodes, weights, values, mean, covariance, 1.0 - mass)


def predictive_laws(post: Any) -> ObservationLaws:
    """The law of y_t given y before t, for every t."""
    fine = fine_nodes(post.model)
    return ObservationLaws.make(
        post.model, fine, post.predictions_on(fine), post.series.steps, post.series.rows
    )


def probability_transforms(post: Any) -> Float[Array, " t"]:
    """PIT: P(Y_t <= y_t | y before t), uniform if the model is right; NaN where y_t is missing."""
    ssm = post.model.ssm
    box = observation_box(ssm, "the probability transform")
    if box.dim != 1 or post.series.ys.shape[1] != 1:
        raise ValueError(
            f"the probability transform needs a scalar y, got {post.series.ys.shape[1]} coordinates"
        )
    if post.model.joint is not None:
        seen = post.series.ys[:, 0]
        levels = _joint_transforms(post, jnp.where(jnp.isnan(seen), box.center[0], seen))
        return jnp.where(jnp.isnan(seen), jnp.nan, levels)
    fine = fine_nodes(post.model)
    shares = post.predictions_on(fine) * fine.flat_weights()[None, :]
    points = fine.points(post.model)
    z, w = (jnp.asarray(a) for a in legendre_rule(128))
    low, high = box.lower[0], box.upper[0]

    def mass(share: Array, a: Array, b: Array, t: Array, row: Any) -> Array:
        nodes = 0.5 * (a + b) + 0.5 * (b - a) * z
        table = log_observation_grid(ssm, points, nodes[:, None], t, row)
        return 0.5 * (b - a) * (share @ jnp.exp(table) @ w)

    def one(share: Array, y: Array, t: Array, row: Any) -> Array:
        inside = jnp.clip(y, low, high)
        below, above = mass(share, low, inside, t, row), mass(share, inside, high, t, row)
        return jnp.where(jnp.isnan(y), jnp.nan, below / (below + above))

    ys, steps = post.series.ys[:, 0], post.series.steps
    if ssm.vectorized:
        rows = [one(s, y, t, None) for s, y, t in zip(shares, ys, steps, strict=True)]
        return jnp.stack(rows)
    return jax.lax.map(lambda a: one(*a), (shares, ys, steps, post.series.rows))


@eqx.filter_jit
def _joint_transforms(post: Any, seen: Float[Array, " t"]) -> Float[Array, " t"]:
    return post.model.joint.cdf(predicted_shares(post), seen)


def predicted_shares(post: Any) -> Float[Array, "t n"]:
    """Masses of p(x_t | y before t) at the nodes of the recursion."""
    plan = post.model.plan
    at_nodes = FineNodes(plan.nodes, plan.weights)
    return post.predictions_on(at_nodes) * plan.node_weights()[None, :]


def observation_density(post: Any, t: int) -> GaussianPSD:
    """p(y_t | y before t) as a PSD model of mass one on `observation_box`."""
    if post.model.joint is None:
        raise ValueError(
            "observation_density needs a G that is a PSD model of (x, y): learn with "
            'observation="joint", or see predicted_observations'
        )
    num = post.series.ys.shape[0]
    if not -num <= t < num:
        raise ValueError(f"t must lie in 0..{num - 1}, got {t}")
    return _joint_law(post, t % num)


@eqx.filter_jit
def _joint_law(post: Any, t: int) -> GaussianPSD:
    return post.model.joint.law(predicted_shares(post)[t])


def residuals(post: Any) -> Float[Array, " t"]:
    """Normal quantiles of the probability transforms: standard normal if the model is right."""
    eps = jnp.finfo(jnp.float64).eps
    return ndtri(jnp.clip(probability_transforms(post), eps, 1 - eps))


def partly_missing_logs(
    ssm: StateSpaceModel, x: Float[Array, "n d"], y: Float[Array, " p"], t, row
) -> Float[Array, " n"]:
    """log int G(x, y) d(missing coordinates of y), by quadrature over `observation_box`."""
    box = observation_box(ssm, "a partly missing observation")
    counts = [{1: 1, 2: 48, 3: 24}[box.dim]] * box.dim
    nodes, _ = gauss_legendre(box.lower, box.upper, counts)
    missing = jnp.isnan(y)
    rules = [jnp.asarray(legendre_rule(n)[1]) for n in counts]
    # An observed coordinate has one value at all nodes: its weights add up to one.
    log_weights = jnp.zeros(1)
    for axis, w in enumerate(rules):
        scale = jnp.where(missing[axis], box.half_width[axis], 0.5)
        log_weights = (log_weights[:, None] + jnp.log(w * scale)[None, :]).ravel()
    seen = jnp.where(missing[None, :], nodes, jnp.where(missing, 0.0, y)[None, :])
    table = log_observation_grid(ssm, x, seen, t, row)
    return logsumexp(table + log_weights[None, :], axis=1)
