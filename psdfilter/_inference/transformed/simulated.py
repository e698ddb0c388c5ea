"""Laws ahead of a model that remembers what it sees: by simulation, with an error that is stated.

x_{T+2} depends on y_{T+1}, which nobody has seen. Paths of states and observations are simulated
from the last law on; the law of every x is then the average of exact transition densities over the
paths, sum_i Q(u_i, x; y_i) / N, and its summaries are those of the draws.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, PRNGKeyArray

from ..._checks import Numbers
from ..._density.psd import AbstractDensity
from ..._statespace.functions import AbstractFunction, Row, call
from ..._statespace.model import StateSpaceModel
from ..laws import AbstractLaws
from ..numerics.observed import AbstractObservedLaws
from ..trace import Ahead

# Paths: standard errors of means are 1/256 of a standard deviation.
NUM_PATHS = 2**16
_SEED = 20_240_101
# Paths that a density is averaged over.
_IN_DENSITY = 2**12


class DrawnLaws(AbstractLaws):
    """Laws at K times by draws, (n, k, d)."""

    points: Float[Array, "n k d"]

    def quantiles(self, levels: Float[Array, " k"]) -> Float[Array, "k t d"]:
        """Of the draws."""
        return jnp.quantile(self.points, levels, axis=0)

    def cdfs(self, x: Float[Array, "t d"]) -> Float[Array, "t d"]:
        """Of the draws."""
        return jnp.mean((self.points <= x[None]).astype(x.dtype), axis=0)

    def expectations(self, fn: Callable[[Array], Numbers]) -> Array:
        """Averages over the draws."""
        image = jax.vmap(jax.vmap(lambda x: jnp.asarray(fn(x), dtype=jnp.float64)))
        return jnp.mean(image(self.points), axis=0)

    def draws(self, key: PRNGKeyArray, num: int) -> Float[Array, "n t d"]:
        """Some of the draws, with replacement."""
        return self.points[jax.random.randint(key, (num,), 0, self.points.shape[0])]

    def density(self, t: int) -> AbstractDensity:
        """Not known from draws alone."""
        raise ValueError(
            f"the law at index {t} is known by draws: see sample, quantile, cdf and expect"
        )


class DrawnStates(DrawnLaws):
    """Laws of x ahead, each an average of exact transitions out of simulated states.

    Attributes:
        first: the law of the first step, which no draw is needed for.
        rows: of every path and step: last_y is (n, k, p).
    """

    first: AbstractLaws
    ssm: StateSpaceModel
    rows: Row
    steps: Array

    def quantiles(self, levels: Float[Array, " k"]) -> Float[Array, "k t d"]:
        """Of the draws; exact for the first step."""
        drawn = jnp.quantile(self.points[:, 1:], levels, axis=0)
        return jnp.concatenate([self.first.quantiles(levels), drawn], axis=1)

    def simulation_errors(self) -> Float[Array, "t d"]:
        """Deviations over the root of the number of paths; zero for the first step."""
        errors = jnp.std(self.points, axis=0) / jnp.sqrt(self.points.shape[0])
        return errors.at[0].set(0.0)

    def density(self, t: int) -> AbstractDensity:
        """sum_i Q(u_i, x; y_i) / N over 4096 of the paths; exact for the first step."""
        if t == 0:
            return self.first.density(0)
        n = min(_IN_DENSITY, self.points.shape[0])
        rows = jax.tree.map(lambda a: a[:n, t], self.rows)
        before = self.points[:n, t - 1]
        return AveragedTransition(self.ssm.log_transition, before, rows, self.steps[t])


class AveragedTransition(AbstractDensity):
    """p(x) = sum_i Q(u_i, x; row_i) / n."""

    log_transition: AbstractFunction
    before: Float[Array, "n d"]
    rows: Row
    step: Array

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.before.shape[1]

    def _scaled_value(self, x: Float[Array, " d"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        def one(u: Array, row: Row) -> Array:
            value = call(self.log_transition, u, x, t=self.step, inputs=row)
            return jnp.asarray(value, dtype=jnp.float64).reshape(())

        logs = jax.vmap(one)(self.before, self.rows)
        logs = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
        total = logsumexp(logs) - jnp.log(self.before.shape[0])
        peak = jax.lax.stop_gradient(jnp.where(jnp.isfinite(total), total, 0.0))
        return jnp.exp(total - peak), peak


class DrawnObservations(AbstractObservedLaws):
    """Laws of y ahead by draws."""

    inner: DrawnLaws
    mean: Float[Array, "k p"]
    covariance: Float[Array, "k p p"]
    leak: Float[Array, " k"]

    def quantiles(self, levels: Float[Array, " k"]) -> Float[Array, "k t p"]:
        """Of the draws."""
        return self.inner.quantiles(levels)

    def cdfs(self, x: Float[Array, "t p"]) -> Float[Array, "t p"]:
        """Of the draws."""
        return self.inner.cdfs(x)

    def expectations(self, fn: Callable[[Array], Numbers]) -> Array:
        """Averages over the draws."""
        return self.inner.expectations(fn)

    def draws(self, key: PRNGKeyArray, num: int) -> Float[Array, "n t p"]:
        """Some of the draws."""
        return self.inner.draws(key, num)

    def density(self, t: int) -> AbstractDensity:
        """Not known from draws alone."""
        return self.inner.density(t)


@eqx.filter_jit
def _paths(ssm: StateSpaceModel, starts: Array, steps: Array, rows: Row, key: PRNGKeyArray):
    move, see = ssm.sample_transition, ssm.sample_observation
    assert move is not None
    assert see is not None

    def path(x: Array, own: PRNGKeyArray):
        def step(carry: tuple[Array, Array], at: tuple[Array, Row, PRNGKeyArray]):
            (old, y), (t, row, one) = carry, at
            row = row._replace(last_y=y)
            keys = jax.random.split(one)
            # The first of them is where the path starts.
            new = jnp.asarray(call(move, keys[0], old, t=t, inputs=row), dtype=jnp.float64)
            new = jnp.where(t == steps[0], old, new.reshape(-1))
            seen = jnp.asarray(call(see, keys[1], new, t=t, inputs=row), dtype=jnp.float64)
            return (new, seen.reshape(-1)), (new, row)

        keys = jax.random.split(own, steps.shape[0])
        first = jnp.asarray(rows.last_y)[0]
        return jax.lax.scan(step, (x, first), (steps, rows, keys))[1]

    return jax.vmap(path)(starts, jax.random.split(key, starts.shape[0]))


def simulated_ahead(ssm: StateSpaceModel, first: Ahead, steps: Array, rows: Row) -> Ahead:
    """The laws of x from that of the first step on."""
    if ssm.sample_transition is None or ssm.sample_observation is None:
        raise ValueError(
            "a forecast of more than one step needs sample_transition and sample_observation: a "
            "function of the model takes last_y, and observations to come must be simulated"
        )
    key, other = jax.random.split(jax.random.key(_SEED))
    starts = first.laws.draws(key, NUM_PATHS)[:, 0]
    x, own = _paths(ssm, starts, steps, rows, other)
    mean = jnp.mean(x, axis=0)
    gap = x - mean[None]
    covariance = jnp.einsum("nki,nkj->kij", gap, gap) / x.shape[0]
    mean = mean.at[0].set(first.mean[0])
    covariance = covariance.at[0].set(first.covariance[0])
    laws = DrawnStates(x, first.laws, ssm, own, steps)
    num = steps.shape[0]
    return Ahead(mean, covariance, laws, jnp.zeros(num), jnp.zeros(num, int))


def observed_by_draws(laws: DrawnStates, key: PRNGKeyArray) -> DrawnObservations:
    """Laws of y for simulated states."""
    ssm = laws.ssm
    see = ssm.sample_observation
    assert see is not None
    n, k = laws.points.shape[:2]
    keys = jax.random.split(key, (n, k))

    def one(own: Array, x: Array, t: Array, row: Row) -> Array:
        drawn = call(see, own, x, t=t, inputs=row)
        return jnp.asarray(drawn, dtype=jnp.float64).reshape(-1)

    each = jax.vmap(jax.vmap(one, in_axes=(0, 0, 0, 0)), in_axes=(0, 0, None, 0))
    y = eqx.filter_jit(each)(keys, laws.points, laws.steps, laws.rows)
    mean = jnp.mean(y, axis=0)
    gap = y - mean[None]
    covariance = jnp.einsum("nki,nkj->kij", gap, gap) / n
    return DrawnObservations(
        inner=DrawnLaws(y), mean=mean, covariance=covariance, leak=jnp.zeros(k)
    )
