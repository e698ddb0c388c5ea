"""Kinks and jumps of a map, from its values on a lattice."""

from types import ModuleType

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

# A map is smooth where its fourth difference is no more than this share of that over twice the
# spacing, or too small, in deviations of the noise, to matter.
_SMOOTH, _SMALL = 0.2, 1e-4

Values = Array | np.ndarray


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
            bad = near_kinks(lines) > 0
        np.moveaxis(out, axis, 0)[...] |= np.any(bad, axis=-1)
    return out.reshape(-1)


def near_kinks(values: Float[Values, "n ..."]) -> Float[Values, "n ..."]:
    """One near kinks and jumps along the first axis, else zero; of NumPy's or of traced arrays."""
    near, far = (_largest(_fourth(values, stride)) for stride in (1, 2))
    xp = _namespace(values)
    # Beside values that are no numbers nothing is known.
    smooth = xp.isfinite(near) & ((near <= _SMOOTH * far) | (near < _SMALL))
    return xp.where(smooth, 0.0, 1.0)


def _namespace(values: Values) -> ModuleType:
    return np if isinstance(values, np.ndarray) else jnp


def _fourth(values: Float[Values, "n ..."], stride: int) -> Float[Values, "n ..."]:
    """|f(k-2s) - 4 f(k-s) + 6 f(k) - 4 f(k+s) + f(k+2s)|; at the ends that of the last k."""
    xp, s, n = _namespace(values), stride, len(values)
    parts = [c * values[i * s : n - (4 - i) * s] for i, c in enumerate((1.0, -4.0, 6.0, -4.0, 1.0))]
    return _extended(xp.abs(sum(parts)), 2 * s)


def _largest(values: Float[Values, "n ..."]) -> Float[Values, "n ..."]:
    """Largest values within two neighbours; infinite where something is not a number."""
    xp, n = _namespace(values), len(values)
    wide = _extended(xp.where(xp.isnan(values), xp.inf, values), 2)
    return xp.max(xp.stack([wide[k : k + n] for k in range(5)]), axis=0)


def _extended(values: Float[Values, "n ..."], by: int) -> Float[Values, "m ..."]:
    """The first and the last value repeated."""
    return _namespace(values).pad(values, [(by, by)] + [(0, 0)] * (values.ndim - 1), mode="edge")
