"""Ready-made systems: `system()` is a model, `system.simulate(seed, num_steps)` gives data.

`ALL` holds them by name. Where a dense grid can follow, `system.reference(ys)` is a filter to
compare with, written in NumPy apart from the rest of the package.
"""

from ._data import index_returns, nile
from ._linear import kalman, linear_1d, linear_2d, linear_4d, matrices
from ._lorenz63 import lorenz63
from ._mixing import bounded_ar, noisy_logistic
from ._pendulum import pendulum
from ._pendulum_sde import pendulum_sde
from ._range_only import range_only
from ._reference import Reference
from ._sine_map import sine_map
from ._stochastic_volatility import stochastic_volatility
from ._system import System
from ._theta_logistic import theta_logistic
from ._tracking import (
    bearings_dirac,
    bearings_only,
    mixture_start,
    range_one_beacon,
    range_two_beacons,
)
from ._ungm import ungm

ALL: dict[str, System] = {
    system.name: system
    for system in (
        sine_map,
        stochastic_volatility,
        ungm,
        theta_logistic,
        pendulum,
        pendulum_sde,
        range_only,
        lorenz63,
        linear_1d,
        linear_2d,
        linear_4d,
        bounded_ar,
        noisy_logistic,
        mixture_start,
        range_one_beacon,
        range_two_beacons,
        bearings_only,
    )
}

__all__ = [
    "ALL",
    "Reference",
    "System",
    "bearings_dirac",
    "bearings_only",
    "bounded_ar",
    "index_returns",
    "kalman",
    "linear_1d",
    "linear_2d",
    "linear_4d",
    "lorenz63",
    "matrices",
    "mixture_start",
    "nile",
    "noisy_logistic",
    "pendulum",
    "pendulum_sde",
    "range_one_beacon",
    "range_only",
    "range_two_beacons",
    "sine_map",
    "stochastic_volatility",
    "theta_logistic",
    "ungm",
]
