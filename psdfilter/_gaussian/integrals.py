"""Integrals of one-dimensional Gaussians exp(-kappa (t - m)^2) over an interval [a, b].

With p = sqrt(kappa)(a - m), q = sqrt(kappa)(b - m), reflected so that p + q >= 0, and
erfc(t) = exp(-t^2) erfcx(t),

    I0 = sqrt(pi / kappa)/2 (2 - erfc |p| - erfc q)                            if p <= 0,
    I0 = sqrt(pi / kappa)/2 exp(-p^2) (erfcx p - exp(p^2 - q^2) erfcx q)       if p > 0.

The factor exp(-p^2) is handed back as an exponent: far in the tail nothing underflows and no
logarithm is taken. Both lines are differences, which lose digits when the interval is narrow;
there, with c = (p + q)/2, w = (q - p)/2 and the Hermite polynomials H_2k,

    int_p^q exp(-t^2) dt = 2 w exp(-c^2) sum_k H_2k(c) w^2k / (2k + 1)!.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.special import erfcx as jax_erfcx
from jaxtyping import Array, Float

# Where w max(1, 2c) is below this the series is used; its first term left out, the fourth, is then
# at most 0.05^8 / 9! = 1e-16 of the sum.
_NARROW = 0.05


# From here on the asymptotic series of erfcx is used; its first term left out is below 3e-17.
_ASYMPTOTIC = 25.0


def erfcx(t: Float[Array, "..."]) -> Float[Array, "..."]:
    """exp(t^2) erfc(t) for t >= 0.

    JAX's own is zero between 26.54 and 26.64 (seen in 0.10.2; jax-ml/jax#38607), where exp(t^2)
    is still finite but erfc(t) has underflowed.
    """
    large = t > _ASYMPTOTIC
    far = jnp.where(large, t, _ASYMPTOTIC)
    u = 0.5 / jnp.square(far)
    # sum_n (-1)^n (2n - 1)!! u^n
    series = 1 - 11 * u
    for odd in (9, 7, 5, 3, 1):
        series = 1 - odd * u * series
    near = jax_erfcx(jnp.where(large, 0.0, t))
    return jnp.where(large, series / (jnp.sqrt(jnp.pi) * far), near)


class _Ends(NamedTuple):
    """The scaled ends p, q after reflection, with finite stand-ins where they are infinite."""

    flipped: Array
    finite_near: Array
    finite_far: Array
    near: Float[Array, "..."]  # p
    far: Float[Array, "..."]  # q
    half: Float[Array, "..."]  # w, from the bounds themselves: no cancellation
    exponent: Float[Array, "..."]  # max(p, 0)^2, what the mass carries

    @property
    def inside(self) -> Array:
        """Whether the interval holds the centre."""
        return self.near <= 0

    @property
    def near_value(self) -> Float[Array, "..."]:
        """exp(exponent - p^2)."""
        value = jnp.where(self.inside, jnp.exp(-jnp.square(self.near)), 1.0)
        return jnp.where(self.finite_near, value, 0.0)

    @property
    def far_power(self) -> Float[Array, "..."]:
        """exponent - q^2, as a product where both are large."""
        apart = -2 * self.half * (self.far + self.near)
        return jnp.where(self.inside, -jnp.square(self.far), apart)

    @property
    def far_value(self) -> Float[Array, "..."]:
        """exp(exponent - q^2)."""
        return jnp.where(self.finite_far, jnp.exp(self.far_power), 0.0)


def _ends(
    lower: Float[Array, "..."],
    upper: Float[Array, "..."],
    center: Float[Array, "..."],
    kappa: Float[Array, "..."],
) -> _Ends:
    # Infinite bounds are replaced before they meet kappa: a masked inf would still make NaN
    # gradients. A NaN is let through, to be found by the check on the integral.
    finite_a, finite_b = ~jnp.isinf(lower), ~jnp.isinf(upper)
    root = jnp.sqrt(kappa)
    p = root * (jnp.where(finite_a, lower, 0.0) - center)
    q = root * (jnp.where(finite_b, upper, 0.0) - center)
    flipped = jnp.where(finite_a & finite_b, p + q < 0, finite_b & ~finite_a)
    p, q = jnp.where(flipped, -q, p), jnp.where(flipped, -p, q)
    finite_p, finite_q = (
        jnp.where(flipped, finite_b, finite_a),
        jnp.where(flipped, finite_a, finite_b),
    )
    near = jnp.where(finite_p, p, -1.0)
    far = jnp.where(finite_q, q, jnp.abs(near) + 1.0)
    bounded = finite_a & finite_b
    width = jnp.where(bounded, upper, 1.0) - jnp.where(bounded, lower, 0.0)
    half = jnp.where(bounded, 0.5 * root * width, 0.5 * (far - near))
    return _Ends(flipped, finite_p, finite_q, near, far, half, jnp.square(jnp.maximum(near, 0.0)))


def _series(ends: _Ends, narrow: Array) -> Float[Array, "..."]:
    """exp(exponent) (erf q - erf p) of narrow intervals; finite rubbish elsewhere."""
    w = jnp.where(narrow, ends.half, 0.0)
    c = jnp.where(narrow, 0.5 * (ends.near + ends.far), 0.0)
    c2, w2 = jnp.square(c), jnp.square(w)
    power = jnp.where(ends.inside, -c2, -w * (c + jnp.where(narrow, ends.near, 0.0)))
    h2 = 4 * c2 - 2
    h4 = (16 * c2 - 48) * c2 + 12
    h6 = ((64 * c2 - 480) * c2 + 720) * c2 - 120
    total = 1 + w2 / 6 * (h2 + w2 / 20 * (h4 + w2 / 42 * h6))
    return 4 / jnp.sqrt(jnp.pi) * w * jnp.exp(power) * total


def _scaled_mass(ends: _Ends, kappa: Float[Array, "..."]) -> Float[Array, "..."]:
    near_end = ends.near_value * erfcx(jnp.abs(ends.near))
    far_end = ends.far_value * erfcx(ends.far)
    wide = jnp.where(ends.inside, 2.0 - near_end - far_end, near_end - far_end)
    reach = ends.half * jnp.maximum(1.0, ends.near + ends.far)
    narrow = ends.finite_near & ends.finite_far & (reach < _NARROW)
    return 0.5 * jnp.sqrt(jnp.pi / kappa) * jnp.where(narrow, _series(ends, narrow), wide)


def scaled_interval_mass(
    lower: Float[Array, "..."],
    upper: Float[Array, "..."],
    center: Float[Array, "..."],
    kappa: Float[Array, "..."],
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """J, s with I0 = J exp(-s): s is 0 if the interval holds the centre. Bounds may be infinite."""
    ends = _ends(lower, upper, center, kappa)
    return _scaled_mass(ends, kappa), ends.exponent


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
    ends = _ends(lower, upper, center, kappa)
    mass = _scaled_mass(ends, kappa)
    e_p, e_q = ends.near_value, ends.far_value
    fall = jnp.where(
        ends.inside | ~ends.finite_far, e_p - e_q, -jnp.expm1(jnp.minimum(ends.far_power, 0.0))
    )
    slope = (ends.near * e_p - ends.far * e_q) / jnp.sqrt(kappa)
    first = jnp.where(ends.flipped, -fall, fall) / (2 * kappa)
    return mass, first, (mass + slope) / (2 * kappa), ends.exponent
