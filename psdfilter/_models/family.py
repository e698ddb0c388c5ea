"""What every ready-made family offers: fit, filter, smooth and forecast in one line each."""

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import Numbers
from .._inference.forecast import forecast
from .._inference.learn import learn
from .._inference.model import AbstractModel
from .._inference.posterior import Forecast, Posterior, Smoothed
from .._inference.run import run_filter
from .._inference.smooth import run_smoother
from .._parameters.fit import Fit, fit
from .._parameters.theta import Bounds, Theta
from .._statespace.model import StateSpaceModel

Known = dict[str, float] | None  # numbers of the data


class AbstractFamily(eqx.Module):
    """Models with a few named parameters theta, a dict of numbers."""

    first: ClassVar[str]  # whether the first observation is of the prior's state
    bounds: ClassVar[dict[str, tuple[float | None, float | None]]]

    @abstractmethod
    def start(self, y: np.ndarray) -> Theta:
        """Where a search starts, from moments of the data."""

    @abstractmethod
    def build(self, theta: Theta, known: Known = None) -> StateSpaceModel:
        """The state-space model of parameters that may be traced, and of `known` numbers."""

    def known(self, y: np.ndarray) -> Known:
        """Numbers that a model takes from the data and does not estimate."""
        del y
        return None

    def log_prior(self, theta: Theta) -> Array:
        """log p(theta), flat unless a family says otherwise."""
        del theta
        return jnp.zeros(())

    def _bounds(self, theta: Theta) -> Bounds:
        return {name: self.bounds[name] for name in theta if name in self.bounds}

    def fit(
        self, y: Numbers, *, theta0: Theta | None = None, times: Any = None, **options: Any
    ) -> "Fitted":
        """Maximum a posteriori under `log_prior`, which is maximum likelihood where that is flat.

        Args:
            y: one series, NaN where missing.
            theta0: where to start; by default from moments of the data.
            times: as for `run_filter`.
            options: of `psdfilter.fit`, such as tol.
        """
        data = as_data(y)
        start = self.start(data) if theta0 is None else theta0
        known = self.known(data)
        found = fit(
            lambda theta: self.build(theta, known),
            start,
            data[:, None] if data.ndim == 1 else data,
            bounds=self._bounds(start),
            log_prior=None if _is_flat(self) else self.log_prior,
            first=self.first,
            times=times,
            **options,
        )
        return Fitted(self, found.theta, data, times, found)

    def at(self, y: Numbers, *, times: Any = None, **theta: float) -> "Fitted":
        """The family at given parameters with data; what is not given is as a search would start.

        Args:
            y: one series.
            times: as for `run_filter`.
            theta: parameters by name.
        """
        data = as_data(y)
        start = dict(self.start(data))
        unknown = set(theta) - set(start)
        if unknown:
            raise ValueError(f"theta must be some of {', '.join(start)}, got {sorted(unknown)}")
        return Fitted(self, {**start, **theta}, data, times, None)

    def filter(self, y: Numbers, *, times: Any = None, **theta: float) -> Posterior:
        """The filter at given parameters."""
        return self.at(y, times=times, **theta).filter()

    def smooth(self, y: Numbers, *, times: Any = None, **theta: float) -> Smoothed:
        """The smoother at given parameters."""
        return self.at(y, times=times, **theta).smooth()


class Fitted(eqx.Module):
    """A family with its parameters and data.

    Attributes:
        family: the family.
        theta: its parameters.
        y: the data.
        fitted: the fit, with standard errors; None for parameters that were given.
    """

    family: AbstractFamily
    theta: Theta
    y: np.ndarray
    times: Any
    fitted: Fit | None

    @property
    def ssm(self) -> StateSpaceModel:
        """The state-space model."""
        return self.family.build(self.theta, self.family.known(self.y))

    def learned(self, tol: float = 1e-3) -> AbstractModel:
        """The learned model."""
        return learn(self.ssm, tol)

    def filter(self, tol: float = 1e-3) -> Posterior:
        """p(x_t | y_1 ... y_t)."""
        return run_filter(self.learned(tol), self.y, first=self.family.first, times=self.times)

    def smooth(self, tol: float = 1e-3) -> Smoothed:
        """p(x_t | all y)."""
        return run_smoother(self.learned(tol), self.y, first=self.family.first, times=self.times)

    def forecast(self, steps: int, *, times: Any = None, tol: float = 1e-3) -> Forecast:
        """States, and by `.observations` observations, after the data."""
        post = self.filter(tol)
        return forecast(post.model, post, steps, times=times)

    @property
    def aic(self) -> float:
        """2 p - 2 log L."""
        return self._fit().aic

    @property
    def bic(self) -> float:
        """p log T - 2 log L."""
        return self._fit().bic

    def summary(self) -> str:
        """A table of estimates, standard errors and intervals."""
        return self._fit().summary()

    def _fit(self) -> Fit:
        if self.fitted is None:
            raise ValueError("this needs a fit: the parameters were given")
        return self.fitted

    def __str__(self) -> str:
        if self.fitted is not None:
            return f"{type(self.family).__name__}\n{self.summary()}"
        each = ", ".join(f"{name} = {float(value):.4g}" for name, value in self.theta.items())
        return f"{type(self.family).__name__}({each})"


def _is_flat(family: AbstractFamily) -> bool:
    return type(family).log_prior is AbstractFamily.log_prior


def as_data(y: Numbers) -> np.ndarray:
    """The data as numbers, with a word about what cannot be one."""
    try:
        data = np.asarray(y, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"y must be a series of numbers, got {type(y).__name__}: pass one column, and its "
            "dates as times="
        ) from error
    if data.ndim not in (1, 2) or data.size == 0:
        raise ValueError(f"y must have shape (T,) or (T, p), got {data.shape}")
    return data
