"""Runs of models of blocks: their failures, and forecasts with linear dynamics."""

from functools import partial
from typing import Any

import jax
import numpy as np

from ... import _results
from ..._checks import as_count
from .bank import Bank, bank_moments
from .linear import predict_bank
from .posterior import BlocksForecast, BlocksPosterior

_FATAL = (_results.NO_MASS, _results.BAD_OBSERVATION, _results.SINGULAR)


def raise_failure(codes: np.ndarray) -> None:
    """An error that names the first failed step, if there is one."""
    failure = _results.first_failure(codes, _FATAL)
    if failure is not None:
        index, code = failure
        raise ValueError(f"the filter failed at ys[{index}]: {_results.MESSAGES[code]}")


@partial(jax.jit, static_argnums=3)
def _forecast(bank: Bank, layout: Any, dynamics: Any, num: int):
    def step(bank: Bank, _: None):
        bank = predict_bank(bank, dynamics)
        return bank, (bank, bank_moments(bank, layout))

    return jax.lax.scan(step, bank, None, length=num)[1]


def forecast_blocks(model: Any, post: Any, steps: int) -> BlocksForecast:
    """`forecast` for a model with linear `dynamics`."""
    num = as_count("steps", steps)
    if not isinstance(post, BlocksPosterior):
        raise ValueError(f"post must come from run_filter, got {type(post).__name__}")
    laws, (mean, covariance) = _forecast(post.last, post.layout, model.dynamics, num)
    return BlocksForecast(model, laws, post.layout, mean, covariance)
