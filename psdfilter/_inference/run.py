"""The filter: one scan for whole series, the same step for one observation at a time."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from .. import _results
from .._checks import Numbers, as_count, is_concrete, require_x64
from .._statespace.model import Inputs, call, log_observation_table
from .filtered import FilterPosterior, Forecast
from .model import LearnedModel, resized_by
from .nodes import (
    TransitionTables,
    apply_axes,
    predict_nodes,
    smooth_roots,
)
from .observations import observation_box, partly_missing_logs
from .plan import grid_points
from .posterior import moment_features, moments_from_features

# Steps whose observation tables are made together: matrix products instead of matrix-vector ones.
_CHUNK = 64


class FilterState(eqx.Module):
    """The filter between two calls: the density at the nodes, and what has been summed up."""

    density: Float[Array, " n"]  # at the nodes, mass one
    log_likelihood: Float[Array, ""]
    step: Int[Array, ""]
    code: Int[Array, ""]


class StepOutput(NamedTuple):
    """What one step leaves behind."""

    density: Float[Array, " n"]
    log_mass: Float[Array, ""]  # log Z; zero if nothing was seen
    log_norm: Float[Array, ""]  # log of what the step divided by
    log_kept: Float[Array, ""]  # log D: the predicted mass on the box
    seen: Array
    code: Int[Array, ""]


def correct(
    weights: Float[Array, " n"],
    predicted: Float[Array, " n"],
    likelihood: Float[Array, " n"],
    log_scale: Float[Array, ""],
    missing: Array,
    code: Int[Array, ""],
) -> StepOutput:
    """pi = p G / Z at the nodes; where Z is no positive number, the prediction stands."""
    kept = weights @ predicted
    safe_kept = jnp.where(kept > 0, kept, 1.0)
    joint = predicted * likelihood
    mass = weights @ joint
    good = (mass > 0) & jnp.isfinite(mass)
    safe = jnp.where(good, mass, 1.0)
    seen = good & ~missing
    code = jnp.where(good | (code != _results.OK), code, _results.NO_MASS)
    log_z = jnp.log(safe) + log_scale
    return StepOutput(
        density=jnp.where(seen, joint / safe, predicted / safe_kept),
        log_mass=jnp.where(seen, log_z, jnp.where(missing, 0.0, -jnp.inf)),
        log_norm=jnp.where(seen, log_z, jnp.log(safe_kept)),
        log_kept=jnp.log(safe_kept),
        seen=seen,
        code=code,
    )


def likelihood_at_nodes(
    model: LearnedModel, log_values: Float[Array, " k"], missing: Array
) -> tuple[Float[Array, " n"], Float[Array, ""]]:
    """G^(z, y) and the exponent pulled out of it, from log G at the training points."""
    clean = jnp.where(jnp.isnan(log_values), -jnp.inf, log_values)
    peak = jax.lax.stop_gradient(jnp.max(clean))
    peak = jnp.where(jnp.isfinite(peak), peak, 0.0)
    values = jnp.square(smooth_roots(model.plan, jnp.exp(0.5 * (clean - peak))))
    return jnp.where(missing, 1.0, values), peak


def observation_logs(
    model: LearnedModel, y: Float[Array, " p"], t, row, partly: bool = False
) -> Float[Array, " k"]:
    """log G(., y) at the training points; `partly`: single coordinates of y may be missing."""
    return _logs_at(model, model.plan.training_points(), y, t, row, partly)


def _logs_at(model: LearnedModel, points: Float[Array, "k d"], y, t, row, partly: bool) -> Array:
    if partly and not model.ssm.marginalizes_missing:
        return partly_missing_logs(model.ssm, points, y, t, row)
    return log_observation_table(model.ssm, points, y, t, row)


def observation_errors(
    model: LearnedModel,
    part: "Series",
    logs: Float[Array, "t k"],
    peaks: Float[Array, " t"],
    predicted: Float[Array, "t n"],
) -> Float[Array, " t"]:
    """delta_t = 2 int p |G - G^| / int p G, on points between the training nodes of sqrt G."""
    plan = model.plan
    axes = plan.check_axes()
    points, nearest = grid_points(plan.box, axes), plan.nearest_nodes(axes)
    fits = tuple(r.kernel(z) @ r.solve for r, z in zip(plan.observation, axes, strict=True))
    shape = tuple(r.nodes.shape[0] for r in plan.observation)

    def one(y, t, row, log_values, peak, density):
        root = jnp.exp(0.5 * (log_values - peak)).reshape(shape)
        fit = jnp.square(apply_axes(root, fits)).ravel()
        truth = jnp.exp(_logs_at(model, points, y, t, row, part.partly) - peak)
        mass = density[nearest]
        total = mass @ truth
        return 2 * (mass @ jnp.abs(truth - fit)) / jnp.where(total > 0, total, 1.0)

    errors = jax.vmap(one)(part.ys, part.steps, part.rows, logs, peaks, predicted)
    return jnp.where(jnp.isnan(errors), 0.0, errors)


def observation_status(y: Float[Array, " p"]) -> tuple[Array, Int[Array, ""]]:
    """Whether y is missing as a whole, and a code for what cannot be used."""
    infinite = jnp.any(jnp.isinf(y))
    code = jnp.where(infinite, _results.BAD_OBSERVATION, _results.OK)
    return jnp.all(jnp.isnan(y)) | infinite, code


class Series(eqx.Module):
    """A series as the scan sees it, T rows each."""

    ys: Float[Array, "t p"]
    steps: Int[Array, " t"]  # the time of each observation
    hops: Int[Array, " t"]  # transitions before it
    rows: Any  # inputs
    logs: Float[Array, "t k"] | None  # log G at the training points, for black-box models
    tables: TransitionTables | None  # stacked, for black-box models that vary in time
    partly: bool = eqx.field(static=True)  # single coordinates of some row are missing


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
def _filter(model: LearnedModel, series: Series, single_hop: bool, keep: bool) -> FilterPosterior:
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
    if resize:
        model = sized_model(model, ys, inputs)
    series, single_hop = as_series(model, ys, first, inputs, times)
    if keep not in ("densities", "summaries"):
        raise ValueError(f'keep must be "densities" or "summaries", got {keep!r}')
    post = _filter(model, series, single_hop, keep == "densities")
    if throw and is_concrete(post.codes):
        raise_failure(np.asarray(post.codes))
    return post


def sized_model(model: LearnedModel, ys: Numbers, inputs: Inputs) -> LearnedModel:
    """`model`, or what became of it when it first met data; traced data decide nothing."""
    if not isinstance(model, LearnedModel) or model.sizing.by_observations:
        return model
    if model.sizing.resized is None and not _traced((model, ys, inputs)):
        model.sizing.resized = resized_by(model, ys, inputs)
    return model if model.sizing.resized is None else model.sizing.resized


def _traced(tree: Any) -> bool:
    return not all(is_concrete(leaf) for leaf in jax.tree.leaves(tree))


def raise_failure(codes: np.ndarray) -> None:
    """An error that names the first failed step, if there is one."""
    failure = _results.first_failure(codes, (_results.NO_MASS, _results.BAD_OBSERVATION))
    if failure is not None:
        index, code = failure
        raise ValueError(f"the filter failed at ys[{index}]: {_results.MESSAGES[code]}")


def as_series(
    model: LearnedModel, ys: Numbers, first: str, inputs: Inputs, times: Numbers | None
) -> tuple[Series, bool]:
    """Checked and shaped; and whether no observation needs more than one transition."""
    require_x64()
    if not isinstance(model, LearnedModel):
        raise ValueError(f"model must come from psdfilter.learn, got {type(model).__name__}")
    array = jnp.asarray(ys, dtype=jnp.float64)
    array = array[:, None] if array.ndim == 1 else array
    if array.ndim != 2:
        raise ValueError(f"ys must have shape (T, p) or (T,), got {array.shape}")
    num = array.shape[0]
    if num == 0 or array.shape[1] == 0:
        raise ValueError(f"ys must hold at least one observation, got shape {array.shape}")
    if model.ssm.observation_box is not None and model.ssm.observation_box.dim != array.shape[1]:
        raise ValueError(
            f"ys must have {model.ssm.observation_box.dim} columns, as observation_box has, got "
            f"{array.shape[1]}"
        )
    if first not in ("predict", "observe"):
        raise ValueError(f'first must be "predict" or "observe", got {first!r}')
    steps, single_hop = _steps(num, first, times)
    hops = jnp.diff(steps, prepend=jnp.zeros(1, dtype=steps.dtype))
    rows = _rows(inputs, num)
    logs = tables = None
    if model.ssm.vectorized:
        logs = _host_logs(model, array, steps)
        tables = _host_tables(model, steps) if model.tables is None else None
    return Series(array, steps, hops, rows, logs, tables, _partly(model, array)), single_hop


def _partly(model: LearnedModel, ys: Array) -> bool:
    """Whether some row misses some, but not all, of its coordinates; unseen under tracing."""
    if ys.shape[1] == 1 or not is_concrete(ys):
        return False
    gaps = np.isnan(np.asarray(ys))
    partly = bool(np.any(gaps.any(axis=1) & ~gaps.all(axis=1)))
    if partly and not model.ssm.marginalizes_missing:
        observation_box(model.ssm, "ys with single coordinates missing")
    return partly


def _steps(num: int, first: str, times: Numbers | None) -> tuple[Int[Array, " t"], bool]:
    if times is None:
        return jnp.arange(num) + (1 if first == "predict" else 0), True
    steps = jnp.asarray(times)
    if steps.shape != (num,):
        raise ValueError(f"times must have shape ({num},), as ys has rows, got {steps.shape}")
    if is_concrete(steps):
        values = np.asarray(steps)
        if not np.all(values == np.round(values)) or np.any(np.diff(values, prepend=0) < 0):
            raise ValueError(
                "times must be whole, non-negative and non-decreasing numbers of transitions, got "
                f"{values[:8]}"
            )
    return steps.astype(int), False


def _rows(inputs: Inputs, num: int) -> Inputs:
    if inputs is None:
        return None
    rows = jax.tree.map(lambda a: jnp.asarray(a, dtype=jnp.float64), inputs)
    for leaf in jax.tree.leaves(rows):
        if leaf.ndim == 0 or leaf.shape[0] != num:
            raise ValueError(f"inputs must have {num} rows, as ys has, got shape {leaf.shape}")
    return rows


def _host_logs(model: LearnedModel, ys: Array, steps: Array) -> Float[Array, "t k"]:
    """log G of a NumPy model, tabulated before the scan."""
    points = np.asarray(model.plan.training_points())
    rows = []
    for index, (y, t) in enumerate(zip(np.asarray(ys), np.asarray(steps), strict=True)):
        gaps = np.isnan(y)
        if gaps.any() and not gaps.all():
            raise ValueError(
                f"ys[{index}] misses some of its coordinates, {y}: a NumPy model cannot be "
                "integrated over them. Set the whole row to NaN, or write the model in JAX with an "
                "observation_box"
            )
        if gaps.any() or np.any(np.isinf(y)):
            rows.append(np.zeros(len(points)))
            continue
        seen = np.broadcast_to(y, (len(points), len(y)))
        value = call(model.ssm.log_observation, points, seen, t=int(t))
        rows.append(np.asarray(value, dtype=float).reshape(len(points)))
    return jnp.asarray(np.stack(rows))


def _host_tables(model: LearnedModel, steps: Array) -> TransitionTables:
    each = [model.tables_at(int(t)) for t in np.asarray(steps)]
    return jax.tree.map(lambda *parts: jnp.stack(parts), *each)


def init(model: LearnedModel) -> FilterState:
    """The state of an online filter before anything has been seen."""
    if not isinstance(model, LearnedModel):
        raise ValueError(f"model must come from psdfilter.learn, got {type(model).__name__}")
    return FilterState(model.prior, jnp.zeros(()), jnp.zeros((), int), jnp.zeros((), int))


def _predict_state(model: LearnedModel, state: FilterState, row) -> FilterState:
    step = state.step + 1
    tables = model.tables_at(step, row)
    weights = model.plan.node_weights()
    predicted = predict_nodes(model.plan, tables.squares, weights * state.density)
    return FilterState(predicted, state.log_likelihood, step, state.code)


def _update_state(model: LearnedModel, state: FilterState, y: Array, row) -> FilterState:
    weights = model.plan.node_weights()
    missing, code = observation_status(y)
    logs = observation_logs(model, y, state.step, row)
    likelihood, scale = likelihood_at_nodes(model, logs, missing)
    out = correct(weights, state.density, likelihood, scale, missing, code)
    code = jnp.where(state.code == _results.OK, out.code, state.code)
    return FilterState(out.density, state.log_likelihood + out.log_mass, state.step, code)


def _online(model: LearnedModel, name: str, fn, *args: Any) -> FilterState:
    """fn(model, *args), compiled once with a concrete model's tables as constants.

    Handing all tables over at every call would take longer than the step itself.
    """
    if not isinstance(model, LearnedModel):
        raise ValueError(f"model must come from psdfilter.learn, got {type(model).__name__}")
    kernels = model.sizing.kernels
    if name not in kernels:
        if _traced(model):
            return fn(model, *args)
        kernels[name] = jax.jit(lambda *rest: fn(model, *rest))
    return kernels[name](*args)


def predict(model: LearnedModel, state: FilterState, *, inputs: Inputs = None) -> FilterState:
    """One transition: the density of the next state."""
    return _online(model, "predict", _predict_state, state, inputs)


def update(
    model: LearnedModel, state: FilterState, y: Numbers, *, inputs: Inputs = None
) -> FilterState:
    """Bayes' rule for one observation; NaN is missing. Several calls are several sensors."""
    seen = y if isinstance(y, jax.Array) else np.asarray(y, dtype=np.float64)
    seen = seen[None] if seen.ndim == 0 else seen
    if model.ssm.vectorized:
        return _host_update(model, state, seen)
    return _online(model, "update", _update_state, state, seen, inputs)


