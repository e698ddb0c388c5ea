"""Sensors that take `u`, the state before: log G(x, y, u), and draws of such y."""

import inspect
from collections.abc import Callable
from typing import Any

from jaxtyping import Array

from .._checks import Numbers
from .functions import (
    AbstractFunction,
    Inputs,
    Keywords,
    Plain,
    Row,
    Split,
    Time,
    as_function,
    asked_of,
)


class SensorOfPair(AbstractFunction):
    """x, y -> log G(x, y, u), or key, x -> y; u travels in the row."""

    fn: AbstractFunction

    @property
    def keywords(self) -> Keywords:
        """Those of the function, and a row."""
        own = self.fn.keywords.folded()
        return Keywords(own.names | {"inputs"}, own.required)

    @property
    def wants(self) -> frozenset[str]:
        """Those of the function, and the state before."""
        return self.fn.wants | {"u"}

    def __call__(self, *args: Array, t: Time = None, inputs: Inputs = None) -> Numbers:
        """Its value."""
        if not isinstance(inputs, Row) or inputs.u is None:
            raise ValueError(
                "a sensor of the model takes u, the state before, and was asked without one: only "
                'engine "lattice" knows of it'
            )
        return self.fn(*args, u=inputs.u, **asked_of(self.fn, t, inputs))


def as_sensor_function(fn: Any) -> Any:
    """As `as_function`, with a word for sensors that take `u` beside their two arguments."""
    found = as_function(fn)
    own = isinstance(found, Plain | Split)
    return SensorOfPair(found) if own and _takes_u(fn, 2) else found


def refuse_state_before(name: str, fn: Callable[..., object]) -> None:
    """Maps and laws of y are functions of the present state; only densities may take `u`."""
    if _takes_u(fn, 1):
        raise ValueError(
            f"{name} must be a function of the state x alone, got one that takes u, the state "
            "before: write such a sensor as log_observation=lambda x, y, u: ..."
        )


def _takes_u(fn: Callable[..., object], arguments: int) -> bool:
    """Whether `u` comes beside these arguments; among them it is a name for the state."""
    own = fn.fn if isinstance(fn, Plain) else fn
    try:
        parameters = inspect.signature(own).parameters
    except (TypeError, ValueError):
        return False
    if "u" not in parameters:
        return False
    is_keyword = parameters["u"].kind is inspect.Parameter.KEYWORD_ONLY
    return is_keyword or list(parameters).index("u") >= arguments
