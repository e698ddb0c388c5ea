"""Ridge regression along one axis of many anchors, by banded normal equations.

A Gaussian kernel on a grid reaches a dozen neighbours: K and Phi'Phi are bands, and

    (Phi'Phi + n lambda K) a = Phi' b

costs the number of anchors times the square of the band instead of the cube of their number. The
condition number of a fit is squared, but what that costs is in the coefficients: the fitted values
err by about eps times the root of it, and one step of refinement is taken.
"""

import numpy as np
from jaxtyping import Float
from scipy.linalg import cho_solve_banded, cholesky_banded
from scipy.sparse import csr_array

from .axes import features

# Fewest anchors for which bands pay.
LEAST_ANCHORS = 160
_NEGLIGIBLE = 1e-19


def banded_fit(
    nodes: Float[np.ndarray, " n"],
    anchors: Float[np.ndarray, " m"],
    precision: float,
    ridge: float,
    values: Float[np.ndarray, "n k"],
) -> Float[np.ndarray, "m k"]:
    """Coefficients for `values` at the nodes; LinAlgError if the equations cannot be factored."""
    phi, gram = _sparse(features(nodes, anchors, precision)), features(anchors, anchors, precision)
    normal = (phi.T @ phi).todense() + len(nodes) * ridge * gram
    reach = int(np.max(np.abs(np.subtract(*np.nonzero(np.abs(normal) > _NEGLIGIBLE)))))
    bands = np.zeros((reach + 1, len(anchors)))
    for k in range(reach + 1):
        bands[reach - k, k:] = np.diagonal(normal, k)
    factor = (cholesky_banded(bands, check_finite=False), False)
    coefficients = cho_solve_banded(factor, phi.T @ values, check_finite=False)
    left = phi.T @ (values - phi @ coefficients)
    left = left - len(nodes) * ridge * (_sparse(gram) @ coefficients)
    return coefficients + cho_solve_banded(factor, left, check_finite=False)


def _sparse(matrix: np.ndarray) -> csr_array:
    return csr_array(np.where(np.abs(matrix) > _NEGLIGIBLE, matrix, 0.0))
