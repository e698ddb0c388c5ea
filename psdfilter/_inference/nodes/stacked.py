"""Tables of a transition that varies in time, for a whole series: filled before its scan, kept.

The scan over a series then multiplies and does nothing else; other data at the same times find the
tables filled. What would not fit is filled by the scan itself, a chunk at a time.
"""

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from ..._checks import is_traced
from ..._statespace.model import Inputs
from ..numerics.compiled import call_compiled, remembered
from .filled import Filled

# Bytes of all tables of a series, and of those filled at one go.
_MAX_BYTES, _BLOCK_BYTES = 2**30, 2**24


def stacked_squares(
    filled: Filled, steps: Int[Array, " t"], rows: Inputs
) -> tuple[Float[Array, "t ..."], ...] | None:
    """E_g of every step; None if they are too large or cannot be filled ahead."""
    if filled.ssm.vectorized or is_traced((steps, rows, filled.prior_root)):
        return None
    each = 8 * sum(
        int(np.prod([filled.plan.shape[a] for a in (*part.given, *part.group)]))
        for part in filled.plan.transitions
    )
    if each * steps.shape[0] > _MAX_BYTES:
        return None
    key = tuple(np.asarray(a).tobytes() for a in jax.tree.leaves((steps, rows)))
    # Those of the last times only: others would pile up.
    kept: dict[tuple[bytes, ...], tuple[Array, ...]] = remembered(filled, "stacked", dict)
    if key not in kept:
        kept.clear()
        block = max(1, _BLOCK_BYTES // each)
        with jax.ensure_compile_time_eval():
            kept[key] = call_compiled(_fill_steps, filled, steps, rows, options=(block,))
    return kept[key]


def _fill_steps(filled: Filled, steps: Array, rows: Inputs, block: int) -> tuple[Array, ...]:
    def one(at: tuple[Array, Inputs]) -> tuple[Array, ...]:
        return filled.tables_at(*at).squares

    return jax.lax.map(one, (steps, rows), batch_size=min(block, steps.shape[0]))
