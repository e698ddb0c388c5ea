"""The recursions that carry errors of single steps through a filter that forgets."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from .discrepancy import Discrepancy
from .hilbert import hilbert_after_mixing, tv_of_hilbert

Times = Float[np.ndarray, " t"]

# int |p - q| of two probabilities is never more.
_NO_BOUND = 2.0


@dataclass(frozen=True)
class Split:
    """An error at every t, in two parts.

    Attributes:
        start: what is left of the error of the prior.
        steps: what the steps have added.
    """

    start: Times
    steps: Times

    @property
    def total(self) -> Times:
        """Both together."""
        return self.start + self.steps

    @property
    def is_vacuous(self) -> np.ndarray:
        """Where it is 2 or more, which says nothing: no two probabilities are further apart."""
        return ~(self.total < _NO_BOUND)


def accumulate(
    found: Discrepancy, growth: Times, tau: Times, one_step: Times, start_error: float
) -> Split:
    """The recursion behind the bound: a step keeps tau of what there was, and adds c delta.

    start_n = tau_n start_{n-1};  carried_n = tau_n carried_{n-1} + c_n delta_{n-1};
    error_n = start_n + carried_n + delta_n.
    """
    num = len(one_step)
    start, steps = np.zeros(num), np.zeros(num)
    first = 1 if found.has_start else 0
    if found.has_start:
        start[0] = start_error
    left, carried = start_error, 0.0
    for i in range(first, num):
        if i == first:
            left = _times(growth[i], start_error)
        else:
            left = tau[i] * left
            carried = tau[i] * carried + _times(growth[i], one_step[i - 1])
        start[i], steps[i] = left, carried + one_step[i]
    return Split(start, steps)


def _times(c: float, delta: float) -> float:
    """c delta, where nothing stays nothing however large c."""
    return 0.0 if delta == 0.0 else float(c) * float(delta)


def accumulate_hilbert(found: Discrepancy, tau: Times) -> Split:
    """The same in Hilbert's metric, with the distances that were measured; then 2 tanh(h / 4)."""
    before = np.concatenate([[found.start_error], found.one_step[:-1]])
    if found.has_start:
        before[1:2] = found.start_error
    inherited = np.fmin(found.hilbert, hilbert_after_mixing(before, found.sigma))
    # An error enters a step as it is after its transition: growth one, delta the distance itself.
    shifted = np.append(inherited[1:], 0.0)
    first = 1 if found.has_start else 0
    at_start = inherited[first] if first < len(inherited) else 0.0
    path = accumulate(found, np.ones_like(tau), tau, shifted, float(at_start))
    carried = path.steps - shifted
    start = tv_of_hilbert(path.start)
    steps = tv_of_hilbert(path.start + carried) - start + found.one_step
    if found.has_start:
        start[0], steps[0] = found.start_error, 0.0
    return Split(start, steps)
