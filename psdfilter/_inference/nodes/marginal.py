"""Observations of which single coordinates are missing."""

import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from ..._gaussian.quadrature import gauss_legendre, legendre_rule
from ..._statespace.functions import Inputs, Time
from ..._statespace.model import StateSpaceModel, log_observation_grid, observation_box

# Nodes for each missing coordinate: a density of one that is four nodes wide is integrated to 1e-4.
_NODES = {1: 1, 2: 48, 3: 24}


def partly_missing_logs(
    ssm: StateSpaceModel, x: Float[Array, "n d"], y: Float[Array, " p"], t: Time, row: Inputs
) -> Float[Array, " n"]:
    """log int G(x, y) d(missing coordinates of y), by quadrature over `observation_box`."""
    box = observation_box(ssm, "a partly missing observation")
    counts = [_NODES[box.dim]] * box.dim
    nodes, _ = gauss_legendre(box.lower, box.upper, counts)
    missing = jnp.isnan(y)
    # An observed coordinate has one value at all nodes: its weights add up to one.
    log_weights = jnp.zeros(1)
    for axis, num in enumerate(counts):
        scale = jnp.where(missing[axis], box.half_width[axis], 0.5)
        rule: Array = jnp.asarray(legendre_rule(num)[1])
        log_weights = (log_weights[:, None] + jnp.log(rule * scale)[None, :]).ravel()
    seen = jnp.where(missing[None, :], nodes, jnp.where(missing, 0.0, y)[None, :])
    table = log_observation_grid(ssm, x, seen, t, row)
    return logsumexp(table + log_weights[None, :], axis=1)
