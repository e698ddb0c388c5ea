"""Work against precision: learned PSD filters and a bootstrap filter, on noise of any smoothness.

One command measures, fits slopes and draws:

    python experiments/work_precision.py            # everything, on a quiet machine
    python experiments/work_precision.py --quick    # a few minutes: fewer tolerances and seeds
    python experiments/work_precision.py --part gaussian    # one part; the others stay as they are
    python experiments/work_precision.py --plot     # draw again from the numbers

Total variation to a dense filter against the time of a step, memory and the cost of learning, for
`engine="nodes"` (G fitted for each observation, and jointly in (x, y) as in the paper) and for a
bootstrap filter. Particles are given the density that they stand for, G(., y) sum_i w_i Q(x_i, .):
the best that can be made of them. Further: the error over many steps (robustness), two priors
(forgetting), and the schedule of the theorem (epsilon -> M, n) with Algorithm 1. Writes
experiments/results/work_precision.json and docs/assets/work_precision.png.
"""

import json
import os
import sys
import time
from pathlib import Path

# Threads of small factorisations wait for each other on a busy machine.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

jax.config.update("jax_enable_x64", True)

from noise_models import FAMILIES, Dense, Noise, bootstrap, smoothed_particles  # noqa: E402

import psdfilter as psd  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
NUMBERS = ROOT / "experiments" / "results" / "work_precision.json"
FIGURE = ROOT / "docs" / "assets" / "work_precision.png"
QUICK = "--quick" in sys.argv

SEEDS = (0, 1) if QUICK else (0, 1, 2, 3, 4)
# Accuracy and time are measured on series of one length, which is compiled once.
STEPS = 200 if QUICK else 2000
CHECKED = 4 if QUICK else 10
FILTERED = 20 if QUICK else 50  # steps of the bootstrap filter
DENSE = 1000 if QUICK else 2000
PARTICLES = (10**2, 10**3, 10**4, 10**5) if QUICK else (10**2, 10**3, 10**4, 10**5, 10**6)
HOWS = ("each",) if QUICK else ("each", "joint")
TOLERANCES = {
    "gaussian": (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8),
    "matern52": (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5),
    "matern32": (1e-1, 3e-2, 1e-2, 3e-3, 1e-3, 3e-4),
    "laplace": (3e-1, 1e-1, 5e-2, 3e-2),
}
if QUICK:
    TOLERANCES = {
        "gaussian": (1e-1, 1e-3, 1e-5, 1e-7),
        "matern52": (1e-1, 1e-2, 1e-3),
        "matern32": (1e-1, 1e-2, 3e-3),
        "laplace": (3e-1, 1e-1, 5e-2),
    }
LONG = 10_000
# Theorem on learning with its constants C' as small as they serve: 1 for M, and 30 for n, since
# fewer points than anchors fit nothing.
EPSILONS = (0.3, 0.2, 0.1, 0.06) if QUICK else (0.3, 0.2, 0.1, 0.06, 0.03, 0.02)
POINTS_CONSTANT = 30


def measure_ours(noise, dense, tol, how):
    """TV over seeds, seconds of a step, bytes and seconds of learning at one tolerance."""
    engine = psd.engines.Nodes(observation=how)
    ssm, ys = noise.model(), noise.simulate(0, STEPS)[:, None]
    psd.learn(ssm, tol, engine=engine, ys=ys)  # compiled from here on
    start = time.perf_counter()
    model = psd.learn(ssm, tol, engine=engine, ys=ys)
    learning = time.perf_counter() - start
    errors = []
    for seed in SEEDS:
        ys = noise.simulate(seed, STEPS)
        post = psd.run_filter(model, ys[:, None])
        last = STEPS // CHECKED * np.arange(1, CHECKED + 1) - 1
        for t in last.tolist():
            values = np.asarray(post.density(t)(dense.nodes[:, None]))
            _, truth = dense.run(ys[max(0, t - 60) : t + 1])  # what was before is forgotten
            errors.append(float(dense.distance(values, truth[-1])))
    times = []
    for _ in range(3):
        start = time.perf_counter()
        jax.block_until_ready(psd.run_filter(model, ys[:, None]).log_likelihood)
        times.append((time.perf_counter() - start) / STEPS)
    step = min(times)
    numbers = sum(leaf.nbytes for leaf in jax.tree.leaves(model) if hasattr(leaf, "nbytes"))
    row = {
        "tol": tol,
        "tv": float(np.mean(errors)),
        "worst": float(np.max(errors)),
        "step": step,
        "bytes": int(numbers),
        "learning": learning,
        "M": int(np.prod(model.report.anchors[0])) if model.report.anchors else 0,
        "report": str(model.report.anchors),
    }
    print(noise.name, how, {k: v for k, v in row.items() if k != "report"}, flush=True)
    return row


