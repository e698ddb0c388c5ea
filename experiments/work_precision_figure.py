"""The figure of `work_precision.py`, from its numbers."""

import numpy as np

INK = "#26304a"
COLORS = {"gaussian": "#2f5fb3", "matern52": "#4c956c", "matern32": "#e09f3e", "laplace": "#d1495b"}
NAMES = {"gaussian": "Gaussian", "matern52": "Matérn 5/2", "matern32": "Matérn 3/2"} | {
    "laplace": "Laplace"
}


def rate(found):
    """A slope with its interval, for legends."""
    return "" if found is None else f"{found['rate']:.2f} ± {found['half']:.2f}"


def draw(numbers, path):
    """Six panels: three costs, then many steps, two priors, and the schedule."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 9.0, "axes.edgecolor": INK, "text.color": INK})
    figure, panels = plt.subplots(2, 3, figsize=(13.2, 10.0), layout="constrained")
    families = [numbers[name] for name in COLORS if name in numbers]
    costs = ("step", "bytes", "learning")
    titles = ("seconds of a step", "bytes of the filter", "seconds of learning")
    for panel, cost, title in zip(panels[0], costs, titles, strict=True):
        for row in families:
            draw_costs(panel, row, cost)
        guides(panel, cost)
        panel.set(xscale="log", yscale="log", title=title, xlabel="total variation to the truth")
        panel.invert_xaxis()
        panel.grid(alpha=0.25)
        panel.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, fontsize=7, frameon=False,
            title="cost ~ TV^−r, r with 95 %", title_fontsize=7,
        )  # fmt: skip
    draw_robustness(panels[1, 0], numbers.get("robustness"))
    draw_forgetting(panels[1, 1], numbers.get("forgetting"))
    draw_schedule(panels[1, 2], numbers.get("schedule"))
    figure.savefig(path, dpi=120)


def draw_costs(panel, row, cost):
    """One family: ours with filled, joint with open circles, particles with crosses."""
    name = row["noise"]
    for how, style in (("each", "o-"), ("joint", "o:")):
        points = sorted((r["tv"], r[cost]) for r in row[how])
        if points:
            label = f"{NAMES[name]}{', joint' if how == 'joint' else ''}"
            label += f": {rate(row[f'{how} slopes'][cost])}"
            face = COLORS[name] if how == "each" else "white"
            panel.plot(*np.array(points).T, style, color=COLORS[name], mfc=face, ms=4, label=label)
    if cost != "learning":
        points = np.array(sorted((r["tv"], r[cost]) for r in row["particles"]))
        label = f"particles, {NAMES[name]}: {rate(row['particles slopes'][cost])}"
        panel.plot(*points.T, "x", color=COLORS[name], ms=4, alpha=0.7, label=label)


def guides(panel, cost):
    """The paper's exponents at beta = 4.5 D, anchored at TV = 0.1."""
    exponent = {"step": 1.5, "bytes": 1.0, "learning": None}[cost]
    if exponent is None:
        return
    errors = np.array([1e-1, 1e-4])
    bottom = panel.get_ylim()[0]
    start = {"step": 1e-5, "bytes": 1e3}[cost]
    for power, style, label in ((exponent, "--", "the paper"), (2.0, ":", "sampling")):
        line = max(start, bottom) * (errors / 0.1) ** -power
        panel.plot(errors, line, style, color=INK, lw=1, alpha=0.6, label=f"{label}: {power:g}")


def draw_robustness(panel, found):
    if found is None:
        return
    errors = np.array(found["errors"])
    steps = np.linspace(1, found["steps"], len(errors))
    panel.semilogy(steps, errors, ".", ms=1.5, color=COLORS["gaussian"])
    blocks = np.array(found["blocks"])
    panel.step(np.linspace(0, found["steps"], len(blocks)), blocks, where="post", color=INK)
    panel.set(title=f"one series of {found['steps']} steps, tol = 1e-3", xlabel="step", ylabel="TV")
    panel.grid(alpha=0.25)


def draw_forgetting(panel, found):
    if found is None:
        return
    n = np.arange(1, len(found["distances"]) + 1)
    label = f"measured: {found['measured']:.2f} a step"
    panel.semilogy(n, found["distances"], "o-", ms=3, color=COLORS["gaussian"], label=label)
    bound = np.minimum(2, found["start"] * found["tau"] ** (n - 1))
    panel.semilogy(
        n, bound, "--", color=COLORS["laplace"], label=f"Birkhoff: τ = {found['tau']:.4f}"
    )
    panel.set(title="two priors, one series", xlabel="observations seen", ylabel="TV")
    panel.legend(fontsize=8, frameon=False)
    panel.grid(alpha=0.25)


def draw_schedule(panel, found):
    if not found:
        return
    for name in ("matern52", "matern32"):
        rows = [r for r in found if r["noise"] == name]
        eps = np.array([r["epsilon"] for r in rows])
        for key, style in (("sup", "s-"), ("tv", "o--")):
            label = f"{NAMES[name]}, {'sup |Q − Q^|' if key == 'sup' else 'TV of the filter'}"
            values = [r[key] for r in rows]
            panel.loglog(eps, values, style, color=COLORS[name], ms=4, label=label)
        line = rows[0]["sup"] * (eps / eps[0]) ** rows[0]["promised"]
        panel.loglog(eps, line, ":", color=COLORS[name], label=f"ε^{rows[0]['promised']:.2f}")
        for r in rows:
            panel.annotate(f"{r['M']}", (r["epsilon"], r["sup"]), fontsize=6, color=INK)
    panel.set(title="Algorithm 1 on the theorem's schedule (M beside)", xlabel="ε")
    every = sorted({r["epsilon"] for r in found})
    panel.set_xticks(every, [f"{eps:g}" for eps in every])
    panel.set_xticks([], minor=True)
    panel.invert_xaxis()
    panel.legend(fontsize=7, frameon=False)
    panel.grid(alpha=0.25)
