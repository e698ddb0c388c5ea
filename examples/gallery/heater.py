"""# Regimes: is the heater on?

A room cools towards 12 degrees, and a heater draws it towards 26. Nobody recorded when the heater
was on; there is only a poor thermometer. `switching` puts a hidden Markov chain beside the
temperature, and the smoother says how probable the heater is at every time.
"""

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import psdfilter as psd

jax.config.update("jax_enable_x64", True)

PULL, NOISE, SENSOR = 0.12, 0.25, 0.8
TARGETS = (12.0, 26.0)  # off, on
P = np.array([[0.95, 0.05], [0.08, 0.92]])


def room(target):
    return psd.linear_gaussian(
        F=1 - PULL, b=PULL * target, Q=NOISE**2, H=1.0, R=SENSOR**2, m0=18.0, P0=4.0
    )


ssm = psd.switching([room(target) for target in TARGETS], P)

# %%
rng = np.random.default_rng(5)
heater, temperature, on, x = [], [], 0, 18.0
for _ in range(150):
    on = rng.choice(2, p=P[on])
    x += PULL * (TARGETS[on] - x) + NOISE * rng.normal()
    heater.append(on)
    temperature.append(x)
heater, temperature = np.array(heater), np.array(temperature)
ys = temperature + SENSOR * rng.normal(size=150)

model = psd.learn(ssm, tol=1e-3)
post, smooth = psd.run_filter(model, ys), psd.run_smoother(model, ys)
for name, result in {"filter": post, "smoother": smooth}.items():
    guess = np.asarray(result.regimes[:, 1]) > 0.5
    error = np.asarray(result.mean[:, 0]) - temperature
    print(
        f"{name:8s} heater right in {np.mean(guess == heater):.0%} of the steps, "
        f"temperature to {np.sqrt(np.mean(error**2)):.2f} degrees (thermometer {SENSOR})"
    )

# %%
# A grid of 600 temperatures for each regime, in NumPy, is an independent check.
grid = np.linspace(2.0, 36.0, 600)
width = grid[1] - grid[0]


def normal(x, mean, sd):
    return np.exp(-0.5 * ((x - mean) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))


moves = [
    width * normal(grid[None, :], (grid + PULL * (target - grid))[:, None], NOISE)
    for target in TARGETS
]
start = np.linalg.matrix_power(P, 10_000)[0]  # the probabilities that P keeps
law, total = start[:, None] * normal(grid, 18.0, 2.0), 0.0
for y in ys:
    law = np.stack([(P[:, k] @ law) @ moves[k] for k in range(2)]) * normal(y, grid, SENSOR)
    total += np.log(mass := width * law.sum())
    law /= mass
print(f"log-likelihood {float(post.log_likelihood):.3f}, on the grid {total:.3f}")
print(f"P(on) at the end {float(post.regimes[-1, 1]):.4f}, on the grid {width * law[1].sum():.4f}")

# %%
figure, axes = plt.subplots(2, 1, figsize=(8, 5.6), sharex=True, layout="constrained")
psd.plot.over_time(smooth, observations=ys, truth=temperature, names=["temperature"], ax=axes[0])
psd.plot.regimes(smooth, truth=heater, names=["off", "on"], ax=axes[1])
