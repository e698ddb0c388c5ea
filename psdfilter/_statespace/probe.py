"""What is wrong with the functions of a model, found out by calling them."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.errors import JAXTypeError
from jaxtyping import Array

from .._checks import is_traced
from .functions import AbstractFunction, Plain, Split, call, requires
from .model import StateSpaceModel, log_transition_table

# Points of each axis, by the number of coordinates, on a box this many times as wide.
_POINTS, _WIDER = {1: 1201, 2: 121}, 3.0
# Two rules that differ by more say nothing, and less than this is no fault of a density.
_SURE, _ODD = 0.01, 0.03


def refuse_no_jax(ssm: StateSpaceModel) -> None:
    """Functions that leave JAX, such as those of SciPy, cannot be traced: name the first."""
    if ssm.vectorized or ssm.regimes is not None:
        return
    x = jax.ShapeDtypeStruct((ssm.dim,), jnp.float64)
    y = jax.ShapeDtypeStruct((ssm.num_observed or 1,), jnp.float64)
    _probe("log_prior", ssm.log_prior, x)
    _probe("log_transition", ssm.log_transition, x, x)
    _probe("log_observation", ssm.log_observation, x, y)


def _probe(name: str, fn: AbstractFunction, *args: jax.ShapeDtypeStruct) -> None:
    """Only what leaves JAX is complained of here; other failures belong to the calls to come."""
    if not isinstance(fn, Plain | Split) or requires(fn, "inputs"):
        return
    try:
        _ = jax.eval_shape(lambda *a: call(fn, *a, t=1), *args)
    except JAXTypeError as error:
        raise ValueError(
            f"{name} must be written in JAX, but it turns its arguments into NumPy arrays or "
            "Python numbers: take jax.numpy for numpy, jax.scipy.stats for scipy.stats, jnp.where "
            "for if; or pass NumPy functions of points (n, d) with vectorized=True"
        ) from error
    except Exception:
        return


def odd_mass(ssm: StateSpaceModel) -> float | None:
    """int Q(u, x) dx on all that a wide box holds, if that is not 1 and no more lies outside.

    None where Q is a density, where mass leaves the state's box, and where a rule cannot tell.
    """
    box = ssm.state_box
    if ssm.dim not in _POINTS or ssm.structure is not None or box.periodic or is_traced(ssm):
        return None
    if requires(ssm.log_transition, "inputs"):
        return None
    middle, half = np.asarray(box.center), np.asarray(box.half_width)
    masses = [_mass(ssm, middle, wide * half, wide) for wide in (1.0, _WIDER)]
    if any(mass is None for mass in masses):
        return None
    own, all_of_it = (float(mass) for mass in masses if mass is not None)
    if abs(all_of_it - own) > _SURE * max(own, _SURE) or abs(own - 1) < _ODD:
        return None
    return own


def _mass(ssm: StateSpaceModel, u: np.ndarray, half: np.ndarray, wide: float) -> float | None:
    """By the trapezoidal rule; None if one of half as many points says something else."""
    num = int((_POINTS[ssm.dim] - 1) * wide) + 1 if ssm.dim == 1 else _POINTS[ssm.dim]
    axes = [np.linspace(c - h, c + h, num) for c, h in zip(u, half, strict=True)]
    points = np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], axis=-1)
    group = tuple(range(ssm.dim))
    logs = _table(ssm, group, jnp.asarray(u)[None], jnp.asarray(points))
    values = np.exp(np.nan_to_num(np.asarray(logs)[0], nan=-np.inf)).reshape((num,) * ssm.dim)
    fine, coarse = (_integral(values, axes, step) for step in (1, 2))
    return fine if np.isfinite(fine) and abs(fine - coarse) <= _SURE * abs(fine) else None


def _table(ssm: StateSpaceModel, group: tuple[int, ...], u: Array, x: Array) -> Array:
    if ssm.vectorized:
        return log_transition_table(ssm, group, u, x, t=1)
    return jax.jit(lambda a, b: log_transition_table(ssm, group, a, b, t=1))(u, x)


def _integral(values: np.ndarray, axes: list[np.ndarray], step: int) -> float:
    for axis in reversed(axes):
        values = np.trapezoid(values[..., ::step], axis[::step], axis=-1)
    return float(values)
