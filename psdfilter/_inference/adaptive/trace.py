"""What a run leaves behind: arrays of all steps, and the laws that they belong to."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from ..._statespace.model import Inputs
from .state import Law


class AdaptivePlan(NamedTuple):
    """What is fixed before a series is seen: numbers only.

    Attributes:
        tol: total variation error that every law is to keep.
        share: tol over what one step may spend at first.
        capacities: nodes of the compiled scan; the next ones where a step misses.
    """

    tol: float
    share: float = 16.0
    capacities: tuple[int, ...] = (49, 97, 193, 385)


class AdaptiveTrace(NamedTuple):
    """All steps of a run, T rows each; nodes are filled up with masses zero.

    `errors` are total variation errors accumulated through the filter, `local_errors` those that
    the step added itself. `laws` evaluates densities between the nodes.
    """

    nodes: Float[np.ndarray, "t n 1"]
    masses: Float[np.ndarray, "t n"]
    log_masses: Float[np.ndarray, " t"]  # log Z_t
    log_kept: Float[np.ndarray, " t"]
    errors: Float[np.ndarray, " t"]
    local_errors: Float[np.ndarray, " t"]
    codes: Int[np.ndarray, " t"]
    mean: Float[np.ndarray, "t 1"]
    covariance: Float[np.ndarray, "t 1 1"]
    steps: Int[np.ndarray, " t"]
    hops: Int[np.ndarray, " t"]
    rows: Inputs
    start: Law
    laws: tuple[Law, ...]
