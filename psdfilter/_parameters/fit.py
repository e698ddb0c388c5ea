"""Maximum likelihood and maximum a posteriori, with standard errors."""

import time
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from scipy.special import ndtri

from .._checks import Numbers, as_count
from .._frames.table import Frame, Times
from .._inference.engine import AbstractEngine
from .._inference.posterior import Posterior
from .._learning.progress import Bar
from .._statespace.model import Inputs
from .core import Build
from .likelihood import Likelihood, PlanWarning, likelihood
from .maximize import LogPrior, Objective, Search, maximize
from .profile import Profile, profile_likelihood
from .summary import summary_table
from .theta import Bounds, Coordinates, Theta, as_theta

if TYPE_CHECKING:
    from distributed import Client

# Searches from where one has ended on a plan that did not agree with the filter.
_MOST_AGAIN = 2


class Fit(eqx.Module):
    """An estimate of theta, what it rests on, and how sure it is.

    Attributes:
        theta: the estimate, in the form of theta0.
        log_likelihood: log p(y; theta) there.
        covariance: (p, p), inverse of the observed information, by the delta method from the
            coordinates in which theta has no bounds.
        converged: whether the last Newton step was below 1e-4 standard errors.
        num_steps: quasi-Newton steps.
        num_plans: how often grids and box were chosen anew.
        seconds: time of the whole search.
    """

    likelihood: Likelihood  # on the plan made at the estimate
    objective: Objective
    free: Float[Array, " p"]
    hessian: Float[Array, "p p"]  # of -log posterior in free coordinates
    theta: Theta
    log_likelihood: Float[Array, ""]
    covariance: Float[Array, "p p"]
    converged: bool = eqx.field(static=True)
    num_steps: int = eqx.field(static=True)
    num_plans: int = eqx.field(static=True)
    seconds: float = eqx.field(static=True)

    @property
    def names(self) -> tuple[str, ...]:
        """One for each number of theta."""
        return self.objective.coordinates.names

    @property
    def estimates(self) -> Float[Array, " p"]:
        """theta as a vector, in the order of `names`."""
        return self.objective.coordinates.flatten(self.theta)

    @property
    def standard_errors(self) -> Float[Array, " p"]:
        """Square roots of the diagonal of `covariance`."""
        return jnp.sqrt(jnp.diagonal(self.covariance))

    @property
    def num_observed(self) -> int:
        """Number of observations."""
        return self.likelihood.settings.num_observed

    @property
    def aic(self) -> float:
        """2 p - 2 log L."""
        return 2.0 * len(self.names) - 2.0 * float(self.log_likelihood)

    @property
    def bic(self) -> float:
        """p log T - 2 log L."""
        return len(self.names) * float(np.log(self.num_observed)) - 2.0 * float(self.log_likelihood)

    def interval(self, level: float = 0.95) -> tuple[Float[Array, " p"], Float[Array, " p"]]:
        """Wald interval in coordinates without bounds, carried back: it respects the bounds."""
        if not 0 < level < 1:
            raise ValueError(f"level must lie in (0, 1), got {level!r}")
        deviations = np.sqrt(np.diagonal(_inverse(np.asarray(self.hessian))))
        reach = ndtri(0.5 + 0.5 * level) * deviations
        coordinates = self.objective.coordinates
        ends = coordinates.natural(self.free - reach), coordinates.natural(self.free + reach)
        return jnp.minimum(*ends), jnp.maximum(*ends)

    def profile(self, name: str, *, num: int = 15, width: float = 3.0) -> Profile:
        """max over the other parameters of log L, at `num` values of one within `width` se."""
        return profile_likelihood(self, name, num=num, width=width)

    def posterior(self) -> Posterior | list[Posterior]:
        """The filter at the estimate; a list for several series."""
        return self.likelihood.posterior(self.theta)

    def covering(self, width: float = 4.0, *, tol: float | None = None) -> Likelihood:
        """The likelihood on a plan that serves `width` standard errors around the estimate.

        For samplers, which visit more than a point. `tol` is that of the fit, if None.
        """
        coordinates = self.objective.coordinates
        deviations = np.sqrt(np.diagonal(_inverse(np.asarray(self.hessian))))
        ends = [
            coordinates.to_theta(self.free.at[i].add(sign * width * deviations[i]))
            for i in range(len(self.names))
            for sign in (-1.0, 1.0)
        ]
        tol = self.likelihood.tol if tol is None else tol
        return self.likelihood.replan(self.theta, cover=ends, tol=tol)

    def summary(self, level: float = 0.95) -> str:
        """A table: estimate, standard error, z, p-value and interval of every parameter."""
        return summary_table(self, level)

    def __str__(self) -> str:
        return self.summary()


