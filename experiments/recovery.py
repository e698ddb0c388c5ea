"""Does the maximum likelihood estimate come with the standard errors it claims?

Fifty simulated series of a stochastic volatility model, each fitted from a start that is off. The
z-scores (estimate - truth) / standard error should be standard normal, in the coordinates in which
the parameters have no bounds; their means, spreads and Kolmogorov-Smirnov p-values are printed and
written to experiments/results/recovery.csv.
"""

import argparse
from pathlib import Path

import jax
import numpy as np
import scipy.stats

import psdfilter as psd

jax.config.update("jax_enable_x64", True)

TRUTH = {"mu": -1.0, "rho": 0.9, "sigma": 0.4}
START = {"mu": -0.5, "rho": 0.8, "sigma": 0.6}
BOUNDS = {"rho": (-1, 1), "sigma": (0, None)}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replications", type=int, default=50)
    parser.add_argument("--length", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="seed of the first series")
    arguments = parser.parse_args()
    system = psd.systems.stochastic_volatility
    build = lambda theta: system(**theta)  # noqa: E731
    scores = []
    for seed in range(arguments.first, arguments.first + arguments.replications):
        # Every plan is compiled anew; what fifty fits have compiled exceeds the memory maps of a
        # process on Linux (vm.max_map_count).
        if seed % 10 == 0:
            jax.clear_caches()
        ys = np.asarray(system.simulate(seed, arguments.length, first="observe", **TRUTH)[1])
        fit = psd.fit(build, START, ys, bounds=BOUNDS, first="observe", tol=1e-3)
        z = np.asarray(fit.free - fit.objective.coordinates.to_free(TRUTH))
        scores.append(z * np.sqrt(np.diagonal(np.linalg.inv(np.asarray(fit.hessian)))) ** -1)
        print(f"{seed:3d}  converged {fit.converged}  z {np.round(scores[-1], 2)}", flush=True)
    scores = np.array(scores)
    out = Path("experiments/results")
    out.mkdir(parents=True, exist_ok=True)
    names = fit.names
    np.savetxt(out / "recovery.csv", scores, fmt="%.6f", delimiter=",", header=",".join(names))
    print("\nparameter   mean    sd     KS p-value")
    for name, column in zip(names, scores.T, strict=True):
        p = scipy.stats.kstest(column, "norm").pvalue
        print(f"{name:10} {column.mean():+.2f}  {column.std(ddof=1):.2f}   {p:.2f}")


if __name__ == "__main__":
    main()
