"""What inference returns: summaries at hand, densities and quantiles when asked for."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import Numbers, as_count, as_key, is_concrete
from .plan import Plan
from .refine import FineNodes, fine_nodes
from .summaries import axis_marginal, check_level, draw, graded_quantiles
from .workspace import moment_features as moment_features


def moments_from_features(
    plan: Plan, features: Float[Array, "t k"]
) -> tuple[Float[Array, "t d"], Float[Array, "t d d"]]:
    """Mean and covariance in user units."""
    dim = len(plan.nodes)
    unit_mean = features[:, :dim]
    rows, columns = np.triu_indices(dim)
    second = jnp.zeros((features.shape[0], dim, dim)).at[:, rows, columns].set(features[:, dim:])
    second = second.at[:, columns, rows].set(features[:, dim:])
    unit_covariance = second - unit_mean[:, :, None] * unit_mean[:, None, :]
    scale = plan.box.half_width
    mean = plan.box.center[None, :] + scale[None, :] * unit_mean
    return mean, unit_covariance * jnp.outer(scale, scale)[None]


def moments_on(
    points: Float[Array, "n d"], shares: Float[Array, "t n"]
) -> tuple[Float[Array, "t d"], Float[Array, "t d d"]]:
    """Mean and covariance of points under rows of weights that sum to one."""
    mean = shares @ points
    delta = points[None] - mean[:, None, :]
    return mean, jnp.einsum("tn,tni,tnj->tij", shares, delta, delta)


class AbstractPosterior(eqx.Module):
    """Laws of the state at T times, as densities on quadrature nodes.

    All results are in user units. `mean` (T, d) and `covariance` (T, d, d) are at hand; everything
    else is computed when asked for, on finer nodes than the recursion used.
    """

    model: eqx.AbstractVar[Any]
    mean: eqx.AbstractVar[Array]
    covariance: eqx.AbstractVar[Array]

    @abstractmethod
    def _values_on(self, fine: FineNodes) -> Float[Array, "t n"]:
        """Densities in unit coordinates on other nodes, for all times."""

    @property
    @abstractmethod
    def _times(self) -> Array:
        """When the laws are those of, (T,)."""

    @abstractmethod
    def _facts(self) -> dict[str, float]:
        """Numbers about all of it, for the summary and for attributes."""

    def quantile(self, q: Numbers) -> Float[Array, "t d"]:
        """The q-quantile of every coordinate at every time; a leading axis for several q."""
        levels = jnp.asarray(q, dtype=jnp.float64)
        check_level(np.asarray(q, dtype=float))
        values = _quantiles(self, levels.ravel())
        return values[0] if levels.ndim == 0 else values.reshape(*levels.shape, *values.shape[1:])

    def interval(self, mass: float = 0.9) -> tuple[Float[Array, "t d"], Float[Array, "t d"]]:
        """Lower and upper end of the central interval of the given mass."""
        if not 0 < mass < 1:
            raise ValueError(f"mass must lie in (0, 1), got {mass}")
        ends = self.quantile([0.5 * (1 - mass), 0.5 * (1 + mass)])
        return ends[0], ends[1]

    def expect(self, fn: Callable[[Array], Any]) -> Array:
        """E[fn(x_t)] for every t; fn takes one state (d,)."""
        return _expectations(self, fn)

    def to_xarray(self, quantiles: Sequence[float] = (0.05, 0.5, 0.95)) -> Any:
        """Mean, standard deviation, covariance and quantiles as an xarray Dataset.

        Coordinates are `time` (in transitions from the prior), `state` and `quantile`; the
        log-likelihood and the tolerance are attributes. `quantiles=()` leaves quantiles out, for
        results that kept summaries only.
        """
        try:
            import xarray
        except ImportError as error:
            raise ImportError("to_xarray needs xarray: pip install 'psdfilter[frames]'") from error
        mean, covariance = np.asarray(self.mean), np.asarray(self.covariance)
        deviation = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
        numbers = np.arange(mean.shape[1])
        fields: dict[str, Any] = {
            "mean": (("time", "state"), mean),
            "sd": (("time", "state"), deviation),
            "covariance": (("time", "state", "other_state"), covariance),
        }
        coordinates: dict[str, Any] = {
            "time": np.asarray(self._times),
            "state": numbers,
            "other_state": numbers,
        }
        if len(quantiles):
            values = np.asarray(self.quantile(list(quantiles)))
            fields["quantiles"] = (("quantile", "time", "state"), values)
            coordinates["quantile"] = list(quantiles)
        return xarray.Dataset(fields, coords=coordinates, attrs=self._facts())

    def __str__(self) -> str:
        if not is_concrete(self.mean):
            return f"{type(self).__name__}(traced)"
        num, dim = self.mean.shape
        times = np.asarray(self._times)
        rows = {
            "times": f"{num}, from {times[0]} to {times[-1]}; state of {dim} coordinates",
            **{name: f"{value:.6g}" for name, value in self._facts().items()},
            "last mean": np.array2string(np.asarray(self.mean[-1]), precision=6),
            "last sd": np.array2string(
                np.sqrt(np.diagonal(np.asarray(self.covariance[-1]))), precision=6
            ),
        }
        width = 2 + max(len(name) for name in rows)
        lines = [f"{name.replace('_', ' '):<{width}}{value}" for name, value in rows.items()]
        return "\n".join([type(self).__name__, *lines])


class AbstractFilterPosterior(AbstractPosterior):
    """Laws of the state given the past and the present, from whichever engine."""

    series: eqx.AbstractVar[Any]
    log_likelihoods: eqx.AbstractVar[Array]
    codes: eqx.AbstractVar[Array]
    log_kept: eqx.AbstractVar[Array]
    log_normalizers: eqx.AbstractVar[Array]
    seen: eqx.AbstractVar[Array]

    @abstractmethod
    def on_nodes(self) -> Any:
        """The same filter as the node engine has it, which knows laws of y and certificates."""

    @property
    def log_likelihood(self) -> Float[Array, ""]:
        """sum_t log Z_t."""
        return jnp.sum(self.log_likelihoods)

    @property
    def log_predictive(self) -> Float[Array, ""]:
        """sum_t log(Z_t / D_t), normalised: D_t is int G^ Q^ pi_{t-1} over the boxes of x and y.

        With observation="joint" each factor is a density of y_t on observation_box. With "each",
        G^ is not known for other y than those seen, and D_t is the predicted mass on the state box.
        """
        return jnp.sum(jnp.where(self.seen, self.log_likelihoods - self.log_normalizers, 0.0))

    def sample(self, *, key: PRNGKeyArray, num: int) -> Float[Array, "k t d"]:
        """Independent draws from every marginal, (num, T, d); paths come from the smoother."""
        return checked_sample(self, key, num)

    @property
    def predicted_observations(self) -> Any:
        """The law of y_t given y before t, for every t; needs `observation_box`."""
        from .observations import predictive_laws

        return predictive_laws(self.on_nodes())

    def observation_density(self, t: int) -> Any:
        """p(y_t | y before t), a `GaussianPSD` in y; for models with observation="joint"."""
        from .observations import observation_density

        return observation_density(self.on_nodes(), t)

    @property
    def pit(self) -> Float[Array, " t"]:
        """P(Y_t <= y_t | y before t), uniform on (0, 1) if the model is right."""
        from .observations import probability_transforms

        return probability_transforms(self.on_nodes())

    @property
    def residuals(self) -> Float[Array, " t"]:
        """Normal quantiles of `pit`: standard normal and independent if the model is right."""
        from .observations import residuals

        return residuals(self.on_nodes())

    @property
    def certificate(self) -> Any:
        """What can be proved about the error, and what can be estimated; see the guide."""
        from .certificate import certificate

        return certificate(self.on_nodes())

    @property
    def error_estimate(self) -> Float[Array, ""]:
        """Largest total variation between these densities and those of a finer filter.

        Runs the filter again on a plan for a thirtieth of the tolerance: an estimate from the data
        at hand, not a bound.
        """
        return jnp.max(self.error_estimates)

    @property
    def error_estimates(self) -> Float[Array, " t"]:
        """`error_estimate` for every t."""
        from .estimate import estimate_errors

        return estimate_errors(self)

    @property
    def _times(self) -> Array:
        return self.series.steps

    def _facts(self) -> dict[str, float]:
        return {
            "log_likelihood": float(self.log_likelihood),
            "tolerance": self.model.tol,
            "not_used": int(np.sum(~np.asarray(self.seen))),
            "bad_codes": int(np.sum(np.asarray(self.codes) != 0)),
            "least_mass_kept_in_box": float(jnp.exp(jnp.min(self.log_kept))),
        }


@eqx.filter_jit
def _quantiles(post: AbstractPosterior, levels: Float[Array, " k"]) -> Float[Array, "k t d"]:
    fine = fine_nodes(post.model)
    values = post._values_on(fine)
    box = post.model.plan.box
    columns = []
    for axis in range(len(fine.shape)):
        line = axis_marginal(values, fine.shape, fine.weights, axis)
        q = jnp.broadcast_to(levels[None, :], (line.shape[0], levels.size))
        z = graded_quantiles(line, q, fine.nodes[axis], fine.weights[axis])
        columns.append(box.center[axis] + box.half_width[axis] * z.T)
    return jnp.stack(columns, axis=-1)


@eqx.filter_jit
def _expectations(post: AbstractPosterior, fn: Callable[[Array], Any]) -> Array:
    fine = fine_nodes(post.model)
    values = post._values_on(fine) * fine.flat_weights()[None, :]
    shares = values / jnp.sum(values, axis=1, keepdims=True)
    image = jax.vmap(lambda x: jnp.asarray(fn(x), dtype=jnp.float64))(fine.points(post.model))
    return jnp.tensordot(shares, image, axes=1)


@eqx.filter_jit
def sample_marginals(post: AbstractPosterior, key: PRNGKeyArray, num: int) -> Float[Array, "k t d"]:
    """Independent draws from the law of every time."""
    fine = fine_nodes(post.model)
    values = post._values_on(fine)
    box = post.model.plan.box
    keys = jax.random.split(key, (num, values.shape[0]))

    def one(line: Float[Array, " n"], draw_key: PRNGKeyArray) -> Float[Array, " d"]:
        z = draw(line, fine.nodes, fine.weights, draw_key)
        return box.center + box.half_width * z

    return jax.lax.map(lambda ks: jax.vmap(one)(values, ks), keys)


def checked_sample(post: AbstractPosterior, key: Any, num: int) -> Float[Array, "k t d"]:
    """Check, then draw."""
    return sample_marginals(post, as_key("key", key), as_count("num", num))
