"""A filter from trajectories alone: no formula of the model is used but to draw from it.

A simulator gives states and what a sensor saw of them. `learn_conditional` turns pairs (u, x) of
successive states into Q^(u, x), and pairs (x, y) into G^(x, y); `learned` makes a filter of them.
The filter is compared with that of the true densities on a dense grid, as trajectories grow in
number: mean of int |p - q| over fifty steps.

    python examples/from_trajectories.py [largest number of transitions]
"""

import sys
import time

import jax
import numpy as np

import psdfilter as psd

jax.config.update("jax_enable_x64", True)

# A state on (-1, 1) that a sensor sees through its square, so that its sign stays open.
NOISE, SENSOR = 0.3, 0.25
CHOSEN_ON = 10_000
BOX, SEEN = psd.Box([-1.0], [1.0]), psd.Box([-1.2], [2.2])


def mean(u):
    return 0.9 * np.sin(2.2 * u)


def draw_step(rng, u):
    """x' ~ N(mean(u), NOISE^2) restricted to (-1, 1), by rejection."""
    x = rng.normal(mean(u), NOISE)
    while np.any(outside := np.abs(x) >= 1.0):
        x[outside] = rng.normal(mean(u[outside]), NOISE)
    return x


def simulate(num, length, seed):
    """Transitions of `num` trajectories: old states, new states, and what was seen of these."""
    rng = np.random.default_rng(seed)
    state, old, new = rng.uniform(-1.0, 1.0, num), [], []
    for _ in range(length):
        old.append(state)
        state = draw_step(rng, state)
        new.append(state)
    x = np.concatenate(new)
    y = np.clip(x**2 + SENSOR * rng.normal(size=len(x)), -1.2, 2.2)
    return np.concatenate(old)[:, None], x[:, None], y[:, None]


def true_filter(ys, nodes, weights):
    """Densities at the nodes of the filter of the true model, by a rule of 400 nodes."""
    kernel = np.exp(-0.5 * ((nodes[None, :] - mean(nodes)[:, None]) / NOISE) ** 2)
    kernel /= (kernel @ weights)[:, None]
    law, laws = np.full(len(nodes), 0.5), []
    for y in ys:
        law = (law * weights) @ kernel * np.exp(-0.5 * ((y - nodes**2) / SENSOR) ** 2)
        law /= weights @ law
        laws.append(law)
    return np.array(laws)


def learn_pairs(u, x, box_u, box_x):
    """From all pairs, with the precision that cross-validation chooses on CHOSEN_ON of them."""
    fit = psd.learn_conditional(u[:CHOSEN_ON], x[:CHOSEN_ON], box_u, box_x, progress=False)
    if len(u) <= CHOSEN_ON:
        return fit.model
    settings = {"precision": fit.report.precision, "ridge": fit.report.ridge * CHOSEN_ON / len(u)}
    return psd.learn_conditional(u, x, box_u, box_x, progress=False, **settings).model


def learn_filter(num, seed=0):
    """The filter learned from `num` transitions, ten in each trajectory."""
    u, x, y = simulate(num // 10, 10, seed)
    Q = learn_pairs(u, x, BOX, BOX)
    G = learn_pairs(x, y, BOX, SEEN)
    flat = psd.GaussianPSD([[0.0]], [1.0], [1e-4])  # nearly uniform; normalised by `learned`
    return psd.learned(prior=flat, transition=Q, observation=G, box=BOX, observation_box=SEEN)


def main(most=100_000):
    nodes, weights = np.polynomial.legendre.leggauss(400)
    ys = simulate(1, 50, seed=99)[2][:, 0]
    truth = true_filter(ys, nodes, weights)
    print("transitions   mean TV   largest   seconds to learn")
    gaps = []
    for num in (n for n in (1_000, 10_000, 100_000) if n <= most):
        started = time.perf_counter()
        model = learn_filter(num)
        seconds = time.perf_counter() - started
        post = psd.run_filter(model, ys)
        laws = np.array([post.density(t)(nodes[:, None]) for t in range(len(ys))])
        gap = np.abs(laws - truth) @ weights
        print(f"{num:>11} {gap.mean():>9.4f} {gap.max():>9.4f} {seconds:>18.1f}", flush=True)
        gaps.append(gap.mean())
    print(model.report)
    return gaps


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
