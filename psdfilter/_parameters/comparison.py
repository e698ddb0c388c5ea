"""Which model? Log-likelihoods side by side, and tests between nested models."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float
from scipy.special import chdtrc

from .fit import Fit
from .likelihood import Likelihood
from .theta import Theta, as_theta, names_of


class Comparison(NamedTuple):
    """Fits of several models to the same series, the best by AIC first."""

    names: tuple[str, ...]
    log_likelihoods: tuple[float, ...]
    num_parameters: tuple[int, ...]
    aic: tuple[float, ...]
    bic: tuple[float, ...]

    @property
    def weights(self) -> np.ndarray:
        """Akaike weights, exp(-AIC / 2) made to sum to one."""
        gap = -0.5 * (np.asarray(self.aic) - min(self.aic))
        return np.exp(gap) / np.sum(np.exp(gap))

    def __str__(self) -> str:
        head = ("model", "log-likelihood", "p", "AIC", "BIC", "weight")
        rows = [
            (name, f"{ll:.3f}", str(p), f"{a:.3f}", f"{b:.3f}", f"{w:.3f}")
            for name, ll, p, a, b, w in zip(*self, self.weights, strict=True)
        ]
        widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
        return "\n".join(
            row[0].ljust(widths[0])
            + "".join(
                cell.rjust(width + 2) for cell, width in zip(row[1:], widths[1:], strict=True)
            )
            for row in (head, *rows)
        )


class Estimated(Protocol):
    """What is compared: a fit, or a ready-made family that was fitted."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parameters."""
        ...

    @property
    def log_likelihood(self) -> Float[Array, ""]:
        """At the estimate."""
        ...

    @property
    def num_observed(self) -> int:
        """Number of observations."""
        ...

    @property
    def aic(self) -> float:
        """2 p - 2 log L."""
        ...

    @property
    def bic(self) -> float:
        """p log T - 2 log L."""
        ...


def compare(fits: Mapping[str, Estimated]) -> Comparison:
    """Log-likelihood, AIC and BIC of fits to the same observations, the best by AIC first."""
    if len({fit.num_observed for fit in fits.values()}) != 1:
        counts = {name: fit.num_observed for name, fit in fits.items()}
        raise ValueError(f"fits must be to the same observations, got these many: {counts}")
    order = sorted(fits, key=lambda name: fits[name].aic)
    chosen = [fits[name] for name in order]
    return Comparison(
        tuple(order),
        tuple(float(fit.log_likelihood) for fit in chosen),
        tuple(len(fit.names) for fit in chosen),
        tuple(fit.aic for fit in chosen),
        tuple(fit.bic for fit in chosen),
    )


class ChiSquaredTest(NamedTuple):
    """A statistic that is chi-squared with `degrees` degrees of freedom if the null is true."""

    statistic: float
    degrees: int
    p_value: float


def likelihood_ratio_test(null: Fit, alternative: Fit) -> ChiSquaredTest:
    """2 (log L_1 - log L_0), for a null model that is a special case of the alternative.

    Both at their maxima. A parameter that the null puts on a bound breaks the chi-squared law.
    """
    if null.num_observed != alternative.num_observed:
        raise ValueError(
            "null and alternative must be fitted to the same observations, got "
            f"{null.num_observed} and {alternative.num_observed}"
        )
    degrees = len(alternative.names) - len(null.names)
    if degrees < 1:
        raise ValueError(
            "alternative must have more parameters than null, got "
            f"{len(alternative.names)} and {len(null.names)}"
        )
    statistic = 2.0 * float(alternative.log_likelihood - null.log_likelihood)
    return ChiSquaredTest(statistic, degrees, float(chdtrc(degrees, statistic)))


@eqx.filter_jit
def _scores(likelihood: Likelihood, theta: Theta) -> Float[Array, "t p"]:
    """Derivative of every increment in every parameter: one forward sweep each."""
    flat, unravel = ravel_pytree(theta)

    def increments(vector: Array) -> Array:
        return jnp.concatenate(likelihood.core.increments(unravel(vector), forward=True))

    return jax.jacfwd(increments)(flat)


def score_test(
    likelihood: Likelihood, theta: Theta, restricted: Sequence[str], *, information: str = "outer"
) -> ChiSquaredTest:
    """s' I^{-1} s at a theta estimated under the null: needs no fit of the larger model.

    Args:
        likelihood: of the larger model.
        theta: its parameters, those named in `restricted` at their values under the null and the
            others at their estimates under it.
        restricted: names of the parameters that the null fixes.
        information: "outer": sum of outer products of the scores of the increments; "observed":
            minus the Hessian.
    """
    theta = as_theta("theta", theta)
    names = names_of(theta)
    unknown = [name for name in restricted if name not in names]
    if unknown or not restricted:
        raise ValueError(f"restricted must name some of {', '.join(names)}, got {restricted!r}")
    if information not in ("outer", "observed"):
        raise ValueError(f'information must be "outer" or "observed", got {information!r}')
    flat, unravel = ravel_pytree(theta)
    gradient = np.asarray(jax.grad(lambda v: likelihood.core.total(unravel(v))[0])(flat))
    if information == "outer":
        scores = np.asarray(_scores(likelihood, theta))
        matrix = scores.T @ scores
    else:
        hessian = jax.hessian(lambda v: likelihood.core.total(unravel(v))[0])
        matrix = -np.asarray(hessian(flat))
        if not np.linalg.eigvalsh(matrix)[0] > 0:
            raise ValueError(
                'information="observed" must be positive definite at theta, and is not: is theta '
                'an estimate under the null? information="outer" always is'
            )
    held = np.array([name in restricted for name in names])
    # The others are at their maximum: their score is zero but for the accuracy of the search.
    gradient = np.where(held, gradient, 0.0)
    statistic = float(gradient @ np.linalg.solve(matrix, gradient))
    return ChiSquaredTest(statistic, len(restricted), float(chdtrc(len(restricted), statistic)))
