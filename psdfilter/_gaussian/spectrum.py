"""How many quadrature nodes a function needs: the decay of its Legendre coefficients."""

from functools import lru_cache

import numpy as np
from numpy.polynomial.legendre import legvander

from .quadrature import legendre_rule


@lru_cache(maxsize=64)
def legendre_transform(num: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes z (num,) and the matrix (num, num) from values at them to Legendre coefficients.

    Coefficient k is that of the polynomial P_k scaled to sup norm one.
    """
    nodes, weights = legendre_rule(num)
    degrees = np.arange(num)
    polynomials = legvander(nodes, num - 1).T
    return nodes, (degrees[:, None] + 0.5) * polynomials * weights[None, :]
