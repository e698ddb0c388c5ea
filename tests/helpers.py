"""Registries of models and oracles that share no code with the package.

An oracle here evaluates a model from its definition in NumPy and integrates it by Gauss-Legendre
quadrature on a box.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from scipy.linalg import block_diag
from scipy.stats import multivariate_normal

import psdfilter as psd
from psdfilter import systems
from psdfilter._inference.learn import choose_engine
from psdfilter._inference.nodes.refine import FineNodes

# Most of the time of the tests goes into compilation, once for each shape. The registries therefore
# use few: five scattered anchors with factors (5, 1) or (5, 5), and one grid per dimension.


def scattered_rank_one(rng: np.random.Generator, dim: int) -> psd.GaussianPSD:
    anchors = rng.uniform(-1.2, 1.2, (5, dim))
    return psd.GaussianPSD(anchors, rng.normal(size=5), rng.uniform(1.0, 3.0, dim))


def scattered_full(rng: np.random.Generator, dim: int) -> psd.GaussianPSD:
    anchors = rng.uniform(-1.2, 1.2, (5, dim))
    root = rng.normal(size=(5, 5))
    return psd.GaussianPSD.from_weights(anchors, root @ root.T, rng.uniform(1.0, 3.0, dim))


def singular_weights(rng: np.random.Generator, dim: int) -> psd.GaussianPSD:
    """Two anchors coincide and the weights have rank two of five."""
    anchors = rng.uniform(-1.0, 1.0, (5, dim))
    anchors[4] = anchors[0]
    root = rng.normal(size=(5, 2))
    return psd.GaussianPSD.from_weights(anchors, root @ root.T, rng.uniform(1.0, 3.0, dim))


def grid_rank_one(rng: np.random.Generator, dim: int) -> psd.GaussianPSD:
    shape = (3, 2, 3)[:dim]
    grid = psd.densities.TensorGrid([np.sort(rng.uniform(-1.2, 1.2, n)) for n in shape])
    return psd.GaussianPSD(grid, rng.normal(size=int(np.prod(shape))), rng.uniform(1.0, 3.0, dim))


def grid_rank_three(rng: np.random.Generator, dim: int) -> psd.GaussianPSD:
    shape = (3, 2, 3)[:dim]
    grid = psd.densities.TensorGrid([np.linspace(-1.0, 1.0, n) + 0.1 * rng.normal() for n in shape])
    factor = rng.normal(size=(int(np.prod(shape)), 3))
    return psd.GaussianPSD(grid, factor, rng.uniform(1.0, 3.0, dim))


def mixture(rng: np.random.Generator, dim: int) -> psd.GaussianPSD:
    weights = rng.uniform(0.1, 1.0, 5)
    means = rng.uniform(-0.8, 0.8, (5, dim))
    return psd.from_mixture(weights / weights.sum(), means, rng.uniform(0.1, 0.3, dim))


def tiny_scale(rng: np.random.Generator, dim: int) -> psd.GaussianPSD:
    return psd.scale(scattered_rank_one(rng, dim), -40.0)


DIAGONAL: dict[str, Callable[[np.random.Generator, int], psd.GaussianPSD]] = {
    "scattered_rank_one": scattered_rank_one,
    "scattered_full": scattered_full,
    "singular_weights": singular_weights,
    "grid_rank_one": grid_rank_one,
    "grid_rank_three": grid_rank_three,
    "mixture": mixture,
    "tiny_scale": tiny_scale,
}


# What laws run over: a grid of rank one shares every line of code with one of rank three.
KINDS = sorted(set(DIAGONAL) - {"grid_rank_one"})


def _precisions(rng: np.random.Generator, num: int, dim: int) -> np.ndarray:
    roots = 0.4 * rng.normal(size=(num, dim, dim))
    return roots @ np.swapaxes(roots, 1, 2) + np.eye(dim)


def components(rng: np.random.Generator, dim: int) -> psd.GeneralizedGaussianPSD:
    centers = rng.uniform(-0.8, 0.8, (3, dim))
    return psd.GeneralizedGaussianPSD.from_centers(
        centers, rng.normal(size=(3, 3)), _precisions(rng, 3, dim)
    )


def shared_precision(rng: np.random.Generator, dim: int) -> psd.GeneralizedGaussianPSD:
    centers = rng.uniform(-0.8, 0.8, (5, dim))
    return psd.GeneralizedGaussianPSD.from_centers(
        centers, rng.normal(size=(5, 5)), _precisions(rng, 1, dim)[0]
    )


def full_mixture(rng: np.random.Generator, dim: int) -> psd.GeneralizedGaussianPSD:
    covariance = 0.3 * np.linalg.inv(_precisions(rng, 3, dim))
    return psd.from_mixture([0.2, 0.5, 0.3], rng.uniform(-0.8, 0.8, (3, dim)), covariance)


def pairs(rng: np.random.Generator, dim: int) -> psd.densities.PairwiseGaussianPSD:
    """What a marginal leaves: no model of components has these precisions."""
    return psd.marginal(components(rng, dim + 1), range(dim))


def from_diagonal(rng: np.random.Generator, dim: int) -> psd.GeneralizedGaussianPSD:
    return psd.generalize(scattered_full(rng, dim))


GENERALIZED = {
    "components": components,
    "shared_precision": shared_precision,
    "full_mixture": full_mixture,
    "pairs": pairs,
    "from_diagonal": from_diagonal,
}


def block_mixture(rng: np.random.Generator, dim: int) -> psd.GaussianBlocks:
    """Three Gaussians and a place that is not used."""
    covariance = 0.3 * np.linalg.inv(_precisions(rng, 4, dim))
    means = rng.uniform(-0.8, 0.8, (4, dim))
    return psd.GaussianBlocks.mixture([0.2, 0.5, 0.3, 0.0], means, covariance)


def interfering_blocks(rng: np.random.Generator, dim: int) -> psd.GaussianBlocks:
    """Two blocks of three components that interfere within each."""
    covariance = 0.3 * np.linalg.inv(_precisions(rng, 2, dim))
    means, factor = rng.uniform(-0.8, 0.8, (2, 3, dim)), rng.normal(size=(2, 3, 2))
    return psd.GaussianBlocks(*map(jnp.asarray, (np.log([0.4, 0.6]), means, covariance, factor)))


BLOCKS = {"block_mixture": block_mixture, "interfering_blocks": interfering_blocks}

# One kind of every class, and of every way in which a class is stored.
DENSITIES = [
    "scattered_full",
    "grid_rank_three",
    "components",
    "shared_precision",
    "pairs",
    "block_mixture",
    "interfering_blocks",
]


def representative(kind: str, dim: int) -> str:
    """`kind`, or from three coordinates on the one kind that stores its anchors the same way."""
    if dim < 3:
        return kind
    return "grid_rank_three" if kind.startswith("grid") else "singular_weights"


def make(kind: str, seed: int, dim: int):
    """A model of the registries, made from a seed."""
    return {**DIAGONAL, **GENERALIZED, **BLOCKS}[kind](np.random.default_rng(seed), dim)


seeds = st.integers(0, 2**31 - 1)


def slow(*values):
    """A row of parameters that runs in the slow suite only."""
    return pytest.param(*values, marks=pytest.mark.slow)


def definition(f, x: np.ndarray) -> np.ndarray:
    """f at points (n, d), from its defining sum."""
    if isinstance(f, psd.GaussianBlocks):
        return _block_definition(f, x)
    if isinstance(f, psd.GaussianPSD):
        anchors = f.anchors
        if isinstance(anchors, psd.densities.TensorGrid):
            mesh = np.meshgrid(*map(np.asarray, anchors.axes), indexing="ij")
            anchors = np.stack([m.ravel() for m in mesh], axis=-1)
        delta = x[:, None, :] - np.asarray(anchors)[None]
        k = np.exp(-np.einsum("nmd,d->nm", delta**2, np.asarray(f.precision)))
        values = np.sum((k @ np.asarray(f.factor @ f.factor.T)) * k, axis=1)
    else:
        P, h, c = (np.asarray(a) for a in (f.precision, f.linear, f.offset))
        L = np.asarray(f.factor)
        if isinstance(f, psd.GeneralizedGaussianPSD):
            P = np.broadcast_to(P, (f.order, f.dim, f.dim))
            P, h, c = P[:, None] + P[None], h[:, None] + h[None], c[:, None] + c[None]
        x = x - np.asarray(f.origin)
        squares = np.einsum("nd,ne->nde", x, x).reshape(len(x), -1)
        quad = squares @ P.reshape(f.order**2, -1).T
        exponents = c.ravel() + 2 * x @ h.reshape(f.order**2, -1).T - quad
        values = np.exp(exponents) @ (L @ L.T).ravel()
    return values * np.exp(float(f.log_scale))


def _block_definition(f: psd.GaussianBlocks, x: np.ndarray) -> np.ndarray:
    """sum_b exp(w_b) |L_b' phi_b|^2 with phi^2 a normal density, from scipy."""
    total = np.zeros(len(x))
    weights, means, covariance, factor = map(np.asarray, jax.tree.leaves(f))
    for w, m, S, L in zip(np.exp(weights), means, covariance, factor, strict=True):
        if w > 0:
            phi = [np.sqrt(multivariate_normal(c, S).pdf(x)).reshape(len(x)) for c in m]
            total += w * np.sum((np.stack(phi, axis=1) @ L) ** 2, axis=1)
    return total


