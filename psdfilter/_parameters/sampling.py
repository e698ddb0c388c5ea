"""For samplers: a log-posterior in coordinates without bounds, and draws in the form of ArviZ."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._checks import Numbers
from .likelihood import Likelihood
from .maximize import LogPrior
from .theta import Bounds, Coordinates, Theta

if TYPE_CHECKING:
    import arviz


class LogPosterior(eqx.Module):
    """z -> log p(y; theta(z)) + log p(theta(z)) + log |d theta / d z|, for any gradient sampler.

    Without a prior the Jacobian makes it flat in theta, inside the bounds.
    """

    likelihood: Likelihood
    coordinates: Coordinates
    log_prior: Callable[[Theta], Numbers] | None = eqx.field(static=True)

    def __call__(self, free: Float[Array, " p"]) -> Float[Array, ""]:
        """The log-density at z, up to a constant."""
        theta = self.coordinates.to_theta(free)
        value = self.likelihood(theta) + self.coordinates.log_jacobian(free)
        if self.log_prior is not None:
            value = value + jnp.asarray(self.log_prior(theta), dtype=jnp.float64).reshape(())
        # A sampler rejects what is impossible; NaN would stop it.
        return jnp.where(jnp.isnan(value), -jnp.inf, value)

    def to_free(self, theta: Theta) -> Float[Array, " p"]:
        """z of theta."""
        return self.coordinates.to_free(theta)

    def to_theta(self, free: Float[Array, " p"]) -> Theta:
        """theta of z."""
        return self.coordinates.to_theta(free)


def log_posterior(
    likelihood: Likelihood, *, log_prior: LogPrior = None, bounds: Bounds | None = None
) -> LogPosterior:
    """A log-density on R^p for BlackJAX and its like; `fit(...).covering()` gives the likelihood.

    Args:
        likelihood: from `psdfilter.likelihood` or `fit.covering()`.
        log_prior: theta -> log p(theta).
        bounds: as for `fit`.
    """
    return LogPosterior(likelihood, Coordinates.of(likelihood.theta, bounds), log_prior)


def to_arviz(
    likelihood: Likelihood, draws: Mapping[str, Numbers], *, pointwise: bool = True
) -> "arviz.InferenceData":
    """Draws of theta as ArviZ data, with pointwise log-likelihoods for LOO and WAIC.

    Args:
        likelihood: of one series.
        draws: name -> (chains, draws, ...), with the names of a theta that is a dict.
        pointwise: whether to compute log p(y_t | y_1 ... y_{t-1}; theta), one filter for each draw.
    """
    try:
        import arviz
    except ImportError as error:
        raise ImportError("to_arviz needs arviz: pip install 'psdfilter[samplers]'") from error
    if not isinstance(likelihood.theta, dict) or set(draws) != set(likelihood.theta):
        raise ValueError(
            f"draws must have the names of theta, {sorted(likelihood.theta)}, got {sorted(draws)}"
            if isinstance(likelihood.theta, dict)
            else "the likelihood's theta must be a dict, so that draws have names"
        )
    if likelihood.settings.several:
        raise ValueError("likelihood must be that of one series, got several")
    arrays = {name: np.asarray(values, dtype=float) for name, values in draws.items()}
    if any(values.ndim < 2 for values in arrays.values()):
        shapes = {name: values.shape for name, values in arrays.items()}
        raise ValueError(f"draws must have shape (chains, draws, ...), got {shapes}")
    groups: dict[str, Any] = {"posterior": arrays}
    if pointwise:
        chains, count = next(iter(arrays.values())).shape[:2]
        flat = {name: jnp.asarray(v.reshape(-1, *v.shape[2:])) for name, v in arrays.items()}
        logs = _pointwise(likelihood, flat)
        groups["log_likelihood"] = {"y": np.asarray(logs).reshape(chains, count, -1)}
    observed = {"y": np.asarray(likelihood.settings.ys, dtype=float)}
    return arviz.from_dict(**groups, observed_data=observed)


@eqx.filter_jit
def _pointwise(likelihood: Likelihood, thetas: Theta) -> Float[Array, "n t"]:
    return jax.lax.map(lambda theta: likelihood.core.increments(theta)[0], thetas)
