"""Integrals of one-dimensional Gaussians exp(-kappa (t - m)^2) over an interval [a, b].

With p = sqrt(kappa)(a - m), q = sqrt(kappa)(b - m), reflected so that q >= |p|, and
erfc(t) = exp(-t^2) erfcx(t),

    I0 = sqrt(pi / kappa)/2 (2 - erfc |p| - erfc q)                            if p <= 0,
    I0 = sqrt(pi / kappa)/2 exp(-p^2) (erfcx p - exp(p^2 - q^2) erfcx q)       if p > 0.

The factor exp(-p^2) is handed back as an exponent: far in the tail nothing underflows and no
logarithm is taken.
"""

import jax.numpy as jnp
from jax.scipy.special import erfcx
from jaxtyping import Array, Float


def _ends(
    lower: Float[Array, "..."],
    upper: Float[Array, "..."],
    center: Float[Array, "..."],
    kappa: Float[Array, "..."],
) -> tuple[Float[Array, "..."], Float[Array, "..."], Float[Array, "..."]]:
    """p, q after reflection, and the exponent max(p, 0)^2 that the mass carries."""
    root = jnp.sqrt(kappa)
    p, q = root * (lower - center), root * (upper - center)
    flip = jnp.abs(p) > jnp.abs(q)
    p, q = jnp.where(flip, -q, p), jnp.where(flip, -p, q)
    return p, q, jnp.square(jnp.maximum(p, 0.0))


def _scaled_erfc(t: Float[Array, "..."], exponent: Float[Array, "..."]) -> Float[Array, "..."]:
    """exp(exponent) erfc(t) for t >= 0; zero at t = inf, with finite gradients there."""
    finite = jnp.isfinite(t)
    safe = jnp.where(finite, t, 1.0)
    power = jnp.where(finite, exponent, 0.0) - jnp.square(safe)
    return jnp.where(finite, jnp.exp(power) * erfcx(safe), 0.0)


def scaled_interval_mass(
    lower: Float[Array, "..."],
    upper: Float[Array, "..."],
    center: Float[Array, "..."],
    kappa: Float[Array, "..."],
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """J, s with I0 = J exp(-s): s is 0 if the interval holds the centre. Bounds may be infinite."""
    p, q, exponent = _ends(lower, upper, center, kappa)
    near_end, far_end = _scaled_erfc(jnp.abs(p), exponent), _scaled_erfc(q, exponent)
    difference = jnp.where(p > 0, near_end - far_end, 2.0 - near_end - far_end)
    return 0.5 * jnp.sqrt(jnp.pi / kappa) * difference, exponent


def scaled_interval_moments(
    lower: Float[Array, "..."],
    upper: Float[Array, "..."],
    center: Float[Array, "..."],
    kappa: Float[Array, "..."],
) -> tuple[Float[Array, "..."], Float[Array, "..."], Float[Array, "..."], Float[Array, "..."]]:
    """J0, J1, J2, s: the integrals of (t - m)^k exp(-kappa (t - m)^2) over [a, b] are J_k exp(-s).

    J1 = (e_a - e_b) / (2 kappa),  J2 = [J0 + (a - m) e_a - (b - m) e_b] / (2 kappa),
    with e_t = exp(s - kappa (t - m)^2).
    """
    mass, exponent = scaled_interval_mass(lower, upper, center, kappa)

    def edge(t: Float[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
        delta = jnp.where(jnp.isfinite(t), t - center, 0.0)
        value = jnp.where(jnp.isfinite(t), jnp.exp(exponent - kappa * jnp.square(delta)), 0.0)
        return value, delta * value

    (e_a, de_a), (e_b, de_b) = edge(lower), edge(upper)
    return mass, (e_a - e_b) / (2 * kappa), (mass + de_a - de_b) / (2 * kappa), exponent
