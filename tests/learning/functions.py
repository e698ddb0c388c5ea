"""The registry of functions to learn: name -> (dim, f), unbatched JAX functions on (-1, 1)^dim.

The first four groups are the classes of the paper's proposition on the generality of its
assumption; transitions, observation densities and hard cases follow.
"""

import jax
import jax.numpy as jnp


def gaussian(z, center, sd):
    return jnp.exp(-0.5 * jnp.sum(jnp.square((z - jnp.array(center)) / jnp.array(sd))))


def _mixture(z):
    return gaussian(z, [0.3, -0.4], [0.2, 0.3]) + 0.6 * gaussian(z, [-0.5, 0.5], [0.3, 0.25])


def _exponential_model(z):
    return jnp.exp(1.5 * jnp.cos(3.0 * z[0]) + z[0] * z[1] - jnp.square(z[1]))


def _ridges(z):
    centers = jnp.array([-0.6, 0.0, 0.5]) + 0.3 * jnp.sin(3.0 * z[0])
    return jnp.sum(jnp.exp(-0.5 * jnp.square((z[1] - centers) / 0.1)))


def sine_transition(z):
    return jnp.exp(-0.5 * jnp.square((z[1] - 0.9 * jnp.sin(2.2 * z[0])) / 0.15))


def transition_4d(z):
    u, x = z[:2], z[2:]
    mean = jnp.stack([0.7 * u[0] + 0.3 * jnp.sin(2 * u[1]), 0.6 * jnp.cos(1.5 * u[0]) * u[1]])
    return jnp.exp(-0.5 * jnp.sum(jnp.square((x - mean) / 0.2)))


def transition_6d(z):
    u, x = z[:3], z[3:]
    mean = jnp.stack(
        [
            0.7 * u[0] + 0.3 * jnp.sin(2 * u[1]),
            0.6 * jnp.cos(1.5 * u[0]) * u[1],
            0.8 * u[2] - 0.2 * u[0] * u[1],
        ]
    )
    return jnp.exp(-0.5 * jnp.sum(jnp.square((x - mean) / 0.2)))


POSITIVE = {
    "constant": (1, lambda z: jnp.full((), 3.7)),
    "runge": (1, lambda z: 1.0 / (1.0 + 25.0 * jnp.square(z[0]))),
    "wave": (2, lambda z: 1.5 + jnp.sin(5 * z[0]) * jnp.cos(3 * z[1])),
}
EXPONENTIAL = {
    "gaussian": (1, lambda z: gaussian(z, [0.2], [0.25])),
    "exponential_model": (2, _exponential_model),
}
MIXTURES = {
    "mixture": (2, _mixture),
    "two_scales": (
        1,
        lambda z: gaussian(z, [0.4], [0.05]) + 0.5 * gaussian(z, [-0.4], [0.3]),
    ),
}
ISOLATED_ZEROS = {
    "zero_line": (1, lambda z: jnp.square(z[0] - 0.3) * jnp.exp(-z[0])),
    "zero_plane": (2, lambda z: jnp.sum(jnp.square(z)) * jnp.exp(-0.5 * jnp.sum(z))),
}
TRANSITIONS = {
    "sine_transition": (2, sine_transition),
    "ridges": (2, _ridges),
    "diagonal_ridge": (2, lambda z: jnp.exp(-0.5 * jnp.square((z[0] - z[1]) / 0.08))),
}
OBSERVATIONS = {
    "volatility": (
        2,
        lambda z: jnp.exp(-0.5 * (2 * z[0] + jnp.square(3 * z[1]) * jnp.exp(-2 * z[0]))),
    ),
    "range": (
        2,
        lambda z: jnp.exp(-0.5 * jnp.square((jnp.sqrt(0.01 + jnp.sum(z * z)) - 0.7) / 0.08)),
    ),
    "square_sensor": (1, lambda z: jnp.exp(-0.5 * jnp.square((jnp.square(z[0]) - 0.3) / 0.1))),
}
HARD = {
    "narrow_axis": (2, lambda z: gaussian(z, [0.31, -0.4], [0.03, 1.0])),
    "edge": (1, lambda z: gaussian(z, [1.1], [0.1])),
    "corner": (2, lambda z: gaussian(z, [1.0, -1.0], [0.1, 0.2])),
    "steep": (1, lambda z: jax.nn.sigmoid(40 * (z[0] - 0.2))),
    "tiny": (2, lambda z: 1e-200 * gaussian(z, [0.1, 0.2], [0.2, 0.3])),
    "huge": (2, lambda z: 1e200 * gaussian(z, [0.1, 0.2], [0.2, 0.3])),
    "flat_3d": (3, lambda z: 1.0 + 0.1 * z[0] * z[1] * z[2]),
    "bump_3d": (3, lambda z: gaussian(z, [0.9, -0.2, 0.3], [0.3, 0.2, 0.5])),
}

SMOOTH_ROOT = {**POSITIVE, **EXPONENTIAL, **MIXTURES, **TRANSITIONS, **OBSERVATIONS, **HARD}
REGISTRY = {**SMOOTH_ROOT, **ISOLATED_ZEROS}
