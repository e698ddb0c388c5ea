"""The filter of whole series: one scan over chunks of steps."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .. import _results
from .._checks import Numbers, is_concrete, is_traced
from .._statespace.model import Inputs
from .filtered import FilterPosterior
from .model import LearnedModel, resized_by
from .nodes import predict_nodes
from .posterior import moment_features, moments_from_features
from .series import Series, as_series
from .step import (
    correct,
    likelihood_at_nodes,
    observation_errors,
    observation_logs,
    observation_status,
)

# Steps whose observation tables are made together: matrix products instead of matrix-vector ones.
_CHUNK = 64


def _scan(
    model: LearnedModel, series: Series, start: Float[Array, " n"], single_hop: bool, keep: bool
):
    """All steps; returns the last density and, stacked, what is kept of each."""
    weights = model.plan.node_weights()
    features = moment_features(model.plan)
    varying = model.tables is None
    checked = not model.ssm.vectorized

    def step(density, xs):
        likelihood, scale, missing, code, hop, tables = xs
        tables = model.tables if tables is None else tables
        assert tables is not None

        def hop_once(p):
            return predict_nodes(model.plan, tables.squares, weights * p)

        if single_hop:
            source, predicted = density, jnp.where(hop > 0, hop_once(density), density)
        else:
            source = jax.lax.fori_loop(0, hop - 1, lambda _, p: hop_once(p), density)
            predicted = jnp.where(hop > 0, hop_once(source), density)
        out = correct(weights, predicted, likelihood, scale, missing, code)
        return out.density, (out, source if keep else None, predicted if checked else None)

    def chunk(density, part: Series):
        if part.logs is None:
            logs = jax.vmap(lambda y, t, row: observation_logs(model, y, t, row, part.partly))(
                part.ys, part.steps, part.rows
            )
        else:
            logs = part.logs
        missing, codes = jax.vmap(observation_status)(part.ys)
        likelihood, scale = jax.vmap(lambda l, m: likelihood_at_nodes(model, l, m))(logs, missing)
        tables = part.tables
        if varying and tables is None:
            tables = jax.vmap(model.tables_at)(part.steps, part.rows)
        xs = (likelihood, scale, missing, codes, part.hops, tables)
        density, (outs, sources, predicted) = jax.lax.scan(step, density, xs)
        if predicted is not None:
            errors = observation_errors(model, part, logs, scale, predicted)
            unresolved = outs.seen & (errors > model.tol) & (outs.code == _results.OK)
            outs = outs._replace(code=jnp.where(unresolved, _results.UNRESOLVED, outs.code))
        else:
            errors = jnp.zeros(part.ys.shape[0])
        moments = (outs.density * weights[None, :]) @ features
        kept = outs.density if keep else None
        return density, (outs._replace(density=kept), moments, sources, errors)

    return _in_chunks(chunk, start, series)


def _in_chunks(fn, carry, series: Series):
    """A scan over chunks of `_CHUNK` steps, and the rest in one."""
    num = series.ys.shape[0]
    whole = num // _CHUNK
    outs = []
    if whole:
        head = jax.tree.map(
            lambda a: a[: whole * _CHUNK].reshape(whole, _CHUNK, *a.shape[1:]), series
        )
        carry, out = jax.lax.scan(fn, carry, head)
        outs.append(jax.tree.map(lambda a: a.reshape(whole * _CHUNK, *a.shape[2:]), out))
    if num % _CHUNK:
        carry, out = fn(carry, jax.tree.map(lambda a: a[whole * _CHUNK :], series))
        outs.append(out)
    return carry, jax.tree.map(lambda *parts: jnp.concatenate(parts), *outs)


@eqx.filter_jit
def filter_series(
    model: LearnedModel, series: Series, single_hop: bool, keep: bool
) -> FilterPosterior:
    last, (outs, moments, sources, errors) = _scan(model, series, model.prior, single_hop, keep)
    mean, covariance = moments_from_features(model.plan, moments)
    return FilterPosterior(
        model=model,
        series=series,
        log_likelihoods=outs.log_mass,
        mean=mean,
        covariance=covariance,
        codes=outs.code,
        log_kept=outs.log_kept,
        log_norms=outs.log_norm,
        observation_errors=errors,
        seen=outs.seen,
        last=last,
        densities=outs.density,
        sources=sources,
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
    from .closed import ClosedModel

    if isinstance(model, ClosedModel):
        return model.run(ys, first=first, inputs=inputs, times=times, keep=keep, throw=throw)  # pyright: ignore[reportReturnType]
    if resize:
        model = sized_model(model, ys, inputs)
    series, single_hop = as_series(model, ys, first, inputs, times)
    if keep not in ("densities", "summaries"):
        raise ValueError(f'keep must be "densities" or "summaries", got {keep!r}')
    post = filter_series(model, series, single_hop, keep == "densities")
    if throw and is_concrete(post.codes):
        raise_failure(np.asarray(post.codes))
    return post


def sized_model(model: LearnedModel, ys: Numbers, inputs: Inputs) -> LearnedModel:
    """`model`, or what became of it when it first met data; traced data decide nothing."""
    if not isinstance(model, LearnedModel) or model.sizing.by_observations:
        return model
    if model.sizing.resized is None and not is_traced((model, ys, inputs)):
        model.sizing.resized = resized_by(model, ys, inputs)
    return model if model.sizing.resized is None else model.sizing.resized


def raise_failure(codes: np.ndarray) -> None:
    """An error that names the first failed step, if there is one."""
    failure = _results.first_failure(codes, (_results.NO_MASS, _results.BAD_OBSERVATION))
    if failure is not None:
        index, code = failure
        raise ValueError(f"the filter failed at ys[{index}]: {_results.MESSAGES[code]}")
