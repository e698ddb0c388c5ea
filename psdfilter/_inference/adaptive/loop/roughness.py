"""Kinks and jumps of a map, from its values on a lattice."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

# A map is smooth where its fourth difference is no more than this share of that over twice the
# spacing, or too small, in deviations of the noise, to matter.
_SMOOTH, _SMALL = 0.2, 1e-4


def is_rough(values: Float[np.ndarray, "r k"], shape: tuple[int, ...]) -> Bool[np.ndarray, " r"]:
    """Nodes near which maps are not smooth.

    A fourth difference is 16 times as large over twice the spacing where a map is smooth, twice as
    large at a kink, and as large at a jump.
    """
    grid = values.reshape(*shape, -1)
    out = np.zeros(shape, bool)
    for axis in range(len(shape)):
        lines = np.moveaxis(grid, axis, 0)
        if len(lines) < 9:
            out |= True
            continue
        with np.errstate(invalid="ignore"):
            near, far = _largest(_fourth(lines, 1), 2), _largest(_fourth(lines, 2), 2)
        # Beside values that are no numbers nothing is known.
        bad = ~((near <= _SMOOTH * far) | (near < _SMALL)) | ~np.isfinite(near)
        np.moveaxis(out, axis, 0)[...] |= np.any(bad, axis=-1)
    return out.reshape(-1)


def near_kinks(values: Float[Array, "n ..."]) -> Float[Array, "n ..."]:
    """`is_rough` along the first axis, traced: one or zero."""
    near, far = (_fourth_traced(values, stride) for stride in (1, 2))
    smooth = jnp.isfinite(near) & ((near <= _SMOOTH * far) | (near < _SMALL))
    return jnp.where(smooth, 0.0, 1.0)


def _fourth_traced(values: Float[Array, "n ..."], stride: int) -> Float[Array, "n ..."]:
    """The largest fourth difference within two neighbours; those of the last at the ends."""
    s, n = stride, len(values)
    parts = [c * values[i * s : n - (4 - i) * s] for i, c in enumerate((1.0, -4.0, 6.0, -4.0, 1.0))]
    fourth = jnp.abs(sum(parts))
    fourth = jnp.where(jnp.isnan(fourth), jnp.inf, fourth)
    pad = [(2 * s, 2 * s)] + [(0, 0)] * (values.ndim - 1)
    fourth = jnp.pad(fourth, pad, mode="edge")
    window = (5,) + (1,) * (values.ndim - 1)
    return jax.lax.reduce_window(fourth, -jnp.inf, jax.lax.max, window, (1,) * values.ndim, "SAME")


def _fourth(lines: Float[np.ndarray, "n ..."], stride: int) -> Float[np.ndarray, "n ..."]:
    """|f(k-2s) - 4 f(k-s) + 6 f(k) - 4 f(k+s) + f(k+2s)|; zero at the ends."""
    out, s, n = np.zeros(lines.shape), stride, len(lines)
    parts = [c * lines[i * s : n - (4 - i) * s] for i, c in enumerate((1.0, -4.0, 6.0, -4.0, 1.0))]
    out[2 * s : n - 2 * s] = np.abs(sum(parts))
    return out


def _largest(values: Float[np.ndarray, "n ..."], reach: int) -> Float[np.ndarray, "n ..."]:
    """Largest values among neighbours; infinite where something is not a number."""
    values = np.where(np.isnan(values), np.inf, values)
    out = values.copy()
    for k in range(1, reach + 1):
        out[k:] = np.maximum(out[k:], values[:-k])
        out[:-k] = np.maximum(out[:-k], values[k:])
    return out
