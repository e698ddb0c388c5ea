"""Tables of a NumPy model, which cannot be called from compiled functions: made before the scan."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..._statespace.model import call
from ..series import Series
from .filled import Filled


class Tabulated(NamedTuple):
    """What a NumPy model says about a series; None for what compiled functions compute."""

    logs: Float[Array, "t k"] | None = None  # log G at the training points
    squares: tuple[Float[Array, "t ..."], ...] | None = None  # E_g of every step


def tabulate(filled: Filled, series: Series) -> Tabulated:
    """Empty for a model written in JAX."""
    if not filled.ssm.vectorized:
        return Tabulated()
    logs = host_logs(filled, series.ys, series.steps) if filled.joint is None else None
    squares = host_squares(filled, series.steps) if filled.tables is None else None
    return Tabulated(logs, squares)


def host_logs(
    filled: Filled, ys: Array | np.ndarray, steps: Int[Array, " t"]
) -> Float[Array, "t k"]:
    """log G at the training points."""
    points = np.asarray(filled.plan.training_points())
    rows = []
    for index, (y, t) in enumerate(zip(np.asarray(ys), np.asarray(steps), strict=True)):
        gaps = np.isnan(y)
        if gaps.any() and not gaps.all():
            raise ValueError(
                f"ys[{index}] misses some of its coordinates, {y}: a NumPy model cannot be "
                "integrated over them. Set the whole row to NaN, or write the model in JAX with an "
                "observation_box"
            )
        if gaps.any() or np.any(np.isinf(y)):
            rows.append(np.zeros(len(points)))
            continue
        seen = np.broadcast_to(y, (len(points), len(y)))
        value = call(filled.ssm.log_observation, points, seen, t=int(t))
        rows.append(np.asarray(value, dtype=float).reshape(len(points)))
    return jnp.asarray(np.stack(rows))


def host_squares(filled: Filled, steps: Int[Array, " t"]) -> tuple[Float[Array, "t ..."], ...]:
    """The transitions into the given steps, stacked."""
    each = [filled.tables_at(int(t)).squares for t in np.asarray(steps)]
    return jax.tree.map(lambda *parts: jnp.stack(parts), *each)
