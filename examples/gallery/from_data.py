"""# A filter learned from trajectories

No formula of the model is known. There are runs of a simulator: states one step apart, and what a
sensor saw of them. `learn_conditional` turns the pairs into PSD models of the transition and of the
sensor, and `learned` makes a filter of them. The simulator is known to us, so that we can say how
far this filter is from the true one.
"""

# %%
import jax
import matplotlib.pyplot as plt
import numpy as np

import psdfilter as psd

jax.config.update("jax_enable_x64", True)

NOISE, SENSOR = 0.3, 0.25
box, seen = psd.Box([-1.0], [1.0]), psd.Box([-1.2], [2.2])


def simulate(rng, num, length):
    """Paths (length + 1, num) on (-1, 1), and their squares with noise."""
    paths = [rng.uniform(-1.0, 1.0, num)]
    for _ in range(length):
        middle = 0.9 * np.sin(2.2 * paths[-1])
        x = rng.normal(middle, NOISE)
        while np.any(outside := np.abs(x) >= 1.0):
            x[outside] = rng.normal(middle[outside], NOISE)
        paths.append(x)
    paths = np.array(paths)
    return paths, np.clip(paths**2 + SENSOR * rng.normal(size=paths.shape), -1.2, 2.2)


rng = np.random.default_rng(0)
prior = psd.GaussianPSD([[0.0]], [1.0], [1e-4])  # nearly uniform


def learn_from(num):
    x, y = simulate(rng, num // 10, 10)
    Q = psd.learn_conditional(x[:-1].reshape(-1, 1), x[1:].reshape(-1, 1), box, box, progress=False)
    G = psd.learn_conditional(x[1:].reshape(-1, 1), y[1:].reshape(-1, 1), box, seen, progress=False)
    return psd.learned(
        prior=prior, transition=Q.model, observation=G.model, box=box, observation_box=seen
    )


# %%
# The filter of the true densities, at 400 nodes.
nodes, weights = np.polynomial.legendre.leggauss(400)
kernel = np.exp(-0.5 * ((nodes[None, :] - 0.9 * np.sin(2.2 * nodes)[:, None]) / NOISE) ** 2)
kernel /= (kernel @ weights)[:, None]
states, ys = (a[1:, 0] for a in simulate(np.random.default_rng(7), 1, 40))
law, truth = np.full(400, 0.5), []
for y in ys:
    law = (law * weights) @ kernel * np.exp(-0.5 * ((y - nodes**2) / SENSOR) ** 2)
    law /= weights @ law
    truth.append(law)

posts = {}
for num in (1000, 4000):
    post = posts[num] = psd.run_filter(learn_from(num), ys)
    laws = np.array([post.density(t)(nodes[:, None]) for t in range(len(ys))])
    apart = np.abs(laws - truth) @ weights
    print(f"{num:5d} transitions: total variation to the true filter, mean {apart.mean():.2f}")
prior_only = np.abs(0.5 - np.array(truth)) @ weights
print(f"knowing nothing: {prior_only.mean():.2f}")

# %%
figure, axes = plt.subplots(1, 3, figsize=(9, 3), sharey=True, layout="constrained")
for ax, t in zip(axes, (4, 19, 33), strict=True):
    ax.plot(nodes, truth[t], "0.2", lw=3, alpha=0.35, label="true densities")
    for (num, post), style in zip(posts.items(), ("C1:", "C0-"), strict=True):
        ax.plot(nodes, post.density(t)(nodes[:, None]), style, label=f"{num} transitions")
    ax.axvline(states[t], color="0.5", lw=0.8, ls="--", label="true state")
    ax.set_xlabel(f"state at time {t + 1}")
    ax.spines[["top", "right"]].set_visible(False)
axes[0].set_ylabel("density")
figure.legend(
    *axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False
)
