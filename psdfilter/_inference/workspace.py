"""What every step of a filter needs and no step changes: made once for each model."""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .plan import Plan, grid_points


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
            grid_points(plan.box, tuple(z[:: _stride(plan)] for z in plan.nodes)),
        )


def _stride(plan: Plan) -> int:
    return 1 if len(plan.nodes) == 1 else 2


def at_check_points(plan: Plan, values: Float[Array, "t n"]) -> Float[Array, "t c"]:
    """Values at the nodes, those at the check points only."""
    stride = _stride(plan)
    if stride == 1:
        return values
    tensor = values.reshape(values.shape[0], *plan.shape)
    return tensor[(slice(None), *(slice(None, None, stride) for _ in plan.nodes))].reshape(
        values.shape[0], -1
    )


def moment_features(plan: Plan) -> Float[Array, "n k"]:
    """z_i and z_i z_j at the nodes: one product with the weights gives mean and covariance."""
    mesh = jnp.meshgrid(*plan.nodes, indexing="ij")
    z = jnp.stack([m.ravel() for m in mesh], axis=-1)
    dim = z.shape[1]
    products = [z[:, i] * z[:, j] for i in range(dim) for j in range(i, dim)]
    return jnp.concatenate([z, jnp.stack(products, axis=-1)], axis=1)
