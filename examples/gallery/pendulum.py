"""# A pendulum, seen through the sine of its angle

The classic test of nonlinear filters: angle and angular velocity, of which the sensor shows
`sin(angle)`. Most of the time one bell curve would do. At the turning points it would not: the
sine hardly moves, and the density bends along the orbit.
"""

# %%
import jax
import jax.numpy as jnp
import numpy as np

import psdfilter as psd

jax.config.update("jax_enable_x64", True)

DT = 0.1
ssm = psd.additive_gaussian(
    f=lambda x: jnp.array([x[0] + DT * x[1], x[1] - DT * 9.8 * jnp.sin(x[0])]),
    h=lambda x: jnp.sin(x[0]),
    Q=np.diag([0.003, 0.03]),
    R=0.04,
    m0=[0.8, 0.0],
    P0=np.diag([0.1, 0.3]),
)

rng, x, states, ys = np.random.default_rng(1), np.array([1.0, 0.0]), [], []
for _ in range(30):
    x = np.array([x[0] + DT * x[1], x[1] - DT * 9.8 * np.sin(x[0])])
    x = x + np.sqrt([0.003, 0.03]) * rng.normal(size=2)
    states.append(x)
    ys.append(np.sin(x[0]) + 0.2 * rng.normal())
states = np.array(states)

model = psd.learn(ssm, tol=1e-2)
post = psd.run_filter(model, ys)
miss = np.sqrt(np.mean((np.asarray(post.mean) - states) ** 2, axis=0))
print(f"log-likelihood {float(post.log_likelihood):.3f}")
print("root mean square error of the means:", np.round(miss, 3))

# %%
names = ("angle", "velocity")
axes = psd.plot.states(post, truth=states, names=names)

# %%
# The law of both coordinates at a turning point.
turn = int(np.argmax(np.asarray(post.covariance)[3:, 0, 0])) + 3
ax = psd.plot.density(post, turn, truth=states[turn], marginals=True, names=names)
