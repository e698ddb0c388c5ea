"""The exact filter of whole series, and forecasts."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ... import _results
from ..._checks import Numbers, as_count, is_concrete
from .bank import Bank, bank_moments
from .linear import predict_bank, run_exact
from .model import ExactModel
from .posterior import BlocksForecast, BlocksPosterior
from .series import BlockSeries, as_block_series

_FATAL = (_results.NO_MASS, _results.BAD_OBSERVATION, _results.SINGULAR)

# Compiled for shapes alone: models of one size share the programme.
_run_exact = jax.jit(run_exact, static_argnums=(6, 7))


def raise_failure(codes: np.ndarray) -> None:
    """An error that names the first failed step, if there is one."""
    failure = _results.first_failure(codes, _FATAL)
    if failure is not None:
        index, code = failure
        raise ValueError(f"the filter failed at ys[{index}]: {_results.MESSAGES[code]}")


def run_exact_model(
    model: ExactModel,
    ys: Numbers,
    *,
    first: str,
    times: Numbers | None,
    keep: str,
    throw: bool,
) -> BlocksPosterior:
    """`run_filter` for an exact model."""
    if keep not in ("densities", "summaries"):
        raise ValueError(f'keep must be "densities" or "summaries", got {keep!r}')
    series = as_block_series(ys, model.sensor.H.shape[0], first, None, times)
    post = _filter(model, series, keep == "densities")
    if throw and is_concrete(post.codes):
        raise_failure(np.asarray(post.codes))
    return post


def _filter(model: ExactModel, series: BlockSeries, keep: bool) -> BlocksPosterior:
    """A series that has been checked."""
    out = _run_exact(
        model.prior,
        model.layout,
        model.dynamics,
        model.sensor,
        series.ys,
        series.hops,
        series.single_hop,
        keep,
    )
    nothing = jnp.zeros(series.ys.shape[0])
    return BlocksPosterior(
        model=model,
        series=series,
        log_likelihoods=out.record.log_mass,
        mean=out.mean,
        covariance=out.covariance,
        codes=out.record.code,
        seen=out.record.seen,
        fit_errors=nothing,
        compression_losses=nothing,
        last=out.last,
        laws=out.laws,
        layout=model.layout,
    )


@partial(jax.jit, static_argnums=3)
def _forecast(bank: Bank, layout: Any, dynamics: Any, num: int):
    def step(bank: Bank, _: None):
        bank = predict_bank(bank, dynamics)
        return bank, (bank, bank_moments(bank, layout))

    return jax.lax.scan(step, bank, None, length=num)[1]


def forecast_blocks(model: Any, post: Any, steps: int) -> BlocksForecast:
    """`forecast` for models of blocks."""
    num = as_count("steps", steps)
    if not isinstance(post, BlocksPosterior):
        raise ValueError(f"post must come from run_filter, got {type(post).__name__}")
    laws, (mean, covariance) = _forecast(post.last, post.layout, model.dynamics, num)
    return BlocksForecast(model, laws, post.layout, mean, covariance)
