"""Compression: what is lost is what is reported, by quadrature of the definitions."""

import jax
import numpy as np
import pytest
from helpers import box_of, box_rule, definition, make, rule, seeds, slow, wide_rule
from hypothesis import given, settings
from hypothesis import strategies as st

import psdfilter as psd

KINDS = st.sampled_from(["scattered_full", "mixture", "grid_rank_three"])
DOMAINS = pytest.mark.parametrize(("dim", "whole"), [slow(1, True), (2, False)])


@pytest.mark.long
@DOMAINS
@given(kind=KINDS, seed=seeds)
@settings(max_examples=10)
def test_rank_truncation_loses_exactly_the_dropped_eigenvalues(dim, whole, kind, seed):
    rank = 2
    f = make(kind, seed, dim)
    box, along = (None, wide_rule(dim)) if whole else (box_of(dim), box_rule(dim))
    small, lost = psd.densities.compress_with_loss(f, rank=rank, box=box)
    assert small.rank == rank
    before, after = definition(f, along.nodes), definition(small, along.nodes)
    total = along.weights @ before
    assert np.all(after <= before * (1 + 1e-10) + 1e-12 * before.max())  # pointwise below
    np.testing.assert_allclose(
        along.weights @ np.abs(before - after), lost, rtol=1e-9, atol=1e-9 * total
    )
    kept = along.weights @ after
    tv = along.weights @ np.abs(before / total - after / kept)
    assert tv <= 2 * float(lost) / total * (1 + 1e-9)


@pytest.mark.slow
def test_the_dropped_eigenvalues_are_the_smallest_of_the_mass_matrix():
    f, along = make("scattered_full", 3, 2), box_rule(2)
    delta = along.nodes[:, None, :] - np.asarray(f.anchors)[None]
    k = np.exp(-np.einsum("nmd,d->nm", delta**2, np.asarray(f.precision)))
    columns = k @ np.asarray(f.factor)
    eigenvalues = np.linalg.eigvalsh(columns.T @ (along.weights[:, None] * columns))
    for rank in (1, 3):
        lost = psd.densities.compress_with_loss(f, rank=rank, box=box_of(2)).lost_mass
        np.testing.assert_allclose(lost, eigenvalues[: f.rank - rank].sum(), rtol=1e-8)


@pytest.mark.long
@pytest.mark.parametrize(("dim", "whole"), [(1, True), slow(2, False)])
@given(kind=KINDS, seed=seeds)
@settings(max_examples=10)
def test_projection_stays_psd_and_within_its_bound(dim, whole, kind, seed):
    f = make(kind, seed, dim)
    box, along = (None, wide_rule(dim)) if whole else (box_of(dim), box_rule(dim))
    small, lost = psd.densities.compress_with_loss(f, order=2, box=box)
    assert small.order == 2
    before, after = definition(f, along.nodes), definition(small, along.nodes)
    assert np.all(np.asarray(small(along.nodes[::50])) >= 0)
    assert np.linalg.eigvalsh(np.asarray(small.weights))[0] >= -1e-12 * np.max(small.weights)
    total = along.weights @ before
    # An orthogonal projection of the columns: masses add up as squares of lengths do.
    np.testing.assert_allclose(total - along.weights @ after, lost, rtol=1e-7, atol=1e-9 * total)
    error = along.weights @ np.abs(before - after)
    assert error <= 2 * np.sqrt(float(lost) * total) * (1 + 1e-9) + 1e-7 * total
    both, both_lost = psd.densities.compress_with_loss(f, order=2, rank=1, box=box)
    error = along.weights @ np.abs(before - definition(both, along.nodes))
    assert error <= 2 * np.sqrt(float(both_lost) * total) * (1 + 1e-9) + 1e-7 * total


