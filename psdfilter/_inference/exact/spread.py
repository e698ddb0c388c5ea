"""Whether a model needs roots of covariances, before any data are seen.

Covariances do not depend on the observations, so that a few steps of Kalman's formulas tell how
much less a predicted observation is known than its sensor is. Rows that are missing, and states
that grow, can make it worse later: every step looks again (`update_bank`).
"""

import numpy as np
from jaxtyping import Array, Float

from ..._checks import is_traced
from ..._statespace.model import LinearGaussian
from ..gaussian.linear import Dynamics, Sensor, noise_floor


def widest_observation(structure: LinearGaussian, covariances: Float[Array, "b d d"]) -> float:
    """The largest variance of a predicted y, in units of its noise; zero if it cannot be seen.

    Over 2 d steps, in which a sensor has seen whatever it can see of the state.
    """
    parts = structure.F, structure.Q, structure.H, structure.R
    if is_traced((parts, covariances)):
        return 0.0
    F, Q, H, R = (np.asarray(part) for part in parts)
    dynamics = Dynamics(structure.F, structure.b, structure.Q)
    assert structure.H is not None
    assert structure.d is not None
    assert structure.R is not None
    floor = np.asarray(noise_floor(dynamics, Sensor(structure.H, structure.d, structure.R)))
    S, widest = np.asarray(covariances), 0.0
    for _ in range(2 * F.shape[0] + 1):
        cross = H @ S
        seen = cross @ H.T + R
        widest = max(widest, float(np.max(np.diagonal(seen, axis1=1, axis2=2) / floor)))
        # Sizes matter here and digits do not: singular innovations are for the filter to name.
        gain = np.swapaxes(np.linalg.pinv(seen, hermitian=True) @ cross, 1, 2)
        kept = np.eye(F.shape[0]) - gain @ H
        S = kept @ S @ np.swapaxes(kept, 1, 2) + gain @ R @ np.swapaxes(gain, 1, 2)
        S = F @ S @ F.T + Q
    return widest
