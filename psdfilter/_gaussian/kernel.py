"""The Gaussian kernel k_eta(x, z) = exp(-sum_l eta_l (x_l - z_l)^2) and its pair identities.

Two identities carry the whole calculus (all per coordinate):

    k_eta(x, a) k_eta(x, b)     = k_{eta/2}(a, b) k_{2 eta}(x, (a + b) / 2)
    k_alpha(x, a) k_beta(x, b)  = k_{alpha beta / (alpha + beta)}(a, b)
                                  k_{alpha + beta}(x, (alpha a + beta b) / (alpha + beta))
"""

import jax.numpy as jnp
from jaxtyping import Array, Float


def squared_distances(
    x: Float[Array, "n d"], z: Float[Array, "m d"], precision: Float[Array, " d"]
) -> Float[Array, "n m"]:
    """D_ij = sum_l eta_l (x_il - z_jl)^2, by differences: no cancellation for near points."""
    # Axis by axis: one fused loop over (n, m), measured 2.5 times faster than a sum over a third
    # array axis.
    total = jnp.zeros((x.shape[0], z.shape[0]))
    for axis in range(x.shape[1]):
        total = total + precision[axis] * jnp.square(x[:, axis, None] - z[None, :, axis])
    return total


def gram(
    x: Float[Array, "n d"], z: Float[Array, "m d"], precision: Float[Array, " d"]
) -> Float[Array, "n m"]:
    """K_ij = k_eta(x_i, z_j)."""
    return jnp.exp(-squared_distances(x, z, precision))


def log_total_mass(precision: Float[Array, " d"]) -> Float[Array, ""]:
    """log of the integral of k_eta over R^d, c(eta) = prod sqrt(pi / eta_l)."""
    return 0.5 * jnp.sum(jnp.log(jnp.pi / precision))


def midpoints(x: Float[Array, "m d"]) -> Float[Array, "m m d"]:
    """(x_i + x_j) / 2, the centres of all pair products."""
    return 0.5 * (x[:, None, :] + x[None, :, :])
