"""# A beacon: the posterior is a ring

A vehicle in the plane hears one beacon and knows its distance to it, nothing else. The posterior
is a ring that opens and closes as the vehicle moves. Particles spread thin over it; here it is a
function.
"""

# %%
import jax
import jax.numpy as jnp
import numpy as np

import psdfilter as psd

jax.config.update("jax_enable_x64", True)

BEACON = jnp.array([0.4, -0.2])
ssm = psd.additive_gaussian(
    f=lambda x: 0.9 * x,
    h=lambda x: jnp.sqrt(jnp.sum((x - BEACON) ** 2) + 0.16),
    Q=0.0625 * np.eye(2),
    R=0.0225,
    m0=[0.0, 0.0],
    P0=0.33 * np.eye(2),
)
states, ys = (np.asarray(a) for a in psd.systems.range_only.simulate(3, 12))
model = psd.learn(ssm, tol=1e-3)
post = psd.run_filter(model, ys)
print(f"log-likelihood {float(post.log_likelihood):.4f}")
print("every step within tol:", bool(post.error_estimate < model.tol))

# %%
axes = psd.plot.snapshots(post, [0, 2, 4, 6, 8, 10], truth=states, columns=3)
for ax in axes:
    ax.plot(*BEACON, "^", color="0.3", ms=6)

# %%
# Questions are answered by integrals of the density, not by counting: is the vehicle left of the
# beacon?
left = post.expect(lambda x: jnp.where(x[0] < BEACON[0], 1.0, 0.0))
print("P(left of the beacon):", np.round(np.asarray(left), 2))
