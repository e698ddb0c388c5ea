"""The filter of a series that has been checked; compiled once for each set of sizes."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ..._checks import looked_at
from ..._statespace.model import Inputs
from ..lengths import cut_rows, with_room
from ..numerics.compiled import call_compiled
from ..series import Series, is_partly
from ..trace import Moved, Observation, Seen, Trace
from .filled import Filled
from .filtered import Kept
from .host import Tabulated, tabulate
from .laws import moments_from_features
from .online import NodesLaw
from .recursion import BATCHED_CHUNK, CHUNK, Filtered, filter_steps
from .stacked import stacked_squares
from .workspace import Stepper, stepper_of, watched_stepper_of

# Rows that are added take as long as others: an eighth of a series at most.
_PARTS = 8

Moments = tuple[Float[Array, "t d"], Float[Array, "t d d"]]


def _run(
    stepper: Stepper,
    series: Series,
    host: Tabulated,
    stacked: tuple[Float[Array, "t ..."], ...] | None,
    keep: bool,
    most: int,
) -> tuple[Float[Array, " n"], Filtered, Moments]:
    last, out = filter_steps(stepper, series, host, stacked, keep, most)
    return last, out, moments_from_features(stepper.center, stepper.half_width, out.moments)


def run_on_nodes(
    filled: Filled, series: Series, keep: bool, watched: bool = False
) -> tuple[Float[Array, " n"], Filtered, Moments, Tabulated]:
    """The last density, all steps, means and covariances; and the tables of a NumPy model."""
    host, stacked, num = tabulate(filled, series), None, series.num
    if not filled.ssm.vectorized:
        series = with_room(series, filled.prior_root, parts=_PARTS)
    if filled.tables is None and host.squares is None and series.regular:
        stacked = stacked_squares(filled, series.steps, series.rows)
    # JAX has no public way to ask whether `vmap` is at work; a wrong guess costs time only.
    batched = type(series.ys).__name__ == "BatchTracer"
    options = (keep, BATCHED_CHUNK if batched else CHUNK)
    stepper = watched_stepper_of(filled) if watched else stepper_of(filled)
    last, out, moments = call_compiled(_run, stepper, series, host, stacked, options=options)
    if series.num > num:
        out, moments = cut_rows((out, moments), num)
    return last, out, moments, host


def trace_on_nodes(filled: Filled, series: Series, keep: bool, watched: bool = False) -> Trace:
    """The filter of a series; `watched`: with an estimate of the error of each step."""
    last, out, (mean, covariance), host = run_on_nodes(filled, series, keep, watched)
    steps, kept = out.outs, None
    if keep:
        assert out.sources is not None
        kept = Kept(steps.density, out.sources, steps.log_norm, host)
    errors = None
    if out.moved is not None:
        xp, own, moved = looked_at(out.errors, out.moved)
        errors = xp.minimum(own + moved, 2.0)  # no two laws are farther apart
    normalizers = steps.log_kept if out.log_normalizers is None else out.log_normalizers
    return Trace(
        log_likelihoods=steps.log_mass,
        mean=mean,
        covariance=covariance,
        codes=steps.code,
        seen=steps.seen,
        log_kept=steps.log_kept,
        log_normalizers=normalizers,
        errors=errors,
        last=NodesLaw(last),
        laws=kept,
    )


def tick_on_nodes(
    filled: Filled, law: NodesLaw, y: Observation, step: Int[Array, ""], row: Inputs
) -> tuple[NodesLaw, Moved, Seen]:
    """A series of one row that starts from a law in place of the prior; may be traced."""
    stepper = replace(watched_stepper_of(filled), prior=law.values)
    rows = jax.tree.map(lambda a: a[None], row)
    series = Series(jnp.asarray(y)[None], step[None], jnp.ones(1, int), rows, True, is_partly(y))
    last, out = filter_steps(stepper, series, Tabulated(), None, False)
    assert out.moved is not None
    steps = jax.tree.map(lambda a: a[0], out.outs)
    moved = Moved(steps.log_kept, out.moved[0], jnp.zeros((), int))
    seen = Seen(steps.log_mass, out.errors[0], steps.seen, steps.code)
    return NodesLaw(last), moved, seen
