"""What every step of a filter needs and no step changes: made once for each model."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._checks import is_traced
from ..._statespace.functions import Inputs, Time, as_function
from ..._statespace.model import StateSpaceModel
from ..numerics.compiled import remembered
from ..numerics.grids import grid_points, mesh_points
from ..sizing.contraction import Structure
from ..sizing.plan import Plan
from .filled import Filled
from .joint import JointObservation
from .watch import Watch


class Workspace(eqx.Module):
    """Constants of a plan, tabulated.

    Attributes:
        weights: quadrature weights of all nodes.
        features: z_i and z_i z_j at the nodes, for means and covariances.
        training_points: where sqrt G(., y) is evaluated, user units.
        fits: for each axis the matrix from roots at the training nodes to the fit at the nodes.
        check_points: nodes in user units where fits are checked: all, or every other from d = 2 on.
    """

    weights: Float[Array, " n"]
    features: Float[Array, "n k"]
    training_points: Float[Array, "m d"]
    fits: tuple[Float[Array, "_ _"], ...]
    check_points: Float[Array, "c d"]

    @staticmethod
    def of(plan: Plan) -> "Workspace":
        """Tabulate a plan; may be traced."""
        return Workspace(
            plan.node_weights(),
            moment_features(plan),
            plan.training_points(),
            tuple(r.fitted_at(z) for r, z in zip(plan.observation, plan.nodes, strict=True)),
            grid_points(plan.box, tuple(z[:: _stride(plan.shape)] for z in plan.nodes)),
        )


class Stepper(eqx.Module):
    """What the recursion computes with, and no more: a compiled function takes time for each array.

    Attributes:
        prior: the prior at the nodes.
        squares: E_g, the transition at the nodes; None if it varies in time.
        sensor: the model with its observation density only.
        whole: the filled plan, for a transition that varies in time or a joint model of (x, y).
        watch: what the plan gets wrong, if errors are to be estimated on the way.
    """

    space: Workspace
    prior: Float[Array, " n"]
    squares: tuple[Float[Array, "..."], ...] | None
    sensor: StateSpaceModel
    joint: JointObservation | None
    whole: Filled | None
    center: Float[Array, " d"]
    half_width: Float[Array, " d"]
    structure: Structure = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)
    tol: float = eqx.field(static=True)
    watch: Watch | None = None

    @staticmethod
    def of(filled: Filled, space: Workspace | None = None) -> "Stepper":
        """May be traced; `space` if the constants of the plan are known already."""
        plan = filled.plan
        return Stepper(
            Workspace.of(plan) if space is None else space,
            filled.prior,
            None if filled.tables is None else filled.tables.squares,
            sensor_of(filled.ssm),
            filled.joint,
            filled if filled.tables is None or filled.joint is not None else None,
            plan.box.center,
            plan.box.half_width,
            plan.structure,
            plan.shape,
            plan.tol,
        )

    @property
    def weights(self) -> Float[Array, " n"]:
        """Quadrature weights of all nodes."""
        return self.space.weights

    def squares_at(self, t: Time, row: Inputs) -> tuple[Float[Array, "..."], ...]:
        """E_g of the transition into step t."""
        if self.squares is not None:
            return self.squares
        assert self.whole is not None
        return self.whole.tables_at(t, row).squares


_make = eqx.filter_jit(Stepper.of)


def stepper_of(filled: Filled) -> Stepper:
    """The stepper of a filled plan; of a concrete one, made once."""
    if is_traced(filled.prior_root) or is_traced(filled.plan.nodes):
        return Stepper.of(filled)

    def make() -> Stepper:
        with jax.ensure_compile_time_eval():
            return _make(filled)

    return remembered(filled, Stepper, make)


_watch = eqx.filter_jit(Watch.of)


def watched_stepper_of(filled: Filled) -> Stepper:
    """The stepper that estimates the errors of its steps; made once, of a model written in JAX."""
    if is_traced(filled.prior_root) or is_traced(filled.plan.nodes):
        return replace(Stepper.of(filled), watch=Watch.of(filled))

    def make() -> Stepper:
        with jax.ensure_compile_time_eval():
            return replace(stepper_of(filled), watch=_watch(filled))

    return remembered(filled, Watch, make)


def _nothing(*_: object) -> float:
    return 0.0


def sensor_of(ssm: StateSpaceModel) -> StateSpaceModel:
    """The model without prior, transition and structure."""
    return StateSpaceModel(
        log_prior=as_function(_nothing),
        log_transition=as_function(_nothing),
        log_observation=ssm.log_observation,
        state_box=ssm.state_box,
        observation_box=ssm.observation_box,
        vectorized=ssm.vectorized,
        marginalizes_missing=ssm.marginalizes_missing,
    )


def _stride(shape: tuple[int, ...]) -> int:
    return 1 if len(shape) == 1 else 2


def at_check_points(shape: tuple[int, ...], values: Float[Array, "t n"]) -> Float[Array, "t c"]:
    """Values at the nodes, those at the check points only."""
    stride = _stride(shape)
    if stride == 1:
        return values
    tensor = values.reshape(values.shape[0], *shape)
    return tensor[(slice(None), *(slice(None, None, stride) for _ in shape))].reshape(
        values.shape[0], -1
    )


def moment_features(plan: Plan) -> Float[Array, "n k"]:
    """z_i and z_i z_j at the nodes: one product with the weights gives mean and covariance."""
    z = mesh_points(plan.nodes)
    dim = z.shape[1]
    products = [z[:, i] * z[:, j] for i in range(dim) for j in range(i, dim)]
    return jnp.concatenate([z, jnp.stack(products, axis=-1)], axis=1)