def fit(
    build: Build,
    theta0: Theta,
    ys: Numbers | Frame | Sequence[Numbers | Frame],
    *,
    bounds: Bounds | None = None,
    log_prior: LogPrior = None,
    tol: float | None = None,
    first: str = "predict",
    inputs: Inputs = None,
    times: Times = None,
    engine: str | AbstractEngine = "auto",
    max_steps: int = 200,
    max_plans: int = 12,
    client: "Client | None" = None,
    progress: bool | None = None,
) -> Fit:
    """The theta that maximises log p(y_1 ... y_T; theta) [+ log p(theta)], with standard errors.

    Args:
        build: theta -> StateSpaceModel, written in JAX.
        theta0: where to start: a pytree of numbers, for example a dict.
        ys: as for `likelihood`: one series, or a list of independent ones with two axes each.
        bounds: name -> (lower, upper), None for no bound; `{"rho": (-1, 1), "sigma": (0, None)}`.
            The search runs in coordinates without bounds.
        log_prior: theta -> log p(theta), for a maximum a posteriori.
        tol: as for `likelihood`.
        first: as for `run_filter`, likewise `inputs` and `times`; lists for several series.
        inputs: see `first`.
        times: see `first`.
        engine: as for `likelihood`.
        max_steps: largest number of quasi-Newton steps.
        max_plans: largest number of times that grids and box are chosen anew.
        client: as for `likelihood`: a Dask client whose workers share the series.
        progress: whether to show a bar; by default on a terminal.
    """
    started = time.perf_counter()
    _ = as_count("max_steps", max_steps)
    _ = as_count("max_plans", max_plans)
    theta0 = as_theta("theta0", theta0)
    coordinates = Coordinates.of(theta0, bounds)
    start = likelihood(
        build,
        theta0,
        ys,
        tol=tol,
        first=first,
        inputs=inputs,
        times=times,
        engine=engine,
        client=client,
    )
    value = float(start.value_and_check(theta0)[0])
    if not np.isfinite(value):
        raise ValueError(
            f"theta0 must have a finite likelihood to start from, got {value}: does the state_box "
            "hold the states that ys speaks of?"
        )
    with Bar("fit", progress) as bar:
        found, complaint = _agreed(start, coordinates, log_prior, (max_steps, max_plans), bar)
    if complaint is not None:
        warnings.warn(f"at the estimate {complaint}", PlanWarning, stacklevel=2)
    theta = coordinates.to_theta(found.free)
    slope = coordinates.jacobian(found.free)
    covariance = slope[:, None] * _inverse(np.asarray(found.hessian)) * slope[None, :]
    return Fit(
        found.likelihood,
        found.objective,
        found.free,
        found.hessian,
        theta,
        found.likelihood.value_and_check(theta)[0],
        jnp.asarray(covariance),
        found.converged,
        found.num_steps,
        found.num_plans,
        time.perf_counter() - started,
    )


def _agreed(
    start: Likelihood,
    coordinates: Coordinates,
    log_prior: LogPrior,
    most: tuple[int, int],
    bar: Bar,
) -> tuple[Search, str | None]:
    """The maximum of a likelihood that agrees with the filter there; what is wrong, if none does.

    A plan that has agreed where it was made may err where the search has ended.
    """
    found = maximize(start, coordinates, log_prior, *most, bar)
    complaint = found.likelihood.complaint(coordinates.to_theta(found.free))
    for _ in range(_MOST_AGAIN):
        if complaint is None:
            break
        again = found.likelihood.replan(coordinates.to_theta(found.free))
        found = maximize(again, coordinates, log_prior, *most, bar)
        complaint = found.likelihood.complaint(coordinates.to_theta(found.free))
    return found, complaint


def _inverse(hessian: Float[np.ndarray, "p p"]) -> Float[np.ndarray, "p p"]:
    """The inverse of a positive definite matrix; NaN, which a summary shows as such, of another."""
    if np.isfinite(hessian).all() and np.linalg.eigvalsh(hessian)[0] > 0:
        root = np.linalg.solve(np.linalg.cholesky(hessian), np.eye(len(hessian)))
        return root.T @ root
    return np.full_like(hessian, np.nan)
