"""What the filters of blocks say of every step, and of the series as a whole."""

from abc import abstractmethod

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri
from jaxtyping import Array, Float, Int

from ..._checks import is_concrete


class AbstractStepwise(eqx.Module):
    """Likelihoods, codes and estimated errors, step by step."""

    log_likelihoods: eqx.AbstractVar[Float[Array, " t"]]
    mean: eqx.AbstractVar[Float[Array, "t d"]]
    covariance: eqx.AbstractVar[Float[Array, "t d d"]]
    codes: eqx.AbstractVar[Int[Array, " t"]]
    seen: eqx.AbstractVar[Array]
    fit_errors: eqx.AbstractVar[Float[Array, " t"]]
    compression_losses: eqx.AbstractVar[Float[Array, " t"]]

    @property
    @abstractmethod
    def _engine(self) -> str:
        """What filtered, for the summary."""

    @property
    @abstractmethod
    def pit(self) -> Float[Array, "t *p"]:
        """P(Y_t <= y_t | y before t), uniform on (0, 1) if the model is right."""

    @property
    def residuals(self) -> Float[Array, "t *p"]:
        """Normal quantiles of `pit`: standard normal and independent if the model is right."""
        return ndtri(self.pit)

    @property
    def log_likelihood(self) -> Float[Array, ""]:
        """sum_t log Z_t."""
        return jnp.sum(self.log_likelihoods)

    @property
    def error_estimates(self) -> Float[Array, " t"]:
        """Errors that the steps up to t have added, fits and compression, as a sum.

        An estimate, not a bound: the filter forgets, so that early errors count for less than they
        do here, and zero for an exact filter.
        """
        return jnp.cumsum(self.fit_errors + self.compression_losses)

    @property
    def error_estimate(self) -> Float[Array, ""]:
        """The largest error that a single step has added; see `error_estimates`."""
        return jnp.max(self.fit_errors + self.compression_losses)

    def __str__(self) -> str:
        if not is_concrete(self.log_likelihoods):
            return f"{type(self).__name__}(traced)"
        num, dim = self.mean.shape
        unused = int(np.sum(~np.asarray(self.seen)))
        bad = int(np.sum(np.asarray(self.codes) != 0))
        lines = [
            f"filter of {num} observations, state of {dim} coordinates",
            f"engine             {self._engine}",
            f"log-likelihood     {float(self.log_likelihood):.6f}",
            f"not used           {unused} (missing or refused), {bad} with a bad code",
            f"last mean          {np.array2string(np.asarray(self.mean[-1]), precision=6)}",
            f"last sd            {np.sqrt(np.diagonal(np.asarray(self.covariance[-1])))}",
        ]
        if float(self.error_estimate) > 0:
            lines.append(f"error of a step    {float(self.error_estimate):.1e} (largest estimate)")
        return "\n".join(lines)
