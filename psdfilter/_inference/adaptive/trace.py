"""What a run leaves behind: arrays of all steps, and the laws that they belong to."""

from collections.abc import Iterator, Sequence
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
    capacities: tuple[int, ...] = (97, 385)


class AdaptiveTrace(NamedTuple):
    """All steps of a run, T rows each.

    `errors` are total variation errors accumulated through the filter. `laws` evaluate densities
    between the nodes.
    """

    log_masses: Float[np.ndarray, " t"]  # log Z_t
    log_kept: Float[np.ndarray, " t"]
    errors: Float[np.ndarray, " t"]
    codes: Int[np.ndarray, " t"]
    mean: Float[np.ndarray, "t 1"]
    covariance: Float[np.ndarray, "t 1 1"]
    steps: Int[np.ndarray, " t"]
    hops: Int[np.ndarray, " t"]
    rows: Inputs
    start: Law
    laws: Sequence[Law]

    def every_law(self) -> Iterator[Law]:
        """The prior, and those of all times, between two rows too."""
        yield self.start
        for law in self.laws:
            here: Law | None = law
            while here is not None:
                yield here
                here = here.before