def _host_update(model: LearnedModel, state: FilterState, y: Any) -> FilterState:
    """An update of a NumPy model: G is evaluated before the compiled part."""
    logs = _host_logs(model, jnp.asarray(y)[None], state.step[None])[0]

    def finish(model, state, seen, logs):
        missing, code = observation_status(seen)
        likelihood, scale = likelihood_at_nodes(model, logs, missing)
        weights = model.plan.node_weights()
        out = correct(weights, state.density, likelihood, scale, missing, code)
        return FilterState(out.density, state.log_likelihood + out.log_mass, state.step, out.code)

    return _online(model, "host_update", finish, state, jnp.asarray(y), logs)


@eqx.filter_jit
def _forecast(model: LearnedModel, density: Array, steps: Array, rows) -> Forecast:
    weights = model.plan.node_weights()
    features = moment_features(model.plan)

    def step(p, xs):
        t, row = xs
        tables = model.tables_at(t, row)
        ahead = predict_nodes(model.plan, tables.squares, weights * p)
        kept = weights @ ahead
        ahead = ahead / kept
        return ahead, (p, jnp.log(kept), (ahead * weights) @ features)

    _, (sources, log_kept, moments) = jax.lax.scan(step, density, (steps, rows))
    mean, covariance = moments_from_features(model.plan, moments)
    return Forecast(model, mean, covariance, sources, steps, rows, log_kept)


def forecast(
    model: LearnedModel, post: FilterPosterior, steps: int, *, inputs: Inputs = None
) -> Forecast:
    """The laws of x (and, by `.observations`, of y) 1 ... `steps` transitions after the data.

    `inputs` are the future ones, with `steps` rows, for models that take them.
    """
    num = as_count("steps", steps)
    if not isinstance(post, FilterPosterior):
        raise ValueError(f"post must come from run_filter, got {type(post).__name__}")
    ahead = post.series.steps[-1] + 1 + jnp.arange(num)
    return _forecast(model, post.last, ahead, _rows(inputs, num))