@pytest.mark.slow
def test_projection_is_exact_when_anchors_are_repeated():
    f = make("scattered_full", 8, 2)
    doubled = psd.GaussianPSD(
        np.concatenate([f.anchors, f.anchors]),
        np.concatenate([0.3 * f.factor, 0.7 * f.factor]),
        f.precision,
        -3.0,
    )
    small, lost = psd.densities.compress_with_loss(doubled, order=5, box=box_of(2))
    x = np.random.default_rng(0).uniform(-1, 1, (20, 2))
    expected = np.exp(-3.0) * np.asarray(f(x))
    np.testing.assert_allclose(small(x), expected, rtol=1e-7, atol=1e-9 * expected.max())
    assert float(lost) <= 1e-10 * float(psd.integral(doubled, box_of(2)))


@pytest.mark.slow
def test_a_posterior_of_order_81_is_carried_by_17_anchors():
    # The product of a predicted density and a likelihood, each on nine anchors, has 81: dense, and
    # smooth enough for far fewer.
    grid, rng = np.linspace(-1.2, 1.2, 9), np.random.default_rng(0)
    eta = 0.35 / (grid[1] - grid[0]) ** 2
    prior = psd.GaussianPSD(psd.densities.TensorGrid([grid]), rng.uniform(0.2, 1.0, (9, 2)), eta)
    likelihood = psd.GaussianPSD(
        psd.densities.TensorGrid([grid]), np.exp(-3 * (grid - 0.2) ** 2), eta
    )
    f = psd.product(prior, likelihood)
    assert f.order == 81
    box, along = psd.Box(-1.0, 1.0), rule(-1.0, 1.0, 120)
    small = psd.normalize(psd.compress(f, order=17, box=box), box)
    p = definition(psd.normalize(f, box), along.nodes)
    tv = along.weights @ np.abs(p - definition(small, along.nodes))
    assert tv < 1e-6


def test_sizes_that_are_large_enough_change_nothing():
    f = make("scattered_full", 0, 1)
    same, lost = psd.densities.compress_with_loss(f, order=9, rank=5)
    assert same is f
    assert float(lost) == 0.0


@pytest.mark.slow
def test_compression_is_differentiable_and_jits():
    f = make("scattered_full", 0, 1)

    def value(eta):
        g = psd.GaussianPSD(f.anchors, f.factor, eta)
        return psd.densities.compress_with_loss(g, order=3, rank=2, box=(-1.0, 1.0)).lost_mass

    run, step = jax.jit(value), 1e-5
    numeric = (run(f.precision + step) - run(f.precision - step)) / (2 * step)
    np.testing.assert_allclose(jax.jit(jax.grad(value))(f.precision)[0], numeric, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "order or rank must be given"),
        ({"order": 0}, "order must be a whole number >= 1, got 0"),
        ({"rank": -1}, "rank must be a whole number >= 1, got -1"),
        ({"rank": 1, "box": (0.0, 0.0)}, "lower must be below upper"),
    ],
)
def test_bad_input_is_named(options, message):
    with pytest.raises(ValueError, match=message):
        psd.compress(make("scattered_full", 0, 1), **options)


def test_what_rounding_hides_is_refused_or_counted():
    """Second differences over h: a loss of 91 % was reported as none."""
    box = psd.Box([-1.0, -0.5], [1.0, 1.5])

    def differences(h):
        anchors = [[0, 0], [h, 0], [0, h], [h, h], [0.5, 0.2]]
        weights = np.array([1, -1, -1, 1, 0.3 * h**2]) / h**2
        return psd.GaussianPSD(anchors, weights, [3.0, 2.0])

    with pytest.raises(ValueError, match="the compression of f has no digit left"):
        psd.compress(differences(1e-4), order=4, box=box)
    f, along = differences(1e-2), rule(box.lower, box.upper, 60)
    small, lost = psd.densities.compress_with_loss(f, order=4, box=box)
    before, after = definition(f, along.nodes), definition(small, along.nodes)
    gap, total = along.weights @ np.abs(before - after), along.weights @ before
    assert gap <= 2 * np.sqrt(float(lost) * total)
