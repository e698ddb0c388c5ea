"""What inference returns: summaries at hand, densities and quantiles when asked for."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import Numbers, as_count, as_key
from .plan import Plan
from .refine import FineNodes, fine_nodes
from .summaries import axis_marginal, check_level, draw, line_quantiles


def moment_features(plan: Plan) -> Float[Array, "n k"]:
    """z_i and z_i z_j at the nodes: one product with the weights gives mean and covariance."""
    mesh = jnp.meshgrid(*plan.nodes, indexing="ij")
    z = jnp.stack([m.ravel() for m in mesh], axis=-1)
    dim = z.shape[1]
    products = [z[:, i] * z[:, j] for i in range(dim) for j in range(i, dim)]
    return jnp.concatenate([z, jnp.stack(products, axis=-1)], axis=1)


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

    def to_xarray(self) -> Any:
        """Mean, standard deviation, 5, 50 and 95 per cent quantiles as an xarray Dataset."""
        try:
            import xarray
        except ImportError as error:
            raise ImportError("to_xarray needs xarray: pip install 'psdfilter[frames]'") from error
        levels = [0.05, 0.5, 0.95]
        deviation = jnp.sqrt(jnp.diagonal(self.covariance, axis1=1, axis2=2))
        return xarray.Dataset(
            {
                "mean": (("time", "state"), np.asarray(self.mean)),
                "sd": (("time", "state"), np.asarray(deviation)),
                "covariance": (("time", "state", "state_"), np.asarray(self.covariance)),
                "quantile": (("level", "time", "state"), np.asarray(self.quantile(levels))),
            },
            coords={"level": levels},
        )


@eqx.filter_jit
def _quantiles(post: AbstractPosterior, levels: Float[Array, " k"]) -> Float[Array, "k t d"]:
    fine = fine_nodes(post.model)
    values = post._values_on(fine)
    box = post.model.plan.box
    columns = []
    for axis in range(len(fine.shape)):
        line = axis_marginal(values, fine.shape, fine.weights, axis)
        q = jnp.broadcast_to(levels[None, :], (line.shape[0], levels.size))
        z = line_quantiles(line, q)
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
        z = draw(line, fine.shape, fine.weights, draw_key)
        return box.center + box.half_width * z

    return jax.lax.map(lambda ks: jax.vmap(one)(values, ks), keys)


def checked_sample(post: AbstractPosterior, key: Any, num: int) -> Float[Array, "k t d"]:
    """Check, then draw."""
    return sample_marginals(post, as_key("key", key), as_count("num", num))
