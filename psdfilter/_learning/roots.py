"""Learn f = sum_i f_i^2 from signed roots f_i that the user knows.

sqrt(f) need not be smooth where f is: x^2 has the root |x|, x_1^2 + x_2^2 no smooth root at all.
Their signed roots x, or x_1 and x_2, are smooth, and a model of rank r is fitted to all of them on
one grid: f_hat = sum_i (a_i' k)^2.
"""

from collections.abc import Callable, Sequence

from jaxtyping import ArrayLike

from .._density.box import Box, as_finite_box
from .evaluate import RootFunction
from .rank_one import RankOneFit, as_budget, fit_tolerance


def learn_roots(
    roots: Callable | Sequence[Callable],
    box: Box | tuple[ArrayLike, ArrayLike],
    *,
    tol: float | None = None,
    vectorized: bool = False,
    ridge: float | None = None,
    periodic: int | Sequence[int] = (),
    max_anchors: int | None = None,
    max_memory: float = 4 * 2**30,
    progress: bool | None = None,
) -> RankOneFit:
    """f_hat(x) = sum_i (a_i' k(x))^2 with sup |f_hat - sum_i f_i^2| <= tol max f on the box.

    Args:
        roots: one function or several, `(d,) -> scalar`, of any sign.
        box: where f is learned, in the user's units.
        tol: sup error of f relative to max f.
        vectorized: the roots map `(n, d) -> (n,)`.
        ridge: lambda, instead of one that follows from `tol`.
        periodic: axes along which every root is periodic with the box as its period.
        max_anchors: largest order allowed.
        max_memory: bytes that values and coefficients may take.
        progress: show a progress bar; by default only for long work on a terminal.

    Returns:
        A fit whose `.model` has one column of the factor for each root.
    """
    functions = [roots] if callable(roots) else list(roots)
    if not functions:
        raise ValueError("roots must name at least one function, got none")
    box = as_finite_box("box", box)
    root_fn = RootFunction(functions, box, kind="root", vectorized=vectorized)
    budget = as_budget(max_anchors, max_memory)
    return RankOneFit(*fit_tolerance(root_fn, box, tol, periodic, ridge, budget, progress))
