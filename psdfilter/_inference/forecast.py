"""The laws of states and observations after the data."""

import warnings
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .. import _results
from .._checks import Numbers, as_count, is_concrete
from .._density.psd import AbstractDensity
from .._frames.table import Times, bare_inputs
from .._statespace.functions import Row
from .._statespace.model import Inputs
from .ability import Ability
from .laws import AbstractLaws, with_tails
from .model import AbstractModel
from .notices import doubtful_forecast
from .posterior import Forecast, Posterior
from .registry import as_model, require
from .run import ResolutionWarning
from .series import as_rows, refuse_beyond_list
from .times import days_since, is_dates
from .trace import Ahead, Moments


class LastLaw(AbstractLaws):
    """The last of several laws, as the law of one time."""

    several: AbstractLaws
    num: int = eqx.field(static=True)

    def quantiles(self, levels: Float[Array, " k"]) -> Float[Array, "k t d"]:
        """Of the last time."""
        return self.several.quantiles(levels)[:, -1:]

    def cdfs(self, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
        """Of the last time."""
        return self.several.cdfs(jnp.broadcast_to(x, (self.num, x.shape[1])))[-1:]

    def expectations(self, fn: Callable[[Array], Numbers]) -> Array:
        """Of the last time."""
        return self.several.expectations(fn)[-1:]

    def draws(self, key: PRNGKeyArray, num: int) -> Float[Array, "n t d"]:
        """Of the last time."""
        return self.several.draws(key, num)[:, -1:]

    def density(self, t: int) -> AbstractDensity:
        """Of the last time."""
        del t
        return self.several.density(self.num - 1)

    def regime_density(self, t: int, regime: int) -> AbstractDensity:
        """Of the last time."""
        del t
        return self.several.regime_density(self.num - 1, regime)

    def regimes(self) -> Float[Array, "t k"]:
        """Of the last time."""
        return self.several.regimes()[-1:]

    def circles(self) -> dict[int, tuple[float, float]]:
        """Of all times."""
        return self.several.circles()

    def resultants(self) -> Float[Array, "t d"]:
        """Of the last time."""
        return self.several.resultants()[-1:]

    def shortest(self, mass: float) -> Float[Array, "2 t d"]:
        """Of the last time."""
        return self.several.shortest(mass)[:, -1:]


def forecast(
    model: AbstractModel,
    post: Posterior,
    steps: int,
    *,
    inputs: Inputs = None,
    times: Times = None,
) -> Forecast:
    """The laws of x (and, by `.observations`, of y) 1 ... `steps` transitions after the data.

    Args:
        model: from `learn`.
        post: from `run_filter`.
        steps: how many; none give the law of the last time itself, in one row.
        inputs: the future ones, with `steps` rows, for models that take them.
        times: the future times, numbers or dates as in the data, for models that take `dt`; by
            default in equal steps, if the data were.
    """
    known = as_model(model)
    num = as_count("steps", steps, least=0)
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
    refuse_beyond_list(known.num_listed, post.series.steps, num)
    rows = _rows_ahead(post, num, as_rows(bare_inputs(inputs, None), num), times)
    labels = None if post.labels is None else post.labels.ahead(num)
    if num == 0:
        last = post.series.num - 1
        at, rows = post.series.steps[last:], jax.tree.map(lambda a: a[last:], post.series.rows)
        summary = Moments(post.mean[last:], post.covariance[last:])
        zero, fine = jnp.zeros(1), jnp.zeros(1, int)
        law = LastLaw(post.laws, post.series.num)
        return Forecast(summary, law, own, at, rows, zero, fine, labels, post.origin)
    out = _warned(own.ahead(post.trace.last, at, rows), post)
    return Forecast(
        model=own,
        summary=Moments(out.mean, out.covariance),
        given=out.laws,
        steps=at,
        rows=rows,
        log_kept=out.log_kept,
        codes=out.codes,
        called=labels,
        origin=post.origin,
    )


def _warned(out: Ahead, post: Posterior) -> Ahead:
    """With codes where tails decide on moments; and a word about the first step that has one."""
    if not is_concrete(out.codes) or not is_concrete(post.codes):
        return out
    codes = with_tails(out.codes, out.laws, np.arange(len(out.codes)))
    bad = np.flatnonzero(codes != _results.OK)
    if bad.size and int(post.codes[-1]) == _results.OK:
        message = doubtful_forecast(int(bad[0]) + 1, bad.size, int(codes[bad[0]]))
        warnings.warn(message, ResolutionWarning, stacklevel=3)
    return out._replace(codes=jnp.asarray(codes))


def _rows_ahead(post: Posterior, num: int, inputs: Inputs, times: Times) -> Inputs:
    """What belongs to the steps to come: times, and the last observation for the first of them."""
    seen = post.series.rows
    if not isinstance(seen, Row):
        if times is not None:
            raise ValueError("times must be None: no function of the model takes dt")
        return inputs
    dt = time = last_y = None
    if seen.dt is not None:
        time, dt = _times_ahead(post, seen, num, times)
    if seen.last_y is not None:
        last = jnp.asarray(post.series.ys)[-1:]
        if is_concrete(last) and bool(jnp.any(jnp.isnan(last))):
            raise ValueError("the last row of ys is missing, but the model takes it as last_y")
        last_y = jnp.concatenate([last, jnp.full((max(num - 1, 0), last.shape[1]), jnp.nan)])[:num]
    return Row(inputs, time, dt, last_y)


def _times_ahead(
    post: Posterior, seen: Row, num: int, times: Times
) -> tuple[Array | None, Float[Array, " k"]]:
    """Real times and their differences."""
    if seen.time is None:
        if times is not None:
            raise ValueError("times must be None: the data came without times, one unit apart")
        return None, jnp.ones(num)
    before = jnp.asarray(seen.time)
    if times is None:
        gaps = np.diff(np.asarray(before))
        if len(gaps) == 0 or np.ptp(gaps) > 1e-9 * abs(gaps[-1]):
            raise ValueError("times must be given: the data are not equally spaced in time")
        dt = jnp.full(num, gaps[-1])
        return before[-1] + gaps[-1] * jnp.arange(1.0, num + 1), dt
    if is_dates(times) != (post.origin is not None):
        raise ValueError("times must be dates if those of the data were, and numbers if not")
    ahead = jnp.asarray(
        np.asarray(times, dtype=float) if post.origin is None else days_since(post.origin, times)
    )
    if ahead.shape != (num,):
        raise ValueError(f"times must hold {num} times, as many as steps, got shape {ahead.shape}")
    dt = jnp.diff(ahead, prepend=before[-1:])
    if not bool(jnp.all(dt > 0)):
        k = int(np.argmin(np.asarray(dt) > 0))
        last = "the last of the data" if k == 0 else f"times[{k - 1}]"
        raise ValueError(
            f"times must be in order and after the data, but times[{k}] is not after {last}"
        )
    return ahead, dt
