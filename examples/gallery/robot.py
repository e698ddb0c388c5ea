"""# A robot with a heading, and landmarks

A robot drives over a floor. Its state is a place and a heading; it knows how far and how sharply it
meant to drive, and sees distance and bearing of two landmarks. At first it knows its
heading to a radian. Bearings wrap: 179 degrees and -179 degrees are neighbours.
"""

# %%
import warnings

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import psdfilter as psd

jax.config.update("jax_enable_x64", True)

LANDMARKS = np.array([[4.0, 1.0], [-1.0, 4.0]])
Q = np.diag([0.002, 0.002, 0.002])
R = np.diag([0.04, 0.02, 0.04, 0.02])


def drive(x, inputs):
    """Forward by inputs[0] along the heading, then a turn by inputs[1]."""
    return x + jnp.array([inputs[0] * jnp.cos(x[2]), inputs[0] * jnp.sin(x[2]), inputs[1]])


def look(x):
    """Distance and bearing, relative to the heading, of each landmark."""
    seen = []
    for place in LANDMARKS:
        east, north = place[0] - x[0], place[1] - x[1]
        seen += [jnp.hypot(east, north), jnp.arctan2(north, east) - x[2]]
    return jnp.stack(seen)


ssm = psd.additive_gaussian(
    drive,
    look,
    Q,
    R,
    m0=[0.0, 0.0, 0.0],
    P0=np.diag([0.25, 0.25, 1.0]),
    inputs=np.array([0.4, 0.2]),
    wrap=[False, True, False, True],
)

# %%
rng = np.random.default_rng(4)
inputs = np.column_stack([np.full(30, 0.4), 0.2 + 0.1 * np.sin(np.arange(30) / 4)])
x, states, ys = np.array([0.3, -0.4, 0.8]), [], []
for row in inputs:
    x = np.asarray(drive(x, row)) + np.sqrt(np.diag(Q)) * rng.normal(size=3)
    states.append(x)
    ys.append(np.asarray(look(x)) + np.sqrt(np.diag(R)) * rng.normal(size=4))
states, ys = np.array(states), np.array(ys)
ys[12:18] = np.nan  # a pillar hides both landmarks
ys[20:25, 2:] = np.nan  # and later one of them
ys[:, [1, 3]] = (ys[:, [1, 3]] + np.pi) % (2 * np.pi) - np.pi  # as a compass has them

model = psd.learn(ssm, tol=1e-2, inputs=inputs)
with warnings.catch_warnings():  # it says that 1e-2 is missed, and so does this page
    warnings.simplefilter("ignore", psd.ResolutionWarning)
    post = psd.run_filter(model, ys, inputs=inputs)
sd = np.sqrt(np.diagonal(np.asarray(post.covariance), axis1=1, axis2=2))
error = np.asarray(post.mean) - states
print(f"engine {model.report.engine}")
print("every step within tol:", bool(post.error_estimate < model.tol))
print(f"place known to {sd[11, :2].max():.2f} before the pillar, {sd[17, :2].max():.2f} behind it")
place, heading = (np.sqrt(np.mean(part**2)) for part in (error[:, :2], error[:, 2]))
print(f"errors: {place:.2f}, of the heading {heading:.2f}")
print(f"squared errors over variances, mean {np.mean((error / sd) ** 2):.2f}; 1 if all is well")

# %%
# The estimate holds all that Gaussians have left out and the filter has not forgotten since, in
# whatever direction it was. 100 000 particles are an independent check.
num = 100_000
cloud = rng.multivariate_normal([0.0, 0.0, 0.0], np.diag([0.25, 0.25, 1.0]), num)
total, means = 0.0, []
for row, y in zip(inputs, ys, strict=True):
    ahead = np.stack([row[0] * np.cos(cloud[:, 2]), row[0] * np.sin(cloud[:, 2])], axis=1)
    cloud = cloud + np.column_stack([ahead, np.full(num, row[1])])
    cloud += np.sqrt(np.diag(Q)) * rng.normal(size=(num, 3))
    logs = np.zeros(num)
    for k, place in enumerate(LANDMARKS):
        east, north = (place - cloud[:, :2]).T
        expected = np.stack([np.hypot(east, north), np.arctan2(north, east) - cloud[:, 2]])
        gap = y[2 * k : 2 * k + 2, None] - expected
        gap[1] = (gap[1] + np.pi) % (2 * np.pi) - np.pi
        if np.isfinite(y[2 * k]):
            v = np.diag(R)[2 * k : 2 * k + 2, None]
            logs += -0.5 * np.sum(gap**2 / v + np.log(2 * np.pi * v), axis=0)
    weights = np.exp(logs - logs.max())
    total += np.log(weights.mean()) + logs.max()
    weights /= weights.sum()
    means.append(weights @ cloud)
    cloud = cloud[rng.choice(num, num, p=weights)]
print(f"log-likelihood {float(post.log_likelihood):.1f}, of the particles {total:.1f}")
apart = np.abs(np.asarray(post.mean) - means) / sd
print(f"means differ by {apart.max():.2f} standard deviations at most")

# %%
figure, axes = plt.subplots(1, 2, figsize=(9.5, 4.2), width_ratios=[1, 1], layout="constrained")
psd.plot.track(post, truth=states, landmarks=LANDMARKS, names=["east", "north", ""], ax=axes[0])
axes[0].set_aspect("equal")
steps = np.arange(1, 31)
axes[1].axvspan(13, 18, color="0.92", label="nothing seen")
axes[1].fill_between(
    steps, *(post.mean[:, 2] + s * 1.645 * sd[:, 2] for s in (-1, 1)), color="C0", alpha=0.3, lw=0
)
axes[1].plot(steps, post.mean[:, 2], "C0", label="heading")
axes[1].plot(steps, states[:, 2], "C1.", ms=4, label="truth")
axes[1].set(xlabel="time", ylabel="heading in radians")
axes[1].spines[["top", "right"]].set_visible(False)
axes[1].legend(frameon=False, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
