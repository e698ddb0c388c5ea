"""The filter as an object that is told what happens, as users of filterpy have it."""

import numpy as np
from jaxtyping import Float

from .._checks import Numbers
from .._density.psd import AbstractDensity
from .._statespace.model import Inputs
from .model import AbstractModel
from .online import FilterState, init, predict, update
from .registry import as_model


class OnlineFilter:
    """predict(), update(y), and what is known now: `x`, `P`, `pdf`.

    A thin holder of a `FilterState`; every call replaces the state, which is a value and can be
    kept, compared and gone back to.

    Attributes:
        model: the learned model.
        state: the filter between two calls.
    """

    def __init__(self, model: AbstractModel):
        """Start from the prior of a model from `learn`."""
        self.model = as_model(model)
        self.state: FilterState = init(self.model)

    def predict(self, *, inputs: Inputs = None, dt: Numbers = 1.0) -> "OnlineFilter":
        """One transition, `dt` later for models that take it."""
        self.state = predict(self.model, self.state, inputs=inputs, dt=dt)
        return self

    def update(self, y: Numbers, *, inputs: Inputs = None) -> "OnlineFilter":
        """One observation; NaN is missing."""
        self.state = update(self.model, self.state, y, inputs=inputs)
        return self

    @property
    def x(self) -> Float[np.ndarray, " d"]:
        """Mean of the state."""
        return np.asarray(self.state.moments(self.model)[0])

    @property
    def P(self) -> Float[np.ndarray, "d d"]:
        """Covariance of the state."""
        return np.asarray(self.state.moments(self.model)[1])

    @property
    def pdf(self) -> AbstractDensity:
        """The law of the state as a density, a function of points (..., d)."""
        return self.state.density(self.model)

    @property
    def log_likelihood(self) -> float:
        """Of all observations so far."""
        return float(self.state.log_likelihood)

    def __repr__(self) -> str:
        return f"OnlineFilter: {self.state}"
