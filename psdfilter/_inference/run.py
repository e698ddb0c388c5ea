"""The filter of whole series."""

from dataclasses import replace
from typing import Any

import numpy as np

from .. import _results
from .._checks import Numbers, is_concrete, is_traced
from .._statespace.model import Inputs
from .compiled import compiled_for
from .filled import stacked_squares
from .filtered import FilterPosterior
from .model import LearnedModel
from .posterior import moments_from_features
from .recursion import BATCHED_CHUNK, CHUNK, filter_steps
from .resizing import resized_by
from .series import Series, as_series
from .workspace import Workspace


def filter_series(
    model: LearnedModel, series: Series, single_hop: bool, keep: bool
) -> FilterPosterior:
    """The filter of a series that has been checked; compiled once for each model and shape."""
    stacked = None
    if model.tables is None and series.tables is None and single_hop:
        stacked = stacked_squares(model, series.steps, series.rows)
    # JAX has no public way to ask whether `vmap` is at work; a wrong guess costs time only.
    batched = type(series.ys).__name__ == "BatchTracer"
    most = BATCHED_CHUNK if batched else CHUNK
    post = compiled_for(model, "filter", _posterior, single_hop, keep, most)(series, stacked)
    # What is known before need not travel through the compiled function, which takes time for
    # every array. Nobody else has seen `post`.
    object.__setattr__(post, "model", model)
    object.__setattr__(post, "series", replace(series, ys=post.series.ys))
    if post.log_normalizers is None:
        object.__setattr__(post, "log_normalizers", post.log_kept)
    return post


def _posterior(
    model: LearnedModel,
    space: Workspace,
    series: Series,
    stacked: Any,
    single_hop: bool,
    keep: bool,
    most: int,
) -> FilterPosterior:
    last, out = filter_steps(model, space, series, single_hop, keep, stacked, most)
    mean, covariance = moments_from_features(model.plan, out.moments)
    return FilterPosterior(
        model=None,
        series=Series(series.ys, None, None, None, None, None, series.partly),  # pyright: ignore
        log_likelihoods=out.outs.log_mass,
        mean=mean,
        covariance=covariance,
        codes=out.outs.code,
        log_kept=out.outs.log_kept,
        log_norms=out.outs.log_norm,
        log_normalizers=out.log_normalizers,  # pyright: ignore
        observation_errors=out.errors,
        seen=out.outs.seen,
        last=last,
        densities=out.outs.density,
        sources=out.sources,
    )


def run_filter(
    model: LearnedModel,
    ys: Numbers,
    *,
    first: str = "predict",
    inputs: Inputs = None,
    times: Numbers | None = None,
    keep: str = "densities",
    throw: bool = True,
    resize: bool = True,
) -> FilterPosterior:
    """p(x_t | y_1 ... y_t) for every t, with the likelihood of the series.

    Args:
        model: from `learn`.
        ys: observations (T, p), or (T,) if p = 1; a row of NaN is missing.
        first: "predict": the first observation comes after one transition from the prior;
            "observe": the first observation is of the prior's state itself.
        inputs: arrays with T rows, for models that take them.
        times: whole, non-decreasing times of the observations, counted in transitions, the prior
            being at time 0; equal times are several sensors. By default 1, 2, ... (or 0, 1, ...).
        keep: "densities" keeps the filtered density of every step; "summaries" only means,
            covariances and likelihoods, in memory that does not grow with the nodes.
        throw: raise at the first step that failed, naming it; otherwise look at `post.codes`.
        resize: a model that could not be sized by simulated observations is sized, once, by the
            first data it meets.
    """
    if not isinstance(model, LearnedModel):
        return _of_another_engine(model).run(
            ys, first=first, inputs=inputs, times=times, keep=keep, throw=throw
        )
    if resize:
        model = sized_model(model, ys, inputs)
    series, single_hop = as_series(model, ys, first, inputs, times)
    if keep not in ("densities", "summaries"):
        raise ValueError(f'keep must be "densities" or "summaries", got {keep!r}')
    post = filter_series(model, series, single_hop, keep == "densities")
    if throw and is_concrete(post.codes):
        raise_failure(np.asarray(post.codes))
    return post


def _of_another_engine(model: Any) -> Any:
    from .blocks.model import AbstractBlocksModel
    from .closed import ClosedModel

    if not isinstance(model, ClosedModel | AbstractBlocksModel):
        raise ValueError(f"model must come from psdfilter.learn, got {type(model).__name__}")
    return model


def sized_model(model: LearnedModel, ys: Numbers, inputs: Inputs) -> LearnedModel:
    """`model`, or what became of it when it first met data; traced data decide nothing."""
    if not isinstance(model, LearnedModel) or model.sizing.by_observations:
        return model
    if model.sizing.resized is None and not is_traced((model, ys, inputs)):
        model.sizing.resized = resized_by(model, ys, inputs)
    return model if model.sizing.resized is None else model.sizing.resized


def raise_failure(codes: np.ndarray) -> None:
    """An error that names the first failed step, if there is one."""
    if not codes.any():
        return
    failure = _results.first_failure(codes, (_results.NO_MASS, _results.BAD_OBSERVATION))
    if failure is not None:
        index, code = failure
        raise ValueError(f"the filter failed at ys[{index}]: {_results.MESSAGES[code]}")
