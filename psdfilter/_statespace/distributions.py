"""Distributions of other libraries as laws: anything with `log_prob` and `sample`.

NumPyro's interface, and TensorFlow Probability's where it differs (`sample(seed=)`); a list of
distributions of single numbers is a product.
"""

import inspect
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from .._checks import Numbers, is_concrete
from .coordinates import AbstractAxis, Coordinates, Real, as_axis
from .functions import AbstractFunction, Inputs, Keywords, Time, call

Distribution = Any  # of another library


def check_distribution(name: str, law: Distribution) -> None:
    """An error that says what is asked of a distribution."""
    for part in _parts(law):
        for method in ("log_prob", "sample"):
            if not callable(getattr(part, method, None)):
                raise ValueError(
                    f"{name} must be a distribution with log_prob and sample, such as "
                    f"numpyro.distributions.Normal(0.0, 1.0), or a list of them, got "
                    f"{type(part).__name__}"
                )


def _parts(law: Distribution) -> tuple[Distribution, ...]:
    return tuple(law) if isinstance(law, tuple | list) else (law,)


def _shape(law: Distribution) -> tuple[int, ...]:
    """Of one draw."""
    batch, event = getattr(law, "batch_shape", None), getattr(law, "event_shape", None)
    if batch is None or event is None:
        return tuple(jax.eval_shape(lambda key: draw(law, key), jax.random.key(0)).shape)
    return (*tuple(batch), *tuple(event))


def size_of_law(name: str, law: Distribution) -> int:
    """Number of coordinates."""
    if isinstance(law, tuple | list):
        if any(size_of_law(name, part) != 1 for part in law):
            raise ValueError(f"{name} must be a list of distributions of single numbers")
        return len(law)
    shape = _shape(law)
    if len(shape) > 1:
        raise ValueError(f"{name} must be a distribution of a vector (d,), got shape {shape}")
    return shape[0] if shape else 1


def is_product(law: Distribution) -> bool:
    """Whether the coordinates are independent: a list, a batch, or `Independent` of one."""
    if isinstance(law, tuple | list):
        return True
    base = getattr(law, "base_dist", None)
    if base is not None and type(law).__name__ == "Independent":
        return is_product(base)
    return tuple(getattr(law, "event_shape", (0,))) == ()


def log_probs(law: Distribution, x: Array) -> Array:
    """log p_l(x_l) of every coordinate of a product (d,), or log p(x) alone (1,).

    -inf outside of the support, whatever the library returns there. The density is taken at a point
    of the support instead, so that its gradient is a number.
    """
    if isinstance(law, tuple | list):
        return jnp.concatenate([log_probs(part, x[i : i + 1]) for i, part in enumerate(law)])
    base = getattr(law, "base_dist", None)
    if base is not None and type(law).__name__ == "Independent" and is_product(base):
        law = base
    value = x.reshape(_shape(law))
    constraint = getattr(law, "support", None)
    if not callable(constraint):
        return jnp.asarray(law.log_prob(value), dtype=jnp.float64).reshape(-1)
    inside = jnp.asarray(constraint(value))
    feasible = getattr(constraint, "feasible_like", None)
    if callable(feasible):
        lifted = inside.reshape(inside.shape + (1,) * (value.ndim - inside.ndim))
        value = jnp.where(lifted, value, jnp.asarray(feasible(value), dtype=value.dtype))
    logs = jnp.asarray(law.log_prob(value), dtype=jnp.float64)
    return jnp.where(inside.reshape(logs.shape), logs, -jnp.inf).reshape(-1)


def draw(law: Distribution, key: Array) -> Array:
    """One draw (d,)."""
    parts = _parts(law)
    keys = jax.random.split(key, len(parts)) if len(parts) > 1 else [key]
    drawn = [
        jnp.asarray(_sampler(part)(one), dtype=jnp.float64).reshape(-1)
        for part, one in zip(parts, keys, strict=True)
    ]
    return jnp.concatenate(drawn)


def _sampler(law: Distribution) -> Callable[[Array], Array]:
    try:
        takes_seed = "seed" in inspect.signature(law.sample).parameters
    except (TypeError, ValueError):
        takes_seed = False
    return (lambda key: law.sample(seed=key)) if takes_seed else law.sample


class Support(eqx.Module):
    """Where draws lie: an interval for each coordinate, and whether they are whole numbers."""

    axes: tuple[AbstractAxis, ...]
    discrete: bool = eqx.field(static=True, default=False)


def support_of(name: str, law: Distribution) -> Support:
    """Read off the distribution; the real line if it does not say."""
    if isinstance(law, tuple | list):
        each = [support_of(name, part) for part in law]
        return Support(tuple(s.axes[0] for s in each), any(s.discrete for s in each))
    dim, constraint = size_of_law(name, law), getattr(law, "support", None)
    discrete = bool(getattr(constraint, "is_discrete", False))
    while (inner := getattr(constraint, "base_constraint", None)) is not None:
        constraint = inner
    low, high = getattr(constraint, "lower_bound", None), getattr(constraint, "upper_bound", None)
    word = type(constraint).__name__.lower()
    if low is None and high is None:
        if "positive" in word or "softplus" in word:
            low = 0.0
        elif "boolean" in word:
            low, high, discrete = 0.0, 1.0, True
        elif constraint is not None and "real" not in word:
            raise ValueError(
                f"{name} must have coordinates that are real, positive or between two bounds, got "
                f"a {type(law).__name__} with the support {constraint}"
            )
    lows = [None] * dim if low is None else _each(low, dim)
    highs = [None] * dim if high is None else _each(high, dim)
    if discrete:
        # Bounds are values that occur.
        return Support((Real(),) * dim, True)
    pairs = zip(lows, highs, strict=True)
    return Support(tuple(as_axis((a, b)) for a, b in pairs), discrete)


