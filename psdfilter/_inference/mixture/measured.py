"""Which directions of the state an observation density depends on."""

from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from ..._statespace.functions import Inputs
from ..gaussian.linear import Dynamics
from ..gaussian.mixture import Mixture, moments

# Rules along the measured directions are tensor products.
MAX_MEASURED = 3
# 576 gradients: a direction is overlooked only if G does not vary along it at any of them.
_STATES, _ROWS = 48, 12


def measured_coordinates(name: str, axes: int | Sequence[int], dim: int) -> np.ndarray:
    """The unit vectors of coordinates that the user has named, (d, q)."""
    chosen = np.atleast_1d(np.asarray(axes, dtype=int))
    if chosen.ndim != 1 or not 1 <= chosen.size <= MAX_MEASURED:
        raise ValueError(f"{name} must name 1 to {MAX_MEASURED} coordinates, got {axes!r}")
    if np.any((chosen < 0) | (chosen >= dim)) or len(set(chosen)) != chosen.size:
        raise ValueError(f"{name} must be distinct numbers in 0..{dim - 1}, got {axes!r}")
    return np.eye(dim)[:, chosen]


# y, t, row -> x -> log G(x, y), a pytree.
Likelihood = Callable[[Array, Array, Inputs], Callable[[Array], Array]]


def measured_directions(
    likelihood: Likelihood,
    prior: Mixture,
    dynamics: Dynamics,
    ys: np.ndarray,
    steps: np.ndarray,
    rows: Inputs,
) -> np.ndarray:
    """V (d, q) with G(x, y) a function of V'x, from gradients of log G at typical states.

    Unit vectors if these are coordinates, else a basis of all gradients.
    """
    whole = np.flatnonzero(np.isfinite(ys).all(axis=1))
    if whole.size == 0:
        raise ValueError(
            "ys must hold a complete observation, to see which coordinates of the state matter; or "
            "name these: engine=psdfilter.engines.Mixture(measured=(0, 1))"
        )
    # As many of a short series, some of them twice: one program for all lengths.
    picked = whole[np.linspace(0, whole.size - 1, _ROWS).astype(int)]
    states, spread = _typical(prior, dynamics, int(np.max(steps)))
    part = jax.tree.map(lambda a: np.asarray(a)[picked], rows)
    gradients = _gradients(likelihood, states, ys[picked], steps[picked], part)
    scaled = np.asarray(gradients).reshape(-1, prior.dim) * spread[None, :]
    norms = np.linalg.norm(scaled, axis=1)
    good = np.isfinite(norms) & (norms > 0)
    if not good.any():
        raise ValueError(
            "log_observation has no gradient in the state at any typical one: does it depend on x? "
            "If it is not differentiable, name the coordinates: learn(..., measured=(0, 1))"
        )
    unit = scaled[good] / norms[good][:, None]
    touched = np.flatnonzero(np.abs(unit).max(axis=0) > 1e-9)
    values, vectors = np.linalg.eigh(unit.T @ unit / len(unit))
    rank = int(np.sum(values > 1e-16 * values[-1]))
    if touched.size == rank <= MAX_MEASURED:
        return np.eye(prior.dim)[:, touched]
    if rank > MAX_MEASURED:
        raise ValueError(
            f"log_observation must depend on at most {MAX_MEASURED} directions of the state for "
            f'engine="mixture", but its gradients span {rank}: quadratures in more are out of reach'
        )
    return vectors[:, -rank:] / spread[:, None]


@eqx.filter_jit
def _gradients(
    likelihood: Likelihood,
    states: Float[Array, "n d"],
    ys: Float[Array | np.ndarray, "t p"],
    steps: Int[Array | np.ndarray, " t"],
    rows: Inputs,
) -> Float[Array, "t n d"]:
    """Of log G, in the state."""

    def log_g(x: Array, y: Array, t: Array, row: Inputs) -> Array:
        return likelihood(y, t, row)(x)

    over_states = jax.vmap(jax.grad(log_g), (0, None, None, None))
    return jax.vmap(over_states, (None, 0, 0, 0))(states, ys, steps, rows)


def _typical(prior: Mixture, dynamics: Dynamics, horizon: int) -> tuple[Array, np.ndarray]:
    """States of the prior at several times, and the scale of each coordinate."""
    F, b, Q = (np.asarray(a) for a in dynamics)
    mean, covariance = (np.asarray(a) for a in moments(prior))
    rng = np.random.default_rng(0)
    laws = []
    for t in range(min(horizon, 64) + 1):
        if t in (0, 1, 4, 16, 64):
            laws.append((mean, covariance))
        mean, covariance = F @ mean + b, F @ covariance @ F.T + Q
    count = -(-_STATES // len(laws))
    states = np.concatenate(
        [rng.multivariate_normal(m, P, size=count, method="eigh") for m, P in laws]
    )
    spread = states.std(axis=0)
    return jnp.asarray(states), np.where(spread > 0, spread, 1.0)
