"""What certificates say, next to the true error, for every system in one or two dimensions.

Forty steps of seed 0; the true error is the distance to the system's dense reference. Prints a
table and writes experiments/results/certificates.json.

    python experiments/certificates.py [system ...]
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

jax.config.update("jax_enable_x64", True)

from psdfilter import systems  # noqa: E402
from psdfilter._inference.learn import learn  # noqa: E402
from psdfilter._inference.nodes.refine import FineNodes  # noqa: E402
from psdfilter._inference.run import run_filter  # noqa: E402

NUMBERS = Path(__file__).parent / "results" / "certificates.json"
NAMES = (
    "bounded_ar",
    "noisy_logistic",
    "sine_map",
    "linear_1d",
    "theta_logistic",
    "stochastic_volatility",
    "linear_2d",
)
KINDS = ("theorem", "sharp", "direct", "birkhoff", "dobrushin")
STEPS, TOLS = 40, (1e-2, 1e-4)


def true_error(system, post, ys):
    reference = system.reference(ys)
    num = round(len(reference.nodes) ** (1 / system.dim))
    z, w = np.polynomial.legendre.leggauss(num)
    nodes = FineNodes((jnp.asarray(z),) * system.dim, (jnp.asarray(w),) * system.dim)
    values = np.asarray(post.laws.values_on(nodes)) / np.prod(post.model.filled.plan.box.half_width)
    return reference.distance_to(values)


def measure(name, tol):
    system = systems.ALL[name]
    _, ys = system.simulate(0, STEPS)
    post = run_filter(learn(system(), tol, engine="nodes"), ys)
    started = time.perf_counter()
    found = post.certificate
    seconds = time.perf_counter() - started
    error = true_error(system, post, np.asarray(ys))
    row = {"system": name, "tol": tol, "seconds": seconds, "sigma": float(found.sigma.min())}
    row |= {"tau": float(found.tau.max()), "error": float(error.max())}
    row |= {"one_step": float(found.one_step.max()), "leak": float(found.leak.max())}
    for kind in KINDS:
        total = getattr(found, kind).total
        row[kind] = None if np.isnan(total).all() else float(min(2.0, np.max(total)))
        row[f"{kind}_broken"] = int(np.sum(error > total))
    return row


def main():
    rows = []
    print(f"{'system':<24}{'tol':>8}{'sigma':>10}{'true':>10}", *(f"{k:>10}" for k in KINDS))
    for name in sys.argv[1:] or NAMES:
        for tol in TOLS:
            row = measure(name, tol)
            rows.append(row)
            cells = ["-" if row[k] is None else f"{row[k]:.1e}" for k in KINDS]
            cells = [">= 2" if c == "2.0e+00" else c for c in cells]
            head = f"{name:<24}{tol:>8.0e}{row['sigma']:>10.1e}{row['error']:>10.1e}"
            broken = sum(row[f"{k}_broken"] for k in KINDS)
            print(head, *(f"{c:>10}" for c in cells), f"broken {broken}", flush=True)
    if len(sys.argv) == 1:
        NUMBERS.parent.mkdir(exist_ok=True)
        NUMBERS.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
