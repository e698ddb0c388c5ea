"""Anchors and training points: random, low-discrepancy, padded grids, quadrature grids."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, Float, PRNGKeyArray

from .._checks import as_count, as_key
from .._density.anchors import TensorGrid
from .._density.box import Box
from .axes import Axis, stretched_nodes


def uniform_points(box: Box, num: int, *, key: PRNGKeyArray) -> Float[Array, "n d"]:
    """Independent uniform points in the box, as in the paper's Algorithm 1."""
    unit = jax.random.uniform(
        as_key("key", key), (as_count("num", num), box.dim), jnp.float64, -1.0, 1.0
    )
    return box.center[None] + box.half_width[None] * unit


def sobol_points(box: Box, num: int, *, key: PRNGKeyArray) -> Float[Array, "n d"]:
    """The first points of a scrambled Sobol sequence in the box."""
    seed = jax.random.randint(as_key("key", key), (), 0, np.iinfo(np.int32).max)
    count = as_count("num", num)
    # Late: scipy.stats takes longer to import than all the rest of this package.
    from scipy.stats import qmc

    sequence = qmc.Sobol(box.dim, scramble=True, rng=np.random.default_rng(int(seed)))
    # Whole powers of two keep the sequence balanced; the tail is cut off afterwards.
    unit = 2.0 * sequence.random_base2(int(np.ceil(np.log2(count))))[:count] - 1.0
    return box.center[None] + box.half_width[None] * jnp.asarray(unit)


def padded_grid(
    box: Box, num: int | Sequence[int], *, spread: float = 0.35, pad: float = 1.0
) -> tuple[TensorGrid, Float[Array, " d"]]:
    """A regular tensor grid of anchors that reaches past the box, and its precision.

    Args:
        box: the box in the user's units.
        num: anchors on each axis.
        spread: eta h^2; the floor of the grid's error is about 2 exp(-pi^2 / spread).
        pad: how far the grid reaches past the box, in kernel lengths 1 / sqrt(eta).

    Returns:
        The grid and eta per axis, in the user's units.
    """
    counts = _counts("num", num, box.dim)
    if not (spread > 0 and pad >= 0):
        raise ValueError(f"spread must be > 0 and pad >= 0, got {spread!r} and {pad!r}")
    least = 2 + int(np.floor(2 * pad / np.sqrt(spread)))
    if min(counts) < least:
        raise ValueError(
            f"num must be at least {least} on every axis to reach {pad:g} kernel lengths past the "
            f"box with spread {spread:g}, got {counts}"
        )
    axes = [Axis.padded(n, spread, pad, 1.0) for n in counts]
    precision = jnp.asarray([axis.precision for axis in axes]) / jnp.square(box.half_width)
    return _grid_in(box, [axis.anchors for axis in axes]), precision


def training_grid(box: Box, num: int | Sequence[int], kind: str = "stretched") -> TensorGrid:
    """A tensor grid of training points in the box.

    Args:
        box: the box in the user's units.
        num: points on each axis.
        kind: "stretched" (Chebyshev points pulled towards a uniform spacing, the default of
            learning), "chebyshev" (extreme points, ends included), "legendre" (Gauss) or "regular".
    """
    rules = {
        "stretched": lambda n: stretched_nodes(np.linspace(np.pi, 0.0, n)),
        "chebyshev": lambda n: np.cos(np.linspace(np.pi, 0.0, n)),
        "legendre": lambda n: np.polynomial.legendre.leggauss(n)[0],
        "regular": lambda n: np.linspace(-1.0, 1.0, n),
    }
    if kind not in rules:
        raise ValueError(f"kind must be one of {', '.join(rules)}, got {kind!r}")
    return _grid_in(box, [rules[kind](n) for n in _counts("num", num, box.dim)])


def choose_points(
    name: str, choice: str, box: Box, num: int, key: PRNGKeyArray | None
) -> Float[Array, "n d"]:
    """Random points by name: "uniform" or "sobol"."""
    makers = {"uniform": uniform_points, "sobol": sobol_points}
    if choice not in makers:
        raise ValueError(f'{name} must be "uniform", "sobol", an array or a grid, got {choice!r}')
    if key is None:
        raise ValueError(
            f'{name}="{choice}" draws random points and needs key=, for example jax.random.key(0)'
        )
    return makers[choice](box, num, key=key)


def _grid_in(box: Box, unit_axes: Sequence[ArrayLike]) -> TensorGrid:
    center, half = np.asarray(box.center), np.asarray(box.half_width)
    return TensorGrid(
        [c + h * np.asarray(a) for c, h, a in zip(center, half, unit_axes, strict=True)]
    )


def _counts(name: str, num: int | Sequence[int], dim: int) -> tuple[int, ...]:
    given = [num] * dim if isinstance(num, int | np.integer) else list(num)
    if len(given) != dim:
        raise ValueError(
            f"{name} must be a number or {dim} numbers, one for each axis, got {num!r}"
        )
    return tuple(as_count(name, n, least=2) for n in given)
