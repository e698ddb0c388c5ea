"""The laws of states and observations after the data."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import Numbers, as_count
from .._density.psd import AbstractDensity
from .._statespace.model import Inputs
from .ability import Ability
from .laws import AbstractLaws
from .model import AbstractModel
from .posterior import Forecast, Posterior
from .registry import as_model, require
from .series import as_rows
from .trace import Moments


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

    def resultants(self) -> Float[Array, "t d"]:
        """Of the last time."""
        return self.several.resultants()[-1:]

    def shortest(self, mass: float) -> Float[Array, "2 t d"]:
        """Of the last time."""
        return self.several.shortest(mass)[:, -1:]


def forecast(
    model: AbstractModel, post: Posterior, steps: int, *, inputs: Inputs = None
) -> Forecast:
    """The laws of x (and, by `.observations`, of y) 1 ... `steps` transitions after the data.

    No steps at all give the law of the last time itself, in one row. `inputs` are the future ones,
    with `steps` rows, for models that take them.
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
    rows = as_rows(inputs, num)
    if num == 0:
        last = post.series.num - 1
        at, rows = post.series.steps[last:], jax.tree.map(lambda a: a[last:], post.series.rows)
        summary = Moments(post.mean[last:], post.covariance[last:])
        zero, fine = jnp.zeros(1), jnp.zeros(1, int)
        law = LastLaw(post.laws, post.series.num)
        return Forecast(summary, law, own, at, rows, zero, fine)
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
