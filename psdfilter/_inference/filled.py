"""Tables of a transition that varies in time, for a whole series: filled before its scan, kept.

The scan over a series then multiplies and does nothing else; other data at the same times find the
tables filled. What would not fit is filled by the scan itself, a chunk at a time.
"""

from typing import Any

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from .._checks import is_traced
from .compiled import compiled_for
from .model import LearnedModel

# Bytes of all tables of a series, and of those filled at one go.
_MAX_BYTES, _BLOCK_BYTES = 2**30, 2**24


def stacked_squares(
    model: LearnedModel, steps: Int[Array, " t"], rows: Any
) -> tuple[Float[Array, "t ..."], ...] | None:
    """E_g of every step; None if they are too large or cannot be filled ahead."""
    if model.ssm.vectorized or is_traced((steps, rows, model.prior_root)):
        return None
    each = 8 * sum(
        int(np.prod([model.plan.shape[a] for a in (*part.given, *part.group)]))
        for part in model.plan.transitions
    )
    if each * steps.shape[0] > _MAX_BYTES:
        return None
    key = [np.asarray(a).tobytes() for a in jax.tree.leaves((steps, rows))]
    kept = model.sizing.stacked
    if kept is not None and kept[0] is model and kept[1] == key:
        return kept[2]
    with jax.ensure_compile_time_eval():
        block = max(1, _BLOCK_BYTES // each)
        squares = compiled_for(model, "stacked", _fill_steps, block)(steps, rows)
    model.sizing.stacked = (model, key, squares)
    return squares


def _fill_steps(model: LearnedModel, space: Any, steps: Array, rows: Any, block: int):
    del space

    def one(at: tuple[Array, Any]) -> tuple[Array, ...]:
        return model.tables_at(*at).squares

    return jax.lax.map(one, (steps, rows), batch_size=min(block, steps.shape[0]))