def _each(bound: Numbers, dim: int) -> list[Array]:
    array = jnp.broadcast_to(jnp.asarray(bound, dtype=jnp.float64).reshape(-1), (dim,))
    return [array[i] for i in range(dim)]


def joined(first: Support, second: Support) -> Coordinates:
    """The smallest intervals that hold two supports, axis by axis."""
    return Coordinates(tuple(_hull(a, b) for a, b in zip(first.axes, second.axes, strict=True)))


def _hull(a: AbstractAxis, b: AbstractAxis) -> AbstractAxis:
    lows, highs = [_wall(one, "lower") for one in (a, b)], [_wall(one, "upper") for one in (a, b)]
    return as_axis((_outer(lows, min), _outer(highs, max)))


def _wall(axis: AbstractAxis, name: str) -> Array | None:
    return getattr(axis, name, None)


def _outer(walls: list[Array | None], choose: Callable[..., Any]) -> Any:
    if any(wall is None for wall in walls):
        return None
    if not all(is_concrete(wall) for wall in walls):
        return walls[1]
    return choose(walls, key=float)


class AbstractOfLaw(AbstractFunction):
    """A function that asks the user's for a distribution."""

    law: eqx.AbstractVar[AbstractFunction]

    @property
    def keywords(self) -> Keywords:
        """Those of the user's function."""
        return self.law.keywords.folded()

    @property
    def wants(self) -> frozenset[str]:
        """Those of the user's function."""
        return self.law.wants


class LawPrior(AbstractFunction):
    """log p(x) of a distribution."""

    law: Distribution

    @property
    def keywords(self) -> Keywords:
        """None."""
        return Keywords(frozenset(), frozenset())

    def __call__(self, x: Array) -> Array:
        """At one point."""
        return jnp.sum(log_probs(self.law, x))


class LawPriorSampler(AbstractFunction):
    """Draws of a distribution."""

    law: Distribution

    @property
    def keywords(self) -> Keywords:
        """None."""
        return Keywords(frozenset(), frozenset())

    def __call__(self, key: Array) -> Array:
        """One draw."""
        return draw(self.law, key)


class LawTransition(AbstractOfLaw):
    """log Q(u, x) of transition(u)."""

    law: AbstractFunction

    def __call__(self, u: Array, x: Array, t: Time = None, inputs: Inputs = None) -> Array:
        """At one pair."""
        return jnp.sum(log_probs(call(self.law, u, t=t, inputs=inputs), x))


class LawTransitionAxis(AbstractOfLaw):
    """log Q_i(u, x_i) of a product."""

    law: AbstractFunction
    dim: int = eqx.field(static=True)

    def __call__(
        self, i: int, u: Array, x_i: Array, t: Time = None, inputs: Inputs = None
    ) -> Array:
        """At one pair: factors of other axes are dropped, whatever they are at x_i."""
        law = call(self.law, u, t=t, inputs=inputs)
        if isinstance(law, tuple | list):
            return log_probs(law[i], x_i.reshape(1))[0]
        return log_probs(law, jnp.full((self.dim,), x_i))[i]


class LawObservation(AbstractOfLaw):
    """log G(x, y) of observation(x); NaN coordinates of a product are left out."""

    law: AbstractFunction

    def __call__(self, x: Array, y: Array, t: Time = None, inputs: Inputs = None) -> Array:
        """At one pair."""
        law = call(self.law, x, t=t, inputs=inputs)
        seen = ~jnp.isnan(y)
        # A typical value takes the place of NaN before anything differentiable meets it.
        filled = jnp.where(seen, y, _feasible(law, y))
        logs = log_probs(law, filled)
        shown = seen if logs.shape == seen.shape else jnp.all(seen)[None]
        return jnp.sum(jnp.where(shown, logs, 0.0))


class LawSampler(AbstractOfLaw):
    """Draws of law(x)."""

    law: AbstractFunction

    def __call__(self, key: Array, x: Array, t: Time = None, inputs: Inputs = None) -> Array:
        """One draw."""
        return draw(call(self.law, x, t=t, inputs=inputs), key)


def _feasible(law: Distribution, y: Array) -> Array:
    if isinstance(law, tuple | list):
        return jnp.concatenate([_feasible(part, y[i : i + 1]) for i, part in enumerate(law)])
    feasible = getattr(getattr(law, "support", None), "feasible_like", None)
    if not callable(feasible):
        return jnp.zeros_like(y)
    return jnp.asarray(feasible(y.reshape(_shape(law))), dtype=y.dtype).reshape(-1)


def as_leaves(law: Distribution) -> Distribution:
    """A distribution with its numbers as arrays, so that models share their programs."""
    return jax.tree.map(
        lambda leaf: (
            jnp.asarray(leaf, dtype=jnp.float64) if isinstance(leaf, float | np.floating) else leaf
        ),
        list(law) if isinstance(law, tuple) else law,
    )
