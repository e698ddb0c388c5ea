"""A bootstrap particle filter in NumPy, an oracle that shares no code with the package."""

import numpy as np


def bootstrap(start, moves, log_densities, num=100_000, seed=0):
    """Means of x_t and the log-likelihood, with standard errors from four runs.

    Args:
        start: rng, n -> particles (n, d).
        moves: for each row, rng, particles -> particles, or None for no transition.
        log_densities: for each row, particles -> log G (n,), or None where y is missing.
    """
    runs = [_once(start, moves, log_densities, num // 4, seed + k) for k in range(4)]
    means, logs = np.stack([r[0] for r in runs]), np.array([r[1] for r in runs])
    return means.mean(0), means.std(0, ddof=1) / 2, logs.mean(), logs.std(ddof=1) / 2


def _once(start, moves, log_densities, num, seed):
    rng = np.random.default_rng(seed)
    x, means, total = start(rng, num), [], 0.0
    for move, density in zip(moves, log_densities, strict=True):
        x = x if move is None else move(rng, x)
        weights = np.full(num, 1 / num)
        if density is not None:
            logs = density(x)
            peak = logs.max()
            weights = np.exp(logs - peak)
            total += peak + np.log(weights.mean())
            weights /= weights.sum()
        means.append(weights @ x)
        # Systematic resampling.
        places = np.searchsorted(np.cumsum(weights), (rng.random() + np.arange(num)) / num)
        x = x[np.minimum(places, num - 1)]
    return np.array(means), total
