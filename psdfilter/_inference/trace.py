"""What a filter leaves behind: numbers for every step, and laws in the engine's own form."""

from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from .. import _results
from .._checks import looked_at
from .laws import AbstractLaws

# The law of the state between two steps, in whatever form an engine carries it: any pytree.
Law = PyTree
# One observation (p,); a NumPy array is handed to compiled functions at no cost.
Observation = Array | np.ndarray


class Moved(NamedTuple):
    """What a transition has done."""

    log_kept: Float[Array, ""]  # log of the mass that stayed where the state lives
    error: Float[Array, ""]  # estimated total variation that it has added
    code: Int[Array, ""]


class Seen(NamedTuple):
    """What an observation has done."""

    log_mass: Float[Array, ""]  # log Z; zero if nothing was seen, -inf if it is impossible
    error: Float[Array, ""]  # estimated total variation that it has added
    used: Bool[Array, ""]
    code: Int[Array, ""]


class Moments(NamedTuple):
    """Means and covariances of T times."""

    mean: Float[Array, "t d"]
    covariance: Float[Array, "t d d"]


class Trace(NamedTuple):
    """A filtered series, T rows each; NumPy's arrays, or JAX's where they were computed by it.

    Attributes:
        log_likelihoods: log Z_t, zero where y_t is missing.
        mean: of the state.
        covariance: of the state.
        codes: outcome of each step, 0 if fine.
        seen: whether the observation was used.
        log_kept: log of the predicted mass where the state lives, before each observation.
        log_normalizers: log D_t, what Z_t has to be divided by to be a density of y_t.
        errors: estimated total variation that each step adds; None if that takes a second run.
        last: the law after the last step.
        laws: the laws after all steps, stacked, as the engine keeps them; None if only summaries
            were asked for.
    """

    log_likelihoods: Float[Array, " t"]
    mean: Float[Array, "t d"]
    covariance: Float[Array, "t d d"]
    codes: Int[Array, " t"]
    seen: Bool[Array, " t"]
    log_kept: Float[Array, " t"]
    log_normalizers: Float[Array, " t"]
    errors: Float[Array, " t"] | None
    last: Law
    laws: PyTree


def on_device(array: Array | np.ndarray) -> Array:
    """The same numbers for JAX; `jnp.asarray` would compile for every length."""
    return array if isinstance(array, jax.Array) else jax.device_put(array)


class Smoothing(NamedTuple):
    """A smoothed series: moments, laws (None if only summaries were asked for), and how."""

    mean: Float[Array, "t d"]
    covariance: Float[Array, "t d d"]
    laws: PyTree  # AbstractLaws or None
    method: str
    errors: Float[Array, " t"] | None = None  # estimated total variation; None if it is not known


class Ahead(NamedTuple):
    """States after the data."""

    mean: Float[Array, "k d"]
    covariance: Float[Array, "k d d"]
    laws: AbstractLaws
    log_kept: Float[Array, " k"]
    codes: Int[Array, " k"]


def held_to(codes: Array, errors: Array, tol: float) -> Array:
    """Codes of steps, of which those are unresolved that miss this tolerance."""
    xp, codes, errors = looked_at(codes, errors)
    plain = (codes == _results.OK) | (codes == _results.UNRESOLVED)
    missed = xp.where(errors <= tol, _results.OK, _results.UNRESOLVED)
    return xp.where(plain, missed, codes)
