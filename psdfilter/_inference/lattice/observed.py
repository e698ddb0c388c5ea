"""Laws of y: sums of Gaussians where sensors have Gaussian noise, else a grid over their box.

Those of sensors that take the state before are simulated.
"""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from ..._statespace.angles import Turns
from ..._statespace.functions import GaussianObservation, Inputs, Row, as_vector, call
from ..._statespace.model import StateSpaceModel, log_observation_grid
from ..gaussian.bank import Bank, Layout
from ..gaussian.laws import BankLaws
from ..numerics.observed import GridLaws, observation_grid
from ..transformed.simulated import NUM_PATHS, DrawnLaws, DrawnObservations
from .laws import LatticeLaws
from .space import grid_of
from .values import parts_of

_SEED = 20_240_101


def sensors_of(ssm: StateSpaceModel) -> tuple[GaussianObservation, ...] | None:
    """The sensors of all regimes, if all of them are maps with Gaussian noise."""
    sensors = tuple(model.log_observation for model in parts_of(ssm))
    if not all(isinstance(sensor, GaussianObservation) for sensor in sensors):
        return None
    return sensors  # pyright: ignore[reportReturnType]


@eqx.filter_jit
def gaussian_laws(laws: LatticeLaws, steps: Int[Array, " t"], rows: Inputs) -> BankLaws:
    """One Gaussian for every node and regime; angles by whole turns next to their mean."""
    sensors = sensors_of(laws.ssm)
    assert sensors is not None
    noises = jnp.stack([sensor.noise.matrix() for sensor in sensors])

    def one(at: tuple[Array, Array, Array, Array, Inputs]) -> Bank:
        lower, upper, log_masses, t, row = at
        lattice = laws.lattices._replace(lower=lower, upper=upper)
        nodes = laws.space.wrapped(grid_of(laws.space, lattice.window, laws.num).nodes)
        means = jnp.stack([jax.vmap(lambda x, s=s: s.mean(x, t, row))(nodes) for s in sensors])
        turns = sensors[0].noise.turns
        if turns is not None:
            means = _gathered(turns, means, jnp.exp(log_masses))
        return Bank(log_masses, means, noises)

    parts = laws.lattices
    bank = jax.lax.map(one, (parts.lower, parts.upper, parts.log_masses, steps, rows))
    return BankLaws.of(bank, Layout())


def _gathered(
    turns: Turns, means: Float[Array, "k n p"], masses: Float[Array, "k n"]
) -> Float[Array, "k n p"]:
    angles = 2 * jnp.pi * means / turns.periods[None, None, :]
    sine = jnp.einsum("kn,knp->p", masses, jnp.sin(angles))
    cosine = jnp.einsum("kn,knp->p", masses, jnp.cos(angles))
    middle = jnp.arctan2(sine, cosine) * turns.periods / (2 * jnp.pi)
    nearest = jax.vmap(jax.vmap(lambda h: middle + turns.nearest(h - middle)))(means)
    circle = jnp.asarray([p in turns.axes for p in range(means.shape[-1])])
    return jnp.where(circle[None, None, :], nearest, means)


@eqx.filter_jit
def grid_laws(laws: LatticeLaws, steps: Int[Array, " t"], rows: Inputs) -> GridLaws:
    """By quadrature over `observation_box`."""
    box = laws.ssm.observation_box
    assert box is not None
    ys, _ = observation_grid(box)

    def one(at: tuple[Array, Array, Array, Array, Inputs]) -> Array:
        lower, upper, log_masses, t, row = at
        lattice = laws.lattices._replace(lower=lower, upper=upper)
        nodes = laws.space.wrapped(grid_of(laws.space, lattice.window, laws.num).nodes)
        total = jnp.zeros(ys.shape[0])
        for k, model in enumerate(parts_of(laws.ssm)):
            table = jnp.exp(log_observation_grid(model, nodes, ys, t, row))
            total = total + jnp.exp(log_masses[k]) @ jnp.where(jnp.isnan(table), 0.0, table)
        return total

    parts = laws.lattices
    values = jax.lax.map(one, (parts.lower, parts.upper, parts.log_masses, steps, rows))
    return GridLaws.of(box, values)


def drawn_laws(laws: LatticeLaws, steps: Int[Array, " t"], rows: Inputs) -> DrawnObservations:
    """By draws of u, x and y in turn, for sensors that take u."""
    key, other = jax.random.split(jax.random.key(_SEED))
    before = replace(laws, lattices=laws.laws.before.lattice, sinks=None).draws(key, NUM_PATHS)
    y = _draws(laws.ssm, before, steps, rows, other)
    mean = jnp.mean(y, axis=0)
    gap = y - mean[None]
    covariance = jnp.einsum("nki,nkj->kij", gap, gap) / y.shape[0]
    leak = jnp.zeros(y.shape[1])
    return DrawnObservations(inner=DrawnLaws(y), mean=mean, covariance=covariance, leak=leak)


@eqx.filter_jit
def _draws(
    ssm: StateSpaceModel,
    before: Float[Array, "n t d"],
    steps: Int[Array, " t"],
    rows: Inputs,
    key: PRNGKeyArray,
) -> Float[Array, "n t p"]:
    move, see = ssm.sample_transition, ssm.sample_observation
    assert move is not None
    assert see is not None

    def one(own: PRNGKeyArray, u: Array, t: Array, row: Row) -> Array:
        first, second = jax.random.split(own)
        x = as_vector(call(move, first, u, t=t, inputs=row))
        return as_vector(call(see, second, x, t=t, inputs=row._replace(u=u)))

    keys = jax.random.split(key, before.shape[:2])
    each = jax.vmap(jax.vmap(one), in_axes=(0, 0, None, None))
    return each(keys, before, steps, rows)