@dataclass
class Rule:
    """A Gauss-Legendre rule on a box."""

    nodes: np.ndarray
    weights: np.ndarray


def rule(lower, upper, num: int) -> Rule:
    t, w = np.polynomial.legendre.leggauss(num)
    lower, upper = np.atleast_1d(lower).astype(float), np.atleast_1d(upper).astype(float)
    axes = [(a + b) / 2 + (b - a) / 2 * t for a, b in zip(lower, upper, strict=True)]
    nodes = np.stack([m.ravel() for m in np.meshgrid(*axes, indexing="ij")], axis=-1)
    weights = np.ones(1)
    for a, b in zip(lower, upper, strict=True):
        weights = np.multiply.outer(weights, (b - a) / 2 * w).ravel()
    return Rule(nodes, weights)


# Half-width beyond which every model of the registries is below 1e-13 of its peak.
WIDE = 5.0
NODES = {1: 160, 2: 90, 3: 60, 4: 34}


def wide_rule(dim: int) -> Rule:
    return rule([-WIDE] * dim, [WIDE] * dim, NODES[dim])


def box_of(dim: int) -> psd.Box:
    return psd.Box([-1.0, -0.8, -0.9, -1.1][:dim], [0.9, 1.0, 0.7, 0.8][:dim])


def box_rule(dim: int, num: int | None = None) -> Rule:
    box = box_of(dim)
    return rule(box.lower, box.upper, num or {1: 60, 2: 32, 3: 24, 4: 18}[dim])


