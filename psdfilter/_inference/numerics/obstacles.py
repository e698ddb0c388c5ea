"""Why no grid can serve a model with additive Gaussian noise, and how much noise one needs."""

import numpy as np

from ..._checks import Numbers, is_traced
from ..._statespace.model import AdditiveGaussian, StateSpaceModel

# The least standard deviation of the noise, as a share of the box's half-width, that a grid of
# tolerable size resolves, by the number of coordinates.
RESOLVED = {1: 1 / 200, 2: 1 / 30, 3: 1 / 10, 4: 1 / 10}
# An eigenvalue of a covariance below this share of the largest is none.
_SINGULAR = 1e-14


def noise_share(ssm: StateSpaceModel, Q: Numbers) -> float:
    """The smallest standard deviation of the noise over the half-width, in any direction."""
    half = np.asarray(ssm.state_box.half_width)
    unit = np.asarray(Q) / np.outer(half, half)
    return float(np.sqrt(max(np.linalg.eigvalsh(unit)[0], 0.0)))


def grid_obstacle(ssm: StateSpaceModel) -> str | None:
    """Why no grid can serve, whatever its size; None if one can, or if nothing can be seen."""
    structure = ssm.structure
    if not isinstance(structure, AdditiveGaussian) or is_traced((structure, ssm.state_box)):
        return None
    for name, matrix, what in (
        ("Q", structure.Q, "transition"),
        ("P0", structure.P0, "prior"),
    ):
        values = np.linalg.eigvalsh(np.asarray(matrix))
        if values[0] <= _SINGULAR * values[-1]:
            return f"{name} is singular, so that the {what} has no density"
    if not structure.bounded:
        return "no state_box was given, and simulated states became infinite or NaN"
    if ssm.dim > max(RESOLVED):
        return f"a grid has no place for {ssm.dim} coordinates"
    if ssm.dim >= 3 and ssm.log_transition_axis is None:
        return (
            f"Q must be diagonal for a grid in {ssm.dim} coordinates: rotate the state, z = V' x "
            "with Q = V diag(q) V', so that the noise is independent from axis to axis, and pass q "
            "as a vector"
        )
    return None


def too_little_noise(ssm: StateSpaceModel, Q: Numbers) -> str | None:
    """Why a grid of tolerable size does not resolve the noise; None if one does."""
    share, least = noise_share(ssm, Q), RESOLVED[ssm.dim]
    if share >= least:
        return None
    return (
        f"the noise is {share:.1e} of the box's half-width, and a grid in {ssm.dim}-d needs "
        f"{least:.1e}"
    )
