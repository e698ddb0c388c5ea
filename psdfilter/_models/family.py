"""What every ready-made family offers: fit, filter, smooth and forecast in one line each."""

from abc import abstractmethod
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import Numbers, as_reals, is_concrete
from .._frames.table import Frame, Times, as_table, labels_of
from .._inference.forecast import forecast
from .._inference.learn import learn
from .._inference.model import AbstractModel
from .._inference.posterior import Forecast, Posterior, Smoothed
from .._inference.run import run_filter
from .._inference.smooth import run_smoother
from .._parameters.fit import Fit, fit
from .._parameters.theta import Bounds, Theta
from .._statespace.model import Inputs, StateSpaceModel

Known = dict[str, float] | None  # numbers of the data


class AbstractFamily(eqx.Module):
    """Models with a few named parameters theta, a dict of numbers."""

    first: ClassVar[str]  # whether the first observation is of the prior's state
    bounds: ClassVar[dict[str, tuple[float | None, float | None]]]  # (lower, upper) by name

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

    def _checked(self, name: str, theta: Theta, start: Theta) -> Theta:
        """Where a search starts, with some numbers given: each must be one that it may be."""
        if not isinstance(theta, dict):
            raise ValueError(f"{name} must be a dict of numbers, got {type(theta).__name__}")
        if unknown := set(theta) - set(start):
            raise ValueError(f"{name} must be some of {', '.join(start)}, got {sorted(unknown)}")
        given = {**start, **theta}
        return {key: _as_parameter(key, given[key], self.bounds.get(key)) for key in given}

    def fit(
        self,
        y: Numbers | Frame,
        *,
        theta0: Theta | None = None,
        times: Times = None,
        inputs: Inputs = None,
        **options: Any,
    ) -> "Fitted":
        """Maximum a posteriori under `log_prior`, which is maximum likelihood where that is flat.

        Args:
            y: one series, NaN where missing; or a data frame, whose index says the times.
            theta0: where to start, some of the parameters or all; by default from moments of the
                data.
            times: as for `run_filter`.
            inputs: likewise, for families with controls or covariates.
            options: of `psdfilter.fit`, such as tol.
        """
        data = as_data(y)
        start = self.start(data)
        if theta0 is not None:
            start = self._checked("theta0", theta0, start)
        known = self.known(data)
        found = fit(
            _Build(self, known),
            start,
            table_of(y, data),
            bounds=self._bounds(start),
            log_prior=None if _is_flat(self) else self.log_prior,
            first=self.first,
            times=times,
            inputs=inputs,
            **options,
        )
        return Fitted(self, found.theta, data, times, found, inputs, table_of(y, data))

    def at(
        self, y: Numbers | Frame, *, times: Times = None, inputs: Inputs = None, **theta: float
    ) -> "Fitted":
        """The family at given parameters with data; what is not given is as a search would start.

        Args:
            y: one series.
            times: as for `run_filter`.
            inputs: likewise.
            theta: parameters by name.
        """
        data = as_data(y)
        start = dict(self.start(data))
        given = self._checked("theta", theta, start)
        return Fitted(self, given, data, times, None, inputs, table_of(y, data))

    def filter(
        self, y: Numbers | Frame, *, times: Times = None, inputs: Inputs = None, **theta: float
    ) -> Posterior:
        """The filter at given parameters."""
        return self.at(y, times=times, inputs=inputs, **theta).filter()

    def smooth(
        self, y: Numbers | Frame, *, times: Times = None, inputs: Inputs = None, **theta: float
    ) -> Smoothed:
        """The smoother at given parameters."""
        return self.at(y, times=times, inputs=inputs, **theta).smooth()


class _Build(eqx.Module):
    """theta -> model; equal to another one of an equal family, whose programs then serve."""

    family: AbstractFamily
    known: Known

    def __call__(self, theta: Theta) -> StateSpaceModel:
        return self.family.build(theta, self.known)


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
    times: Times
    fitted: Fit | None
    inputs: Inputs = None
    table: Frame = None  # the data as they were given: a frame knows its times and names

    @property
    def ssm(self) -> StateSpaceModel:
        """The state-space model."""
        return self.family.build(self.theta, self.family.known(self.y))

    def learned(self, tol: float = 1e-3) -> AbstractModel:
        """The learned model."""
        return learn(self.ssm, tol)

    def filter(self, tol: float = 1e-3) -> Posterior:
        """p(x_t | y_1 ... y_t)."""
        return run_filter(self.learned(tol), self.table, **self._data)

    def smooth(self, tol: float = 1e-3) -> Smoothed:
        """p(x_t | all y)."""
        return run_smoother(self.learned(tol), self.table, **self._data)

    def forecast(
        self, steps: int, *, times: Times = None, inputs: Inputs = None, tol: float = 1e-3
    ) -> Forecast:
        """States, and by `.observations` observations, after the data."""
        post = self.filter(tol)
        return forecast(post.model, post, steps, times=times, inputs=inputs)

    @property
    def _data(self) -> dict[str, Any]:
        return {"first": self.family.first, "times": self.times, "inputs": self.inputs}

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parameters."""
        return self._fit().names

    @property
    def log_likelihood(self) -> Array:
        """Of the data, at the estimate."""
        return self._fit().log_likelihood

    @property
    def num_observed(self) -> int:
        """Number of observations."""
        return self._fit().num_observed

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


def _as_parameter(
    name: str, value: Numbers, bounds: tuple[float | None, float | None] | None
) -> Numbers:
    """A number that may be traced; its bounds themselves are left to the model."""
    number = as_reals(name, value)
    if number.size != 1:
        raise ValueError(f"{name} must be one number, got {value!r}")
    low, high = bounds or (None, None)
    low, high = -np.inf if low is None else low, np.inf if high is None else high
    if is_concrete(number) and not (np.isfinite(number).all() and low <= float(number) <= high):
        raise ValueError(f"{name} must be a number from {low:g} to {high:g}, got {value!r}")
    return value


def _is_flat(family: AbstractFamily) -> bool:
    return type(family).log_prior is AbstractFamily.log_prior


def table_of(y: Frame, data: np.ndarray) -> Frame:
    """A data frame as it is, with its index; anything else as a table of numbers."""
    table = as_table("y", y)
    if labels_of(table) is not None:
        return table
    return data[:, None] if data.ndim == 1 else data


def as_data(y: Numbers | Frame) -> np.ndarray:
    """The data as numbers, with a word about what cannot be one."""
    table = as_table("y", y)
    try:
        data = np.asarray(table, dtype=float)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"y must be a series of numbers, got {type(y).__name__}: pass one column, and its "
            "dates as times="
        ) from error
    if data.ndim not in (1, 2) or data.size == 0:
        raise ValueError(f"y must have shape (T,) or (T, p), got {data.shape}")
    return data


def as_numbers(values: Numbers) -> tuple[float, ...]:
    """A tuple of numbers, which can be compared and hashed."""
    return tuple(float(value) for value in np.atleast_1d(np.asarray(values, dtype=float)))


def as_optional_numbers(values: Numbers | None) -> tuple[float, ...] | None:
    """Likewise, or None."""
    return None if values is None else as_numbers(values)