def measure_particles(noise, dense, num):
    """TV of the density that particles stand for, and seconds of a step, for each seed."""
    rows = []
    for seed in SEEDS if num < 10**6 else SEEDS[:2]:
        ys = noise.simulate(seed, FILTERED)
        _, truth = dense.run(ys)
        errors = []

        def look(k, x, w, ys=ys, truth=truth, errors=errors):
            if k + 1 < FILTERED and k % (FILTERED // 5) == 0:
                p = smoothed_particles(dense, ys[k + 1], x, w)
                errors.append(float(dense.distance(p, truth[k + 1])))

        bootstrap(noise, ys, num, 1000 + seed, look)
        start = time.perf_counter()
        bootstrap(noise, ys[:10], num, 1000 + seed)
        step = (time.perf_counter() - start) / 10
        rows.append({"num": num, "tv": float(np.mean(errors)), "step": step, "bytes": 16 * num})
    print(noise.name, "particles", num, rows[0], flush=True)
    return rows


def slope(errors, costs):
    """r in cost ~ error^-r, with the half-width of its 95 % interval."""
    errors, costs = np.asarray(errors), np.asarray(costs)
    if len(errors) < 3 or np.ptp(np.log(errors)) == 0:
        return None
    fit = stats.linregress(-np.log(errors), np.log(costs))
    half = stats.t.ppf(0.975, len(errors) - 2) * fit.stderr
    return {"rate": float(fit.slope), "half": float(half)}


def promised(noise):
    """Exponents of the theorem for this smoothness, D = 2: anchors, order, memory, time, learning.

    None where beta is infinite: any power, however small.
    """
    if not np.isfinite(noise.smoothness):
        return None
    base = 2 / (noise.smoothness - 1)
    return {
        "M": base,
        "order": 2 * base,
        "memory": 4 * base,
        "time": 6 * base,
        "learning": 2 * base,
    }


def measure_family(name):
    noise = Noise(name)
    dense = Dense(noise, DENSE)
    row: dict = {"noise": name, "promised": promised(noise)}
    for how in ("each", "joint"):
        row[how] = []
        if how not in HOWS and name != "gaussian":
            continue
        for tol in TOLERANCES[name][: 3 if how == "joint" else None]:
            try:
                row[how].append(measure_ours(noise, dense, tol, how))
            except ValueError as error:  # out of reach: the message says what it would take
                print(name, how, tol, "refused:", str(error)[:160], flush=True)
    for how in ("each", "joint"):
        errors = [r["tv"] for r in row[how]]
        costs = ("M", "step", "bytes", "learning")
        row[f"{how} slopes"] = {c: slope(errors, [r[c] for r in row[how]]) for c in costs}
    row["particles"] = [r for num in PARTICLES for r in measure_particles(noise, dense, num)]
    errors = [r["tv"] for r in row["particles"]]
    costs = {c: [r[c] for r in row["particles"]] for c in ("num", "step", "bytes")}
    row["particles slopes"] = {c: slope(errors, values) for c, values in costs.items()}
    return row


def measure_robustness():
    """TV at every one of many steps: it must not grow."""
    noise = Noise("gaussian")
    dense, ys = Dense(noise, 300), noise.simulate(7, LONG)
    model = psd.learn(noise.model(), 1e-3, engine="nodes", ys=ys[:50, None])
    post = psd.run_filter(model, ys[:, None])
    plan = model.filled.plan
    nodes, weights = np.asarray(plan.node_points())[:, 0], np.asarray(plan.node_weights())
    predicted, filtered = dense.run(ys)
    before = np.concatenate([np.full((1, len(dense.nodes)), 0.5), filtered[:-1]])
    rows = np.exp(noise.log_transition(dense.nodes[:, None], nodes[None, :]))
    seen = np.exp(noise.log_density(ys[:, None] - nodes[None, :]))
    masses = (
        predicted * np.exp(noise.log_density(ys[:, None] - dense.nodes[None, :]))
    ) @ dense.weights
    truth = (before * dense.weights) @ rows * seen / masses[:, None]
    errors = np.abs(np.asarray(post.trace.laws.densities) - truth) @ weights
    blocks = [float(part.max()) for part in np.array_split(errors, 20)]
    # Neighbours are alike: twenty means are nearly independent.
    means = [float(part.mean()) for part in np.array_split(errors, 20)]
    fit = stats.linregress(np.linspace(0, 1, 20), np.log(means))
    print("robustness: largest TV by twentieths", [f"{b:.1e}" for b in blocks], flush=True)
    return {
        "steps": LONG,
        "blocks": blocks,
        "errors": errors[:: max(1, LONG // 2000)].tolist(),
        "growth": float(fit.slope),
        "growth half": float(stats.t.ppf(0.975, 18) * fit.stderr),
    }


def measure_forgetting():
    """Two priors, one series: TV between the learned filters, and the theorem's decay."""
    noise = Noise("gaussian")
    posts = []
    ys = noise.simulate(3, 30)[:, None]
    dense = Dense(noise, 200)
    for center in (-0.7, 0.2):
        ssm = noise.model(lambda x, c=center: -0.5 * jnp.square((x[0] - c) / 0.2))
        posts.append(psd.run_filter(psd.learn(ssm, 1e-8, engine="nodes", ys=ys), ys))
    a, b = (
        np.stack([np.asarray(p.density(t)(dense.nodes[:, None])) for t in range(30)]) for p in posts
    )
    grid = np.linspace(-1, 1, 401)
    table = np.exp(noise.log_transition(grid[:, None], grid[None, :]))
    sigma2 = float(np.min(table.min(0) / table.max(0)))
    diameter = max(float(np.max(np.ptp(np.log(table) - np.log(row), axis=1))) for row in table)
    distances = dense.distance(a, b).tolist()
    above = int(np.argmax(np.array([*distances, 0.0]) < 1e-9))  # below is the tolerance of learning
    rate = stats.linregress(np.arange(above), np.log(distances[:above])).slope
    print(f"forgetting: measured factor {np.exp(rate):.3f} a step", flush=True)
    return {
        "distances": distances,
        "start": 2.0,
        "sigma": sigma2**0.5,
        "tau": float(np.tanh(diameter / 4)),
        "measured": float(np.exp(rate)),
    }


def measure_schedule():
    """Algorithm 1 with the theorem's eta, lambda, M and n: sup error of Q^, TV of the filter."""
    rows = []
    for name in ("matern52", "matern32"):
        noise = Noise(name)
        dense = Dense(noise, 300)
        ys = noise.simulate(0, FILTERED)
        _, truth = dense.run(ys)
        for eps in EPSILONS:
            plan = psd.fitting.learning_schedule(eps, noise.smoothness, 2)
            rows.append(one_schedule(noise, dense, plan, ys, truth))
    return rows


def one_schedule(noise, dense, plan, ys, truth):
    z, w = dense.nodes, dense.weights
    points = POINTS_CONSTANT * plan.num_points
    common = {
        "anchors": "uniform",
        "num_anchors": plan.num_anchors,
        "num_points": points,
        "precision": plan.precision,
        "ridge": plan.ridge,
        "log": True,
        "vectorized": True,
    }
    q_key, g_key = jax.random.split(jax.random.key(0))
    Q = psd.learn_rank_one(
        lambda p: noise.log_transition(p[:, 0], p[:, 1], jnp),
        psd.Box([-1, -1], [1, 1]), key=q_key, **common,
    ).model  # fmt: skip
    G = psd.learn_rank_one(
        lambda p: noise.log_density(p[:, 1] - p[:, 0], jnp),
        psd.Box([-1, -2.6], [1, 2.6]), key=g_key, **common,
    ).model  # fmt: skip
    table = np.asarray(Q(np.stack(np.meshgrid(z, z, indexing="ij"), -1)))
    p, errors = np.full(len(z), 0.5), []
    for y, true in zip(ys, truth, strict=True):
        p = (w * p) @ table * np.asarray(G(np.stack([z, np.full_like(z, y)], -1)))
        p = p / (w @ p)
        errors.append(float(dense.distance(p, true)))
    row = {
        "noise": noise.name,
        "epsilon": plan.epsilon,
        "M": plan.num_anchors,
        "n": points,
        "sup": float(np.max(np.abs(table - dense.table))),
        "tv": float(np.mean(errors)),
        "promised": 1 - 1 / noise.smoothness,
    }
    print("schedule", row, flush=True)
    return row


def print_slopes(numbers):
    """Measured exponents beside promised ones."""
    text = lambda s: "-" if s is None else f"{s['rate']:.2f} ± {s['half']:.2f}"  # noqa: E731
    print("cost ~ TV^-r.  The paper at beta = 4.5 D: memory 1, time 1.5; particles: 2")
    for row in (numbers[name] for name in FAMILIES if name in numbers):
        promise = row["promised"]
        shown = "any r > 0" if promise is None else {k: round(v, 2) for k, v in promise.items()}
        print(f"{row['noise']}: theorem {shown}")
        for how in ("each", "joint", "particles"):
            slopes = row[f"{how} slopes"]
            print("   ", how, ", ".join(f"{c} {text(s)}" for c, s in slopes.items()))
    for name in ("matern52", "matern32") if "schedule" in numbers else ():
        rows = [r for r in numbers["schedule"] if r["noise"] == name]
        of = {
            k: slope([1 / r["epsilon"] for r in rows], [r[k] for r in rows]) for k in ("sup", "tv")
        }
        print(f"schedule, {name}: sup ~ eps^{text(of['sup'])}, TV ~ eps^{text(of['tv'])},",
              f"promised {rows[0]['promised']:.2f}")  # fmt: skip
    if long := numbers.get("robustness"):
        grown = f"{long['growth']:.2f} ± {long['growth half']:.2f}"
        print(f"robustness: log TV grows by {grown} over {long['steps']} steps")
    if found := numbers.get("forgetting"):
        print(f"forgetting: {found['measured']:.3f} a step, Birkhoff promises {found['tau']:.4f}")


def main():
    parts = {name: lambda name=name: measure_family(name) for name in FAMILIES}
    parts |= {
        "robustness": measure_robustness,
        "forgetting": measure_forgetting,
        "schedule": measure_schedule,
    }
    if "--part" in sys.argv:
        parts = {name: parts[name] for name in sys.argv[sys.argv.index("--part") + 1].split(",")}
    numbers = json.loads(NUMBERS.read_text()) if NUMBERS.exists() else {}
    for name, measure in ({} if "--plot" in sys.argv else parts).items():
        numbers[name] = measure()
        numbers["quick"] = QUICK
        NUMBERS.parent.mkdir(exist_ok=True)
        NUMBERS.write_text(json.dumps(numbers, indent=1))
    print_slopes(numbers)
    from work_precision_figure import draw

    draw(numbers, FIGURE)


if __name__ == "__main__":
    main()
