"""Errors estimated on the data: the same filter, finer."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import is_traced
from ..engine import Task
from ..series import Series
from .filled import Filled
from .filtered import FilteredLaws
from .laws import AbstractNodeLaws
from .learn import LEAST_TOL, Wish, learn_filled
from .refine import fine_nodes
from .run import trace_on_nodes

# The finer plan's share of the tolerance: its own error must not show.
_FINER = 1.0 / 30.0


def estimate_errors(filled: Filled, laws: AbstractNodeLaws, series: Series) -> Float[Array, " t"]:
    """int |p - q| between each filtered density and that of a finer filter on the same data."""
    if is_traced((filled, series)):
        raise ValueError(
            "error_estimate cannot be traced: it learns a finer model; call it outside jit"
        )
    ssm = filled.ssm
    tol = max(_FINER * filled.tol, LEAST_TOL)
    ys = None if ssm.sample_observation is not None else series.ys
    task = Task(ssm, tol, ys, series.rows, "an error estimate")
    finer = learn_filled(task, Wish(renormalize=filled.renormalize)).filled
    # Times as they are, a gap being several transitions.
    general = Series(series.ys, series.steps, series.hops, series.rows, False, series.partly)
    trace = trace_on_nodes(finer, general, True)
    return _distances(laws, FilteredLaws(finer, general, trace.laws, trace.seen, trace.log_kept))


@eqx.filter_jit
def _distances(laws: AbstractNodeLaws, again: FilteredLaws) -> Float[Array, " t"]:
    fine = fine_nodes(again.model)
    gap = jnp.abs(laws.values_on(fine) - again.values_on(fine))
    return gap @ fine.flat_weights()
