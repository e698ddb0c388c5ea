"""The laws of states and observations after the data."""

import jax.numpy as jnp

from .._checks import as_count
from .._statespace.model import Inputs
from .ability import Ability
from .model import AbstractModel
from .posterior import Forecast, Posterior
from .registry import as_model, require
from .series import as_rows
from .trace import Moments


def forecast(
    model: AbstractModel, post: Posterior, steps: int, *, inputs: Inputs = None
) -> Forecast:
    """The laws of x (and, by `.observations`, of y) 1 ... `steps` transitions after the data.

    `inputs` are the future ones, with `steps` rows, for models that take them.
    """
    known = as_model(model)
    num = as_count("steps", steps)
    if not isinstance(post, Posterior):
        raise ValueError(f"post must come from run_filter, got {type(post).__name__}")
    if known.engine != post.model.engine:
        raise ValueError(
            f'post must come from a filter of this model: it is one of engine "{post.model.engine}"'
            f', the model is one of "{known.engine}"'
        )
    if inputs is not None:
        require(known, Ability.INPUTS)
    # The posterior's own model: data may have sized the one that was learned.
    own, at = post.model, post.series.steps[-1] + 1 + jnp.arange(num)
    rows = as_rows(inputs, num)
    out = own.ahead(post.trace.last, at, rows)
    return Forecast(
        model=own,
        summary=Moments(out.mean, out.covariance),
        given=out.laws,
        steps=at,
        rows=rows,
        log_kept=out.log_kept,
        codes=out.codes,
    )
