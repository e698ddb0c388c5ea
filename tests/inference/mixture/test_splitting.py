"""Splits and merges of mixtures: what they keep, and how near they stay."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from psdfilter._inference.gaussian.mixture import Mixture, moments
from psdfilter._inference.mixture.compress import merge, pruned
from psdfilter._inference.mixture.splitting import granted, split, split_table


def normal(x, mean, sd):
    return np.exp(-0.5 * ((x - mean) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))


def random_mixture(seed: int, size: int, dim: int) -> Mixture:
    rng = np.random.default_rng(seed)
    roots = 0.5 * rng.normal(size=(size, dim, dim)) + np.eye(dim)
    covariances = roots @ np.swapaxes(roots, 1, 2)
    logs = np.log(rng.dirichlet(np.ones(size)))
    return Mixture(*map(jnp.asarray, (logs, 2 * rng.normal(size=(size, dim)), covariances)))


def test_splits_of_a_normal_are_near_it_and_keep_its_variance():
    table = split_table()
    x = np.linspace(-8, 8, 4001)
    for count, width, offsets, logs in zip(*table, strict=True):
        weights = np.exp(logs[:count])
        np.testing.assert_allclose(weights.sum(), 1.0, rtol=1e-12)
        spread = weights @ np.square(offsets[:count]) + width**2
        np.testing.assert_allclose(spread, 1.0, rtol=1e-9)
        parts = normal(x[:, None], offsets[None, :count], width) @ weights
        assert np.abs(parts - normal(x, 0.0, 1.0)).sum() * (x[1] - x[0]) < 0.0101


# Compiled as a whole: one program each instead of one for every operation.
jit_moments = jax.jit(moments)


@pytest.mark.long
def test_splitting_keeps_mass_mean_and_covariance():
    mixture = random_mixture(0, 4, 2)
    rng = np.random.default_rng(1)
    v = rng.normal(size=(4, 2))
    # A part of the covariance: S - v v' stays positive semidefinite.
    whitened = np.linalg.solve(np.linalg.cholesky(mixture.covariances), v[:, :, None])[:, :, 0]
    v = 0.9 * v / np.linalg.norm(whitened, axis=1)[:, None]
    alive = jnp.ones(4, dtype=bool)
    cut = jax.jit(lambda m, rows, v: split(m, alive, rows, v, 40))
    parts, parent = cut(mixture, jnp.asarray([0, 1, 3, 5]), jnp.asarray(v))
    used = np.asarray(parts.log_weights) > -np.inf
    assert used.sum() == 1 + 3 + 7 + 13
    assert list(np.bincount(np.asarray(parent)[used])) == [1, 3, 7, 13]
    for got, wanted in zip(jit_moments(parts), jit_moments(mixture), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-9)
    lowest = np.linalg.eigvalsh(np.asarray(parts.covariances)[used]).min()
    assert lowest > 0


def test_splits_are_granted_by_score_until_places_run_out():
    wanted, alive = jnp.asarray([2, 2, 2]), jnp.ones(3, dtype=bool)
    allot = jax.jit(lambda scores: granted(wanted, alive, scores, 11))
    assert list(np.asarray(allot(jnp.asarray([0.1, 0.9, 0.5])))) == [0, 2, 2]


merge_to_eight = jax.jit(lambda m: merge(m, 8, np.eye(3)[:, :1]))


@pytest.mark.long
def test_merging_keeps_mass_mean_and_covariance():
    mixture = random_mixture(2, 30, 3)
    small = merge_to_eight(mixture)
    kept, lost = jax.jit(pruned)(mixture)
    for got, wanted in zip(jit_moments(small.mixture), jit_moments(kept), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-10)
    assert float(lost) <= 2e-4
    assert float(small.loss) > 0.01


@pytest.mark.long
def test_merging_what_fits_changes_nothing():
    mixture = random_mixture(3, 30, 3)
    few = jnp.where(jnp.arange(30) < 8, mixture.log_weights, -jnp.inf)
    few = few - jax.nn.logsumexp(few)
    mixture = mixture._replace(log_weights=few, means=20 * mixture.means)
    small = merge_to_eight(mixture)
    order = np.argsort(np.asarray(small.mixture.means)[:, 0])
    wanted = np.argsort(np.asarray(mixture.means)[:8, 0])
    np.testing.assert_allclose(small.mixture.means[order], mixture.means[wanted], rtol=1e-9)
    np.testing.assert_allclose(
        small.mixture.log_weights[order], mixture.log_weights[wanted], atol=1e-9
    )
    assert float(small.loss) < 1e-6
