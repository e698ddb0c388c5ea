"""Integrals of one-dimensional Gaussians exp(-kappa (t - m)^2) over an interval [a, b].

With p = sqrt(kappa)(a - m), q = sqrt(kappa)(b - m), reflected so that p + q >= 0, and
erfc(t) = exp(-t^2) erfcx(t),

    I0 = sqrt(pi / kappa)/2 (2 - erfc |p| - erfc q)                            if p <= 0,
    I0 = sqrt(pi / kappa)/2 exp(-p^2) (erfcx p - exp(p^2 - q^2) erfcx q)       if p > 0.

The factor exp(-p^2) is handed back as an exponent: far in the tail nothing underflows and no
logarithm is taken. Both lines are differences, which lose digits when the interval is narrow;
there, with c = (p + q)/2, w = (q - p)/2 and the Taylor series about the middle,

    exp(-(c + w u)^2) = exp(-c^2) sum_n a_n u^n,  a_{n+1} = -(2 c w a_n + 2 w^2 a_{n-1}) / (n + 1),
    int_p^q (t - c)^k exp(-t^2) dt = 2 w^{k+1} exp(-c^2) sum_{n + k even} a_n / (n + k + 1).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax.scipy.special import erfcx as jax_erfcx
from jaxtyping import Array, Float

# Where w max(1, 2c) is below this the mass is summed from the series; its first term left out, with
# a_10, is at most 30240 * 0.05^10 / 11! = 1e-16 of the sum.
_NARROW = 0.05
_MASS_TERMS = 9

# Where w and 2 c w are below these, so are the moments; a_12 / 15 is then at most 3e-16.
_FLAT, _TILT = 0.1, 0.3
_MOMENT_TERMS = 12


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


def _taylor(
    ends: _Ends, narrow: Array, num_terms: int
) -> tuple[Float[Array, "..."], Float[Array, "..."], list[Float[Array, "..."]]]:
    """w, exp(exponent - c^2) and a_0, a_1, ... of narrow intervals; finite rubbish elsewhere."""
    w = jnp.where(narrow, ends.half, 0.0)
    c = jnp.where(narrow, 0.5 * (ends.near + ends.far), 0.0)
    power = jnp.where(ends.inside, -jnp.square(c), -w * (c + jnp.where(narrow, ends.near, 0.0)))
    tilt, bend = -2 * c * w, -2 * jnp.square(w)
    terms = [jnp.ones_like(w), tilt]
    for n in range(1, num_terms - 1):
        terms.append((tilt * terms[n] + bend * terms[n - 1]) * (1 / (n + 1)))
    return w, jnp.exp(power), terms


def _series(ends: _Ends, narrow: Array) -> Float[Array, "..."]:
    """exp(exponent) (erf q - erf p) of narrow intervals."""
    w, height, terms = _taylor(ends, narrow, _MASS_TERMS)
    total = sum(terms[n] * (1 / (n + 1)) for n in range(2, _MASS_TERMS, 2)) + 1
    return 4 / jnp.sqrt(jnp.pi) * w * height * total


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


class IntervalMoments(NamedTuple):
    """The integrals of (t - point)^k exp(-kappa (t - m)^2) over [a, b] are J_k exp(-exponent)."""

    point: Float[Array, "..."]
    mass: Float[Array, "..."]  # J_0
    first: Float[Array, "..."]  # J_1
    second: Float[Array, "..."]  # J_2
    exponent: Float[Array, "..."]


def interval_moments(
    lower: Float[Array, "..."],
    upper: Float[Array, "..."],
    center: Float[Array, "..."],
    kappa: Float[Array, "..."],
) -> IntervalMoments:
    """Moments about a point of the interval's own, chosen so that they keep their digits.

    About the centre, with e_t = exp(s - kappa (t - m)^2),

        J1 = (e_a - e_b) / (2 kappa),  J2 = [J0 + (a - m) e_a - (b - m) e_b] / (2 kappa).

    Where the Gaussian hardly varies over the interval the terms of J2 cancel, and so do later the
    moments about m in a variance. There they are summed from the series about the middle.
    """
    ends = _ends(lower, upper, center, kappa)
    mass = _scaled_mass(ends, kappa)
    e_p, e_q = ends.near_value, ends.far_value
    sign, root = jnp.where(ends.flipped, -1.0, 1.0), jnp.sqrt(kappa)
    # e_p - e_q, without the cancellation where both are near one.
    apart = jnp.where(
        ends.finite_near & ends.finite_far, -2 * ends.half * (ends.far + ends.near), 0.0
    )
    fall = jnp.where(ends.finite_near & ends.finite_far, -e_p * jnp.expm1(apart), e_p - e_q)
    slope = (ends.near * e_p - ends.far * e_q) / root
    flat, u1, u2 = _flat_moments(ends)
    middle = 0.5 * (jnp.where(flat, lower, 0.0) + jnp.where(flat, upper, 0.0))
    return IntervalMoments(
        jnp.where(flat, middle, center),
        mass,
        sign * jnp.where(flat, u1 / kappa, fall / (2 * kappa)),
        jnp.where(flat, u2 / (root * kappa), (mass + slope) / (2 * kappa)),
        ends.exponent,
    )


def _flat_moments(
    ends: _Ends,
) -> tuple[Array, Float[Array, "..."], Float[Array, "..."]]:
    """Where the series holds, and exp(exponent) int (t - c)^k exp(-t^2) dt there, k = 1, 2."""
    tilt = ends.half * (ends.near + ends.far)
    flat = ends.finite_near & ends.finite_far & (ends.half < _FLAT) & (tilt < _TILT)
    w, height, terms = _taylor(ends, flat, _MOMENT_TERMS)
    first = sum(terms[n] * (1 / (n + 2)) for n in range(1, _MOMENT_TERMS, 2))
    second = sum(terms[n] * (1 / (n + 3)) for n in range(2, _MOMENT_TERMS, 2)) + 1 / 3
    scale = 2 * height * jnp.square(w)
    return flat, scale * first, scale * w * second


def scaled_interval_moments(
    lower: Float[Array, "..."],
    upper: Float[Array, "..."],
    center: Float[Array, "..."],
    kappa: Float[Array, "..."],
) -> tuple[Float[Array, "..."], Float[Array, "..."], Float[Array, "..."], Float[Array, "..."]]:
    """J0, J1, J2, s with int (t - m)^k exp(-kappa (t - m)^2) dt = J_k exp(-s) over [a, b]."""
    point, mass, first, second, exponent = interval_moments(lower, upper, center, kappa)
    shift = point - center
    about = first + shift * mass, second + shift * (2 * first + shift * mass)
    return mass, *about, exponent
