"""Outcome codes of a filter step, and what they mean.

Under `jit` nothing can be raised, so every step carries a code; outside, `throw=True` turns the
first bad one into an error that names its time.
"""

import numpy as np

OK = 0
NO_MASS = 1
BAD_OBSERVATION = 2
UNRESOLVED = 3

MESSAGES = {
    OK: "fine",
    NO_MASS: (
        "the observation has likelihood zero (or not a number) everywhere the predicted state can "
        "be. Likely causes: an impossible measurement, a state that left state_box, or an "
        "observation density with too light tails. Look at the observation, enlarge state_box, or "
        "set the row to NaN to treat it as missing"
    ),
    BAD_OBSERVATION: (
        "the observation is infinite, or lies outside observation_box where the joint model of "
        "(x, y) has no meaning. Set it to NaN to treat it as missing, or enlarge observation_box"
    ),
    UNRESOLVED: (
        "the observation is so sharp or so far from what was predicted that its likelihood is not "
        "resolved to the tolerance. Learn with a smaller tol, or pass typical data as "
        "learn(..., ys=...)"
    ),
}


def first_failure(codes: np.ndarray, fatal: tuple[int, ...]) -> tuple[int, int] | None:
    """Index and code of the first step whose code is one of `fatal`; None if there is none."""
    bad = np.flatnonzero(np.isin(codes, fatal))
    return None if bad.size == 0 else (int(bad[0]), int(codes[bad[0]]))
