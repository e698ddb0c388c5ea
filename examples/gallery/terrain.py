"""# Terrain-aided navigation over a bumpy map

An aircraft without satellites knows its height above the ground and has a map. Every reading is
compatible with a whole contour line of the map, and only the way from one to the next tells where
it is. The posterior starts as a set of islands and collapses onto one.
"""

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import psdfilter as psd

jax.config.update("jax_enable_x64", True)

rng = np.random.default_rng(2)
CENTRES, HEIGHTS = rng.uniform(-4, 6, (14, 2)), rng.uniform(-1.0, 1.5, 14)


def ground(x):
    """Height of the ground: fourteen hills and hollows."""
    return jnp.sum(HEIGHTS * jnp.exp(-0.5 * jnp.sum((x - CENTRES) ** 2, axis=1) / 1.2**2))


VELOCITY = jnp.array([0.45, 0.3])
ssm = psd.additive_gaussian(
    f=lambda x: x + VELOCITY,
    h=ground,
    Q=0.02 * np.eye(2),
    R=0.01,
    m0=[-1.0, -1.0],
    P0=2.0 * np.eye(2),
)

# %%
x, states, ys = np.array([-2.2, -0.4]), [], []
for _ in range(12):
    x = x + np.asarray(VELOCITY) + np.sqrt(0.02) * rng.normal(size=2)
    states.append(x)
    ys.append(float(ground(x)) + 0.1 * rng.normal())
states = np.array(states)
model = psd.learn(ssm, tol=1e-2)
post = psd.run_filter(model, ys)
sd = np.sqrt(np.diagonal(np.asarray(post.covariance), axis1=1, axis2=2))
print("standard deviations after 1, 4 and 12 readings:")
print(np.round(sd[[0, 3, 11]], 2))
print("every step within tol:", bool(post.error_estimate < model.tol))

# %%
side = np.linspace(-5, 7, 121)
grid = np.stack(np.meshgrid(side, side, indexing="xy"), axis=-1)
heights = jax.vmap(jax.vmap(ground))(jnp.asarray(grid))
figure, axes = plt.subplots(2, 3, figsize=(10, 6.4), layout="constrained")
for ax in axes.ravel():
    ax.contour(side, side, heights, levels=9, cmap="Greys", linewidths=0.5)
axes = psd.plot.snapshots(
    post, [0, 1, 3, 5, 8, 11], truth=states, limits=[(-5, 7), (-5, 7)], columns=3, axes=axes
)