@cache
def learned(name: str, tol: float) -> psd.engines.AbstractModel:
    """The filter of a ready-made system, learned once for all tests that ask for it.

    On a line with a fixed plan: adaptive steps have tests of their own.
    """
    ssm = systems.ALL[name]()
    chosen, _ = choose_engine(ssm, tol, "auto")
    return psd.learn(ssm, tol, engine="nodes" if chosen.name == "adaptive" else chosen)


def at_nodes(post) -> np.ndarray:
    """Densities of a result at the nodes of its recursion, unit coordinates, (T, n)."""
    plan = post.model.filled.plan
    return np.asarray(post.laws.values_on(FineNodes(plan.nodes, plan.weights)))


def largest_distance(post, reference, every: int = 5) -> float:
    """Largest int |p - q| over some times, both evaluated at the reference's nodes."""
    times = range(0, reference.densities.shape[0], every)
    return max(
        float(reference.weights @ np.abs(np.asarray(post.density(t)(reference.nodes)) - q))
        for t, q in ((t, reference.densities[t]) for t in times)
    )


def errors_on(name: str, tol: float, num_steps: int = 30) -> dict[str, float]:
    """Largest errors of a filter on nodes against the reference of a ready-made system."""
    system = psd.systems.ALL[name]
    _, ys = system.simulate(3, num_steps)
    reference = system.reference(np.asarray(ys))
    post = psd.run_filter(psd.learn(system(), tol, engine="nodes"), ys)
    weights = reference.densities * reference.weights[None, :]
    gaps = np.abs(np.asarray(post.log_likelihoods) - reference.log_likelihoods)
    return {
        "density": largest_distance(post, reference),
        "log Z": float(np.max(gaps)),
        # |int x (p - q)| <= sup |x| int |p - q|: a mean may be off by several tolerances.
        "mean / 5": float(np.max(np.abs(np.asarray(post.mean) - weights @ reference.nodes))) / 5,
    }


def random_model(rng: np.random.Generator, dim: int, seen: int) -> dict[str, np.ndarray]:
    """A stable linear-Gaussian model with correlated noises and offsets."""

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
    """Observations of a linear-Gaussian model."""
    F, Q, H, R, b, d = (model[name] for name in ("F", "Q", "H", "R", "b", "d"))
    x, ys = rng.multivariate_normal(model["m0"], model["P0"]), []
    for _ in range(num):
        x = F @ x + b + rng.multivariate_normal(np.zeros(len(b)), Q)
        ys.append(H @ x + d + rng.multivariate_normal(np.zeros(len(d)), R))
    return np.asarray(ys)


def kalman(ys, F, Q, H, R, m0, P0, b=None, d=None, first: str = "predict"):
    """Means, covariances and log-likelihoods; NaN coordinates are dropped from the update."""
    b = np.zeros(len(F)) if b is None else b
    d = np.zeros(len(H)) if d is None else d
    m, P = m0, P0
    means, covariances, logs = [], [], []
    for t, y in enumerate(np.asarray(ys)):
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
