"""What a case of the zoo holds: a model as a user writes it, data, and its densities again."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Pair = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """Densities on the line, in NumPy, and hints for the quadrature of the reference.

    log_prior(x), log_transition(u, x, t) and log_observation(x, y, t) broadcast over u and x; y is
    one row. The hints decide how much work the reference does, never what it converges to: it is
    computed twice, the second time finer and deeper, and the two must agree.

    Attributes:
        centre: u, t -> where Q(u, .) lies; several branches as a leading axis.
        width: smallest length on which Q(u, x) varies in x; a number or a function of u and t.
        prior: an interval that holds the prior, in which it is at least a hundredth wide.
        box: the state's box; None for the whole line.
        reach: "gauss", "exp", or "box" for kernels whose tails matter everywhere.
        spread: how far Q(u, .) reaches from `centre` before its tails begin.
        kinks: x, t -> (n, b) the old states u at which Q(u, x) has a kink or jump.
        breaks: places where the prior, f, or a likelihood may have a kink, jump or narrow peak.
        sensor_breaks: y, t -> more of those.
        deep: densities are kept down to exp(-deep) of their maximum; outliers need a lot.
        start: the state is known exactly at time 0.
    """

    log_prior: Callable[..., Any] | None
    log_transition: Callable[..., Any]
    log_observation: Callable[..., Any]
    centre: Callable[..., Any]
    width: Any
    prior: Pair
    box: Pair | None = None
    reach: str = "gauss"
    spread: float = 0.0
    kinks: Callable[..., Any] | None = None
    breaks: tuple[float, ...] = ()
    sensor_breaks: Callable[..., Any] | None = None
    deep: float = 40.0
    start: float | None = None


@dataclass(frozen=True)
class Plane:
    """Densities on the plane. x = frame z, and Q(u, .) is a mixture of products over the axes of z.

    Attributes:
        log_prior: x (n, 2) -> (n,).
        log_axis: i, u (n, 2), z (k,), t, component -> (n, k), log Q of axis i of z.
        log_observation: x (n, 2), y, t -> (n,).
        centre: u, t -> (n, 2) in z; several branches as a leading axis.
        width: (2,), smallest lengths on which Q varies along z.
        prior: lower and upper corner of a rectangle in z that holds the prior.
        frame: (2, 2); the identity if the state has a box.
        log_weight: u, t -> (components, n), log-weights of the components.
    """

    log_prior: Callable[..., Any]
    log_axis: Callable[..., Any]
    log_observation: Callable[..., Any]
    centre: Callable[..., Any]
    width: tuple[float, float]
    prior: tuple[Pair, Pair]
    box: tuple[Pair, Pair] | None = None
    reach: str = "gauss"
    spread: float = 0.0
    frame: Any = None
    log_weight: Callable[..., Any] | None = None
    breaks: tuple[tuple[float, ...], tuple[float, ...]] = ((), ())
    deep: float = 25.0


@dataclass(frozen=True)
class Case:
    """One model of the zoo.

    Attributes:
        build: -> the model, as a new user would write it, in JAX.
        data: -> dict(ys=..., times=..., first=...), the arguments of `run_filter`.
        truth: the same densities, written again in NumPy.
    """

    name: str
    dim: int
    build: Callable[[], Any]
    data: Callable[[], dict[str, Any]]
    truth: Any
    tags: frozenset[str] = field(default_factory=frozenset)


class Registry(dict):
    """Cases by name; `add` decorates functions that return build, data and truth."""

    def add(self, dim: int, *tags: str):
        def register(fn):
            build, data, truth = fn()
            name = fn.__name__
            if name in self:
                raise ValueError(f"two cases are called {name}")
            self[name] = Case(name, dim, build, data, truth, frozenset(tags))
            return fn

        return register


def simulate(seed, num, start, move, see):
    """y_1 ... y_num of move(rng, u, t) and see(rng, x, t) from start(rng)."""

    rng = np.random.default_rng(seed)
    state, seen = start(rng), []
    for t in range(1, num + 1):
        state = move(rng, state, t)
        seen.append(see(rng, state, t))
    return np.asarray(seen, dtype=float)


def rows(data):
    """ys (T, p), times (T,) of the arguments of run_filter."""
    ys = np.asarray(data["ys"], dtype=float)
    ys = ys[:, None] if ys.ndim == 1 else ys
    first = data.get("first", "predict")
    times = data.get("times")
    if times is None:
        times = np.arange(len(ys)) + (1 if first == "predict" else 0)
    return ys, np.asarray(times, dtype=int)
