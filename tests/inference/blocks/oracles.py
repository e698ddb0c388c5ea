"""Textbook filters in NumPy, sharing no line with the package."""

import numpy as np
from scipy.linalg import block_diag


def random_model(rng: np.random.Generator, dim: int, seen: int) -> dict[str, np.ndarray]:
    """A stable model with correlated noises and offsets."""

    def covariance(n: int) -> np.ndarray:
        root = rng.normal(size=(n, n))
        return 0.3 * root @ root.T + 0.2 * np.eye(n)

    F = 0.95 * np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    return {
        "F": F,
        "Q": covariance(dim),
        "H": rng.normal(size=(seen, dim)),
        "R": covariance(seen),
        "m0": rng.normal(size=dim),
        "P0": covariance(dim),
        "b": rng.normal(size=dim),
        "d": rng.normal(size=seen),
    }


def simulate(rng: np.random.Generator, model: dict, num: int) -> np.ndarray:
    F, Q, H, R, b, d = (model[name] for name in ("F", "Q", "H", "R", "b", "d"))
    x, ys = rng.multivariate_normal(model["m0"], model["P0"]), []
    for _ in range(num):
        x = F @ x + b + rng.multivariate_normal(np.zeros(len(b)), Q)
        ys.append(H @ x + d + rng.multivariate_normal(np.zeros(len(d)), R))
    return np.asarray(ys)


def kalman(ys: np.ndarray, model: dict, first: str = "predict"):
    """Means, covariances and log-likelihoods; NaN coordinates are dropped from the update."""
    F, Q, H, R, b, d = (model[name] for name in ("F", "Q", "H", "R", "b", "d"))
    m, P = model["m0"], model["P0"]
    means, covariances, logs = [], [], []
    for t, y in enumerate(ys):
        if t > 0 or first == "predict":
            m, P = F @ m + b, F @ P @ F.T + Q
        seen = ~np.isnan(y)
        log_z = 0.0
        if seen.any():
            A, e = H[seen], y[seen] - H[seen] @ m - d[seen]
            S = A @ P @ A.T + R[np.ix_(seen, seen)]
            K = np.linalg.solve(S, A @ P).T
            log_z = -0.5 * (e @ np.linalg.solve(S, e) + np.linalg.slogdet(2 * np.pi * S)[1])
            m, P = m + K @ e, P - K @ S @ K.T
        means.append(m)
        covariances.append(P)
        logs.append(log_z)
    return np.asarray(means), np.asarray(covariances), np.asarray(logs)


def joint_law(ys: np.ndarray, model: dict):
    """Smoothed means and covariances from the joint Gaussian of all states and observations."""
    F, Q, H, R, b, d = (model[name] for name in ("F", "Q", "H", "R", "b", "d"))
    num, dim = len(ys), len(b)
    # x_{1:T} is linear in x_0 and the noises: row t holds the powers of F that each has met.
    mean, none = model["m0"], np.zeros((dim, dim))
    powers = [np.linalg.matrix_power(F, k) for k in range(num + 1)]
    blocks, means = [], []
    for t in range(1, num + 1):
        mean = F @ mean + b
        means.append(mean)
        later = [powers[t - s] if s <= t else none for s in range(1, num + 1)]
        blocks.append([powers[t], *later])
    G = np.block(blocks)
    noise = block_diag(model["P0"], *[Q] * num)
    prior, m = G @ noise @ G.T, np.concatenate(means)
    A = block_diag(*[H] * num)
    seen = ~np.isnan(ys.ravel())
    A, y = A[seen], ys.ravel()[seen] - np.tile(d, num)[seen]
    S = A @ prior @ A.T + block_diag(*[R] * num)[np.ix_(seen, seen)]
    K = np.linalg.solve(S, A @ prior).T
    m, P = m + K @ (y - A @ m), prior - K @ S @ K.T
    own = [slice(dim * t, dim * (t + 1)) for t in range(num)]
    return m.reshape(num, dim), np.stack([P[s, s] for s in own])
