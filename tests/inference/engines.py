"""Engines and a small model for each: what the laws of all engines run over.

A new engine gets all laws by adding a line.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import jax.numpy as jnp
import numpy as np

import psdfilter as psd


@dataclass(frozen=True)
class Case:
    ssm: Callable[[], psd.StateSpaceModel]
    engine: object
    tol: float
    ys: tuple[float, ...]
    # How far answers by quadrature may be off: that of the engine, not of the filter.
    accuracy: float = 1e-6
    slow: bool = False


@cache
def sine():
    return psd.systems.sine_map()


@cache
def level():
    """A random walk that is seen with noise, on all of R."""
    return psd.linear_gaussian(1.0, 0.3, 1.0, 0.5, 0.0, 1.0)


@cache
def plane():
    return psd.systems.linear_2d()


@cache
def counted():
    """A random walk seen through counts: no closed form for G."""

    def log_observation(x, y):
        return y[0] * x[0] - jnp.exp(x[0]) - jnp.sum(jnp.log(jnp.arange(1.0, 3.0)))

    return psd.linear_gaussian(0.9, 0.01, None, None, 0.0, 0.4, log_observation=log_observation)


@cache
def bent():
    """Noise that is small for its box: followed by linearised Gaussians."""
    return psd.additive_gaussian(
        lambda x: x + 0.1 * jnp.sin(x), lambda x: x + 0.1 * x**2, 1e-4, 1e-2, 0.3, 0.04
    )


@cache
def swing():
    """A damped pendulum whose height is seen."""
    return psd.additive_gaussian(
        lambda x: jnp.stack([0.7 * x[0] + 0.3 * x[1], 0.7 * x[1] - 0.3 * jnp.sin(x[0])]),
        lambda x: jnp.sin(x[0]),
        [0.25, 0.25],
        0.09,
        [0.3, 0.0],
        [0.25, 0.25],
        state_box=([-4.0, -4.0], [4.0, 4.0]),
        observation_box=([-3.0], [3.0]),
    )


@cache
def two_levels():
    """A random walk with two sizes of steps."""
    calm, wild = (psd.linear_gaussian(0.9, q, 1.0, 0.5, 0.0, 1.0) for q in (0.1, 1.0))
    return psd.switching([calm, wild], [[0.9, 0.1], [0.3, 0.7]])


@cache
def compass():
    """A heading that turns, seen by a compass."""
    return psd.additive_gaussian(
        lambda x: x + 0.5,
        lambda x: x,
        0.04,
        0.1,
        -1.0,
        0.1,
        state_box=psd.Box(-np.pi, np.pi, periodic=0),
        wrap=[True],
    )


_SEEN = (0.2, 0.5, 0.1, 0.6, 0.3)
_TURNS = (-0.6, 0.1, 0.5, 0.9, 1.6)
_COUNTS = (1.0, 2.0, 0.0, 1.0, 3.0)

CASES = {
    "adaptive": Case(sine, "adaptive", 1e-2, _SEEN, accuracy=1e-4),
    "adaptive on R": Case(bent, "adaptive", 1e-2, _SEEN, accuracy=1e-4),
    "adaptive in the plane": Case(swing, "adaptive", 1e-2, _SEEN, accuracy=1e-4),
    "nodes": Case(sine, "nodes", 1e-2, _SEEN, accuracy=1e-5),
    "nodes joint": Case(
        sine, psd.engines.Nodes(observation="joint"), 1e-2, _SEEN, accuracy=1e-5, slow=True
    ),
    "closed": Case(sine, "closed", 1e-2, _SEEN),
    "reference": Case(sine, "reference", 0.5, _SEEN[:3], slow=True),
    "exact": Case(level, "exact", 1e-3, _SEEN),
    "exact plane": Case(plane, "exact", 1e-3, _SEEN),
    "mixture of sensors": Case(counted, psd.engines.Mixture(order=8), 5e-2, _COUNTS),
    "linearised mixture": Case(bent, psd.engines.Mixture(order=8), 2e-1, _SEEN),
    "lattice of regimes": Case(two_levels, "lattice", 1e-2, _SEEN, accuracy=1e-5),
    "lattice on a circle": Case(compass, "lattice", 1e-2, _TURNS, accuracy=1e-5, slow=True),
    "branches": Case(two_levels, "branches", 2e-1, _SEEN),
    "free": Case(sine, "free", 1e-1, _SEEN, accuracy=1e-4, slow=True),
}


@cache
def learned(name: str):
    case = CASES[name]
    return psd.learn(case.ssm(), case.tol, engine=case.engine)


@cache
def series(name: str) -> np.ndarray:
    model, ys = learned(name), np.asarray(CASES[name].ys)
    return np.repeat(ys[:, None], model.num_observed or 1, axis=1)


@cache
def filtered(name: str):
    return psd.run_filter(learned(name), series(name))
