"""Two filters of one series that start from different priors: how fast the difference is forgotten.

Both filters use the same learned transition and the same observations; only the prior differs. For
the two systems that mix, the promised decay is drawn beside the measured one: the theorem's, that
with the sharp constant, and the one through the Birkhoff coefficient. Ten seeded series for each
system. Writes experiments/results/forgetting.json, then docs/assets/forgetting.png; `--plot` draws
again from the numbers.

    python experiments/forgetting.py
"""

import json
import os
import sys
from pathlib import Path

# Threads of small factorisations wait for each other on a busy machine.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)

from psdfilter import systems  # noqa: E402
from psdfilter._inference.certificate.hilbert import (  # noqa: E402
    birkhoff_coefficient,
    hilbert_distance,
    mixing_birkhoff,
    mixing_constant,
    tv_of_hilbert,
)
from psdfilter._inference.learn import learn  # noqa: E402
from psdfilter._inference.run import run_filter  # noqa: E402
from psdfilter._inference.sizing.tables import fill_prior  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
NUMBERS = ROOT / "experiments" / "results" / "forgetting.json"
FIGURE = ROOT / "docs" / "assets" / "forgetting.png"

MIXING = ("bounded_ar", "noisy_logistic")
OTHERS = ("linear_1d", "theta_logistic", "stochastic_volatility", "sine_map")
SERIES, STEPS, TOL = 10, 60, 1e-4


def priors(box):
    """Densities on different sides of the box; no mirror images, which some systems merge."""
    center, half = float(box.center[0]), float(box.half_width[0])

    def around(z):
        return lambda x: -0.5 * jnp.square(((x[0] - center) / half - z) / 0.25)

    return around(-0.7), around(0.2)


def two_models(system):
    """One learned transition, two priors."""
    model = learn(system(), TOL, engine="nodes")
    out = []
    for log_prior in priors(model.filled.plan.box):
        ssm = eqx.tree_at(lambda s: s.state_box, system(), model.filled.plan.box)
        ssm = type(ssm)(log_prior, ssm.log_transition, ssm.log_observation, ssm.state_box)
        root = fill_prior(model.filled.plan, ssm)
        out.append(eqx.tree_at(lambda m: m.filled.prior_root, model, root))
    return out


def measure(name):
    system = systems.ALL[name]
    first, second = two_models(system)
    weights = np.asarray(first.filled.plan.node_weights())
    start = float(weights @ np.abs(np.asarray(first.filled.prior - second.filled.prior)))
    curves = []
    for seed in range(SERIES):
        _, ys = system.simulate(seed, STEPS)
        a, b = (np.asarray(run_filter(m, ys).trace.laws.densities) for m in (first, second))
        curves.append((np.abs(a - b) @ weights).tolist())
    row = {"system": name, "start": start, "measured": curves}
    if name in MIXING:
        row |= promised(system, first, second, start)
    print(name, f"start {start:.3f}", "median", np.median(curves, axis=0)[[0, 4, 9, 19]])
    return row


def promised(system, first, second, start):
    """What is proved for the true transition, from a fine matrix of it."""
    densities = system.densities()
    x = np.linspace(densities.lower[0], densities.upper[0], 401)
    Q = np.exp(densities.log_axis(0, x[:, None], x, 1))
    sigma, tau = mixing_constant(Q), birkhoff_coefficient(Q)
    weights = first.filled.plan.node_weights()
    nodes = np.asarray(first.filled.plan.node_points())
    pushed = np.exp(densities.log_axis(0, nodes, x, 1))
    after = [np.asarray(weights * m.filled.prior) @ pushed for m in (first, second)]
    n = np.arange(1, STEPS + 1)
    decay = mixing_birkhoff(sigma) ** (n - 1) * start
    return {
        "sigma": sigma,
        "tau": tau,
        "theorem": (2 / (sigma**2 * np.log(3)) * decay).tolist(),
        "sharp": (0.5 * (sigma**-2 - 1) * decay).tolist(),
        "birkhoff": tv_of_hilbert(tau ** (n - 1) * hilbert_distance(*after)).tolist(),
    }


def draw(rows):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    ink, blue = "#26304a", "#2f5fb3"
    plt.rcParams.update({"font.size": 9.5, "axes.edgecolor": ink, "text.color": ink})
    figure, panels = plt.subplots(1, 3, figsize=(12.4, 4.2), layout="constrained")
    by_name = {row["system"]: row for row in rows}
    for panel, name in zip(panels, MIXING, strict=False):
        row = by_name[name]
        draw_measured(panel, row, blue, "measured, ten series", 40)
        n = np.arange(1, STEPS + 1)
        lines = [
            ("theorem", "the theorem's bound", "#d1495b", "-"),
            ("sharp", "sharp constant", "#e09f3e", "-"),
            ("birkhoff", "Birkhoff coefficient", "#4c956c", "--"),
        ]
        for key, label, color, style in lines:
            panel.semilogy(n, np.minimum(2.0, row[key]), style, color=color, lw=1.5, label=label)
        panel.set_title(f"{name}: σ = {row['sigma']:.2f}, τ = {row['tau']:.2f}")
        panel.set(xlim=(0, 40), ylim=(1e-15, 4))
    colors = ("#2f5fb3", "#4c956c", "#e09f3e", "#d1495b")
    for name, color in zip(OTHERS, colors, strict=True):
        draw_measured(panels[2], by_name[name], color, name, STEPS)
    panels[2].set_title("systems without a useful σ: measured only")
    panels[2].set(xlim=(0, STEPS), ylim=(1e-15, 4))
    for panel in panels:
        panel.axhline(2.0, color=ink, lw=0.8, ls=":")
        panel.set_xlabel("observations seen")
        panel.grid(alpha=0.25)
        place = "center right" if panel is panels[2] else "lower right"
        panel.legend(fontsize=8.5, frameon=False, loc=place)
    panels[0].set_ylabel("distance of the two filters,  ∫|p − q|")
    figure.savefig(FIGURE, dpi=130)


def draw_measured(panel, row, color, label, stop):
    """Median over series, and the range; from the prior on. Below 1e-15 it is rounding."""
    curves = np.maximum(np.array(row["measured"])[:, :stop], 1e-17)
    curves = np.column_stack([np.full(len(curves), row["start"]), curves])
    n = np.arange(curves.shape[1])
    panel.semilogy(n, np.median(curves, axis=0), color=color, lw=2.0, label=label)
    panel.fill_between(n, curves.min(0), curves.max(0), color=color, alpha=0.15, lw=0)


def main():
    if "--plot" not in sys.argv:
        rows = [measure(name) for name in (*MIXING, *OTHERS)]
        NUMBERS.parent.mkdir(exist_ok=True)
        NUMBERS.write_text(json.dumps(rows, indent=1))
    draw(json.loads(NUMBERS.read_text()))


if __name__ == "__main__":
    main()
