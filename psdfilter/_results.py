"""Outcome codes, of a filter step and of the check of arguments, and what they mean.

A step of the filter carries a code, because an error inside its loop would stop all of a batch;
outside, `throw=True` turns the first bad one into an error that names its time. `check` gives the
codes of arguments; the operations on densities raise them.
"""

import numpy as np
from jaxtyping import ArrayLike, Int

# Users compare with these numbers: they do not change. Those of steps are below ten.
OK = 0
NO_MASS = 1
BAD_OBSERVATION = 2
UNRESOLVED = 3
SINGULAR = 4
IMPRECISE = 5
BAD_SERIES = 6
HEAVY_TAILS = 7
BAD_ANCHORS = 11
BAD_FACTOR = 12
BAD_PRECISION = 13
BAD_COMPONENTS = 14
BAD_LOG_SCALE = 15
BAD_BOX = 16
BAD_POINTS = 17
BAD_BLOCKS = 18

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
    SINGULAR: (
        "the covariance H S H' + R of the predicted observation is singular (or not a number), so "
        "that the observation has no density. Likely causes: R is zero for a combination of "
        "coordinates that is known exactly already, two sensors that show the same without noise, "
        "or a state that has grown beyond float64. Give R a variance there, or drop the coordinate"
    ),
    IMPRECISE: (
        "the variance of the predicted observation is more than 1e8 times that of its noise, as "
        "under a diffuse prior, so that covariances in float64 lose digits. run_filter goes over "
        "to square roots of covariances by itself where it can look at numbers, and online filters "
        "do if the prior is that wide: call it outside of jax.jit, or take a smaller P0"
    ),
    BAD_SERIES: (
        "this series of a fleet could not be read, or its filter raised an error; the others are "
        "not affected. See its message"
    ),
    HEAVY_TAILS: (
        "more than a hundredth of the variance comes from one part in a million of the law, to "
        "which no tolerance holds: mean and variance are rough, and may be infinite. Quantiles, "
        "intervals and the density are right"
    ),
    BAD_ANCHORS: "anchors must be finite",
    BAD_FACTOR: (
        "factor must be finite, and so must the sum of its squares: put the size of f into "
        "log_scale"
    ),
    BAD_PRECISION: "precision must be finite, and positive on every axis",
    BAD_COMPONENTS: "linear and offset must be finite",
    BAD_LOG_SCALE: "log_scale must be finite",
    BAD_BOX: "lower must be below upper on every axis, and neither of them NaN",
    BAD_POINTS: "x must be finite",
    BAD_BLOCKS: (
        "log_weights, means and covariance must be finite; a log weight of -inf leaves a block out"
    ),
}


def explain(code: Int[ArrayLike, ""]) -> str:
    """What an outcome code means: one of `post.codes`, or the answer of `check`."""
    number = int(np.asarray(code))
    if number not in MESSAGES:
        raise ValueError(f"code must be one of {sorted(MESSAGES)}, got {number}")
    return MESSAGES[number]


def first_failure(codes: np.ndarray, fatal: tuple[int, ...]) -> tuple[int, int] | None:
    """Index and code of the first step whose code is one of `fatal`; None if there is none."""
    bad = np.flatnonzero(np.isin(codes, fatal))
    return None if bad.size == 0 else (int(bad[0]), int(codes[bad[0]]))
