"""Linearisation, correction, splits and merges of single Gaussians, against quadrature."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from psdfilter._gaussian.small import backward_solve, forward_solve, semidefinite_cholesky
from psdfilter._inference.gaussian.mixture import Mixture, moments
from psdfilter._inference.mixture.correct import Seen, correct
from psdfilter._inference.mixture.linearize import (
    expand,
    fifth_degree_rule,
    main_direction,
    push,
)
from psdfilter._inference.mixture.merging import (
    emptied,
    find_neighbours,
    merge_loss,
    removal,
)
from psdfilter._inference.mixture.refine import relief
from psdfilter._inference.mixture.splitting import split_places, unit_split

LINE = np.linspace(-12.0, 12.0, 24001)
STEP = LINE[1] - LINE[0]


def normal(x, mean, variance):
    return np.exp(-0.5 * (x - mean) ** 2 / variance) / np.sqrt(2 * np.pi * variance)


def random_covariance(rng, dim):
    root = rng.normal(size=(dim, dim))
    return root @ root.T + 0.1 * np.eye(dim)


@pytest.mark.parametrize("dim", [1, 2, 4, 6])
def test_the_rule_is_of_degree_five(dim):
    """Moments of N(0, I): E z_i^4 = 3, E z_i^2 z_j^2 = 1, odd ones zero."""
    rule = fifth_degree_rule(dim)
    z, w = rule.points, rule.weights
    np.testing.assert_allclose(w.sum(), 1.0, atol=1e-14)
    np.testing.assert_allclose((w[:, None] * z).sum(0), 0.0, atol=1e-13)
    np.testing.assert_allclose(np.einsum("n,ni,nj->ij", w, z, z), np.eye(dim), atol=1e-13)
    fourth = np.einsum("n,ni,nj,nk,nl->ijkl", w, z, z, z, z)
    eye = np.eye(dim)
    wanted = (
        np.einsum("ij,kl->ijkl", eye, eye)
        + np.einsum("ik,jl->ijkl", eye, eye)
        + np.einsum("il,jk->ijkl", eye, eye)
    )
    np.testing.assert_allclose(fourth, wanted, atol=1e-12)


@pytest.mark.parametrize("dim", [1, 2, 5])
def test_small_factors_are_those_of_lapack(dim):
    rng = np.random.default_rng(dim)
    S = random_covariance(rng, dim)
    chol = semidefinite_cholesky(jnp.asarray(S))
    np.testing.assert_allclose(chol, np.linalg.cholesky(S), atol=1e-12)
    b = jnp.asarray(rng.normal(size=(dim, 3)))
    np.testing.assert_allclose(forward_solve(chol, b), np.linalg.solve(chol, b), atol=1e-11)
    np.testing.assert_allclose(backward_solve(chol, b), np.linalg.solve(chol.T, b), atol=1e-11)


@pytest.mark.long
def test_a_singular_matrix_has_a_factor():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 2))
    chol = semidefinite_cholesky(jnp.asarray(root @ root.T))
    np.testing.assert_allclose(chol @ chol.T, root @ root.T, atol=1e-12)
    assert int(jnp.sum(jnp.diagonal(chol) > 0)) == 2


@pytest.mark.parametrize("spread", [0.05, 0.2, 0.4])
def test_the_bend_tells_the_error_of_a_linearisation(spread):
    """Moments of sin(x) + noise, and total variation between 0.5 and 2 times the bend."""
    mean, noise = 0.9, 0.02**2
    pushed = jax.jit(lambda m, L, W: push(expand(jnp.sin, m, L), W))(
        jnp.asarray([mean]), jnp.asarray([[spread]]), jnp.asarray([[noise]])
    )
    x = mean + spread * LINE
    weights = normal(LINE, 0.0, 1.0) * STEP
    first = np.sum(weights * np.sin(x))
    second = np.sum(weights * (np.sin(x) - first) ** 2) + noise
    assert abs(float(pushed.mean[0]) - first) < 3e-2 * spread**4
    assert abs(float(pushed.covariance[0, 0]) / second - 1) < 2 * spread**4 + 1e-6
    grid = first + np.sqrt(second) * np.linspace(-8, 8, 1601)
    exact = (normal(grid[:, None], np.sin(x)[None, ::12], noise) * weights[None, ::12] * 12).sum(1)
    gaussian = normal(grid, float(pushed.mean[0]), float(pushed.covariance[0, 0]))
    variation = np.sum(np.abs(exact - gaussian)) * (grid[1] - grid[0])
    assert 0.5 < variation / float(pushed.bend) < 2.0


def test_the_main_direction_is_the_first_eigenvector():
    rng = np.random.default_rng(3)
    for dim in (2, 4):
        form = random_covariance(rng, dim)
        v = np.asarray(jax.jit(main_direction)(jnp.asarray(form)))
        wanted = np.linalg.eigh(form)[1][:, -1]
        np.testing.assert_allclose(abs(v @ wanted), 1.0, atol=1e-6)


@pytest.mark.parametrize(("spread", "sensor_sd"), [(0.1, 0.3), (0.1, 0.02), (0.3, 0.3)])
def test_bayes_rule_for_a_bent_sensor(spread, sensor_sd):
    """Mass, mean and variance against quadrature, for y = sin(x) + N near the turning point."""
    mean, y = 1.2, 0.8
    seen = Seen.of(jnp.asarray([y]), jnp.asarray([[sensor_sd**2]]))

    def residual(x):
        return seen.residual(jnp.sin(x))

    m, L = jnp.asarray([mean]), jnp.asarray([[spread]])
    out = jax.jit(lambda: correct(residual, m, L, push(expand(residual, m, L), jnp.eye(1))))()
    x = mean + spread * LINE
    joint = normal(LINE, 0.0, 1.0) * STEP * normal(y, np.sin(x), sensor_sd**2)
    mass = joint.sum()
    first = (joint * x).sum() / mass
    second = (joint * (x - first) ** 2).sum() / mass
    log_mass = float(out.log_mass + seen.log_height)
    error = float(out.error)
    assert error < 0.5
    assert abs(log_mass - np.log(mass)) < 0.5 * error + 1e-3
    assert abs(float(out.mean[0]) - first) / np.sqrt(second) < 0.5 * error + 1e-3
    assert abs(float(out.covariance[0, 0]) / second - 1) < 2 * error + 1e-2


def test_missing_coordinates_count_nothing():
    R = jnp.asarray([[0.3, 0.1], [0.1, 0.4]])
    both = Seen.of(jnp.asarray([0.2, jnp.nan]), R)
    one = Seen.of(jnp.asarray([0.2]), R[:1, :1])
    np.testing.assert_allclose(both.log_height, one.log_height, atol=1e-14)
    residual = both.residual(jnp.asarray([0.5, 7.0]))
    np.testing.assert_allclose(jnp.sum(residual**2), one.residual(jnp.asarray([0.5]))[0] ** 2)


@pytest.mark.parametrize("allowed", [0.02, 0.003])
def test_a_split_keeps_its_promises(allowed):
    """Moments up to the fourth, and the total variation that was asked for."""
    law = unit_split(allowed)
    parts = sum(
        w * normal(LINE, o, law.deviation**2)
        for w, o in ((1 / 6, -law.offset), (2 / 3, 0.0), (1 / 6, law.offset))
    )
    for power, wanted in ((0, 1.0), (2, 1.0), (4, 3.0)):
        assert abs(np.sum(parts * LINE**power) * STEP - wanted) < 1e-8
    variation = np.sum(np.abs(parts - normal(LINE, 0.0, 1.0))) * STEP
    assert 0.9 * allowed < variation < 1.001 * allowed
    assert law.deviation < 0.95


def mixture_of(rng, size, dim):
    return Mixture(
        jnp.log(jnp.asarray(rng.dirichlet(np.ones(size)))),
        jnp.asarray(rng.normal(size=(size, dim))),
        jnp.stack([jnp.asarray(random_covariance(rng, dim)) for _ in range(size)]),
    )


@pytest.mark.long
def test_splits_and_merges_preserve_the_moments():
    size = 12
    mixture = mixture_of(np.random.default_rng(2), size, 2)

    @jax.jit
    def run(mixture):
        neighbours = find_neighbours(mixture)
        weights = jnp.exp(mixture.log_weights)
        nobody = jnp.zeros(size, bool)
        out = removal(mixture, neighbours, nobody, jnp.zeros(size), weights, 1e-4, 1.0)
        merges = out.merges & jnp.isfinite(out.cost)
        fewer = emptied(mixture, neighbours, merges, merges)
        free = jnp.flatnonzero(merges, size=2).reshape(2, 1)
        heaviest = jnp.argmax(fewer.log_weights)[None]
        roots = jax.vmap(semidefinite_cholesky)(fewer.covariances)
        v = jnp.broadcast_to(jnp.asarray([0.6, 0.8]), (size, 2))
        used = jnp.asarray([True])
        more = split_places(fewer, roots, v, heaviest, used, free, unit_split(0.01))
        return merges, fewer, more, [moments(m) for m in (mixture, fewer, more)]

    merges, fewer, more, laws = run(mixture)
    count = size - int(merges.sum())
    assert count <= size - 2
    assert int(jnp.isfinite(fewer.log_weights).sum()) == count
    assert int(jnp.isfinite(more.log_weights).sum()) == count + 2
    for law in laws[1:]:
        for got, wanted in zip(law, laws[0], strict=True):
            np.testing.assert_allclose(got, wanted, atol=1e-12)


@pytest.mark.parametrize(
    ("share", "gap", "ratio"), [(0.5, 1.0, 1.0), (0.5, 2.0, 1.0), (0.9, 1.5, 1.0), (0.5, 0.0, 2.0)]
)
def test_the_loss_of_a_merge_is_about_its_total_variation(share, gap, ratio):
    first = (jnp.zeros(1), jnp.eye(1))
    second = (jnp.asarray([gap]), ratio * jnp.eye(1))
    pair = share * normal(LINE, 0.0, 1.0) + (1 - share) * normal(LINE, gap, ratio)
    mean = (1 - share) * gap
    variance = share + (1 - share) * ratio + share * (1 - share) * gap**2
    variation = np.sum(np.abs(pair - normal(LINE, mean, variance))) * STEP
    assert 0.6 < float(jax.jit(merge_loss)(jnp.asarray(share), first, second)) / variation < 1.6


def test_what_a_split_gains_is_not_overstated():
    """For curvatures C and directions v: |C| against |T C T| with T shrinking v by s."""
    law = unit_split(1e-2)
    rng = np.random.default_rng(3)
    for dim in (1, 3):
        root = rng.normal(size=(dim, dim))
        C = root + root.T
        v = np.linalg.eigh(C @ C)[1][:, -1]
        shrink = np.eye(dim) - (1 - law.deviation) * np.outer(v, v)
        gained = 1 - np.linalg.norm(shrink @ C @ shrink) / np.linalg.norm(C)
        claimed = float(relief(jnp.asarray(v), jnp.asarray(0.5 * C @ C), law))
        assert 0 < claimed < gained + 1e-12
        if dim == 1:
            np.testing.assert_allclose(claimed, 1 - law.deviation**2, rtol=1e-12)
