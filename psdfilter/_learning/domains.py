"""Boxes for unbounded coordinates: chosen from samples or quantiles, with the mass left outside."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import ArrayLike

from .._checks import as_floats
from .._density.box import Box


@dataclass(frozen=True)
class BoxChoice:
    """A box and the mass it leaves out.

    Attributes:
        box: the box.
        leak: estimated mass outside it.
        leak_per_axis: estimated mass outside its bounds on each axis alone.
        leak_bound: upper bound of the leak: 95 % confidence for samples, exact for quantiles.
    """

    box: Box
    leak: float
    leak_per_axis: tuple[float, ...]
    leak_bound: float

    def __str__(self) -> str:
        low, high = np.asarray(self.box.lower), np.asarray(self.box.upper)
        sides = ", ".join(f"[{a:.4g}, {b:.4g}]" for a, b in zip(low, high, strict=True))
        return f"box {sides}; mass outside {self.leak:.2g} (at most {self.leak_bound:.2g})"


def box_from_samples(samples: ArrayLike, *, leak: float = 1e-3, margin: float = 0.1) -> BoxChoice:
    """The box between equal-tailed sample quantiles, widened by a margin.

    Args:
        samples: points `(n, d)` or paths `(num, T, d)`, for example simulated states.
        leak: mass that may stay outside before the margin is added, shared among the axes.
        margin: widening on each side, as a share of the width.
    """
    array = np.asarray(as_floats("samples", samples))
    if array.ndim not in (2, 3) or 0 in array.shape:
        raise ValueError(f"samples must have shape (n, d) or (num, T, d), got {array.shape}")
    _check_share("leak", leak)
    if not margin >= 0:
        raise ValueError(f"margin must be >= 0, got {margin!r}")
    points = array.reshape(-1, array.shape[-1])
    count, dim = points.shape
    tail = 0.5 * leak / dim
    low, high = np.quantile(points, [tail, 1 - tail], axis=0)
    flat = ~(high > low)
    if flat.any():
        raise ValueError(
            f"samples must vary on every axis, but axis {int(np.argmax(flat))} is constant"
        )
    low, high = low - margin * (high - low), high + margin * (high - low)
    outside = (points < low) | (points > high)
    share = float(np.mean(outside.any(axis=1)))
    # Wilson's upper limit; with no sample outside it is 3.8 / (n + 3.8), about the rule of three.
    z = 1.96
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    spread = z / (1 + z * z / count) * np.sqrt(share * (1 - share) / count + (z / (2 * count)) ** 2)
    return BoxChoice(
        Box(low, high), share, tuple(outside.mean(axis=0).tolist()), float(middle + spread)
    )


def box_from_quantiles(quantile: Callable[[float], ArrayLike], *, leak: float = 1e-6) -> BoxChoice:
    """The box between the quantiles leak/(2d) and 1 - leak/(2d) of each coordinate.

    Args:
        quantile: p -> the p-quantiles of all coordinates, `(d,)`, such as a prior's `ppf`.
        leak: mass that may stay outside; a union bound over the axes.
    """
    _check_share("leak", leak)
    dim = np.size(np.asarray(quantile(0.5)))
    tail = 0.5 * leak / dim
    low, high = (np.atleast_1d(np.asarray(quantile(p), float)) for p in (tail, 1 - tail))
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise ValueError(f"quantile must be finite at {tail:g} and 1 - {tail:g}, got {low}, {high}")
    return BoxChoice(Box(low, high), leak, (leak / dim,) * dim, leak)


def _check_share(name: str, value: float) -> None:
    if not 0 < value < 1:
        raise ValueError(f"{name} must lie in (0, 1), got {value!r}")
