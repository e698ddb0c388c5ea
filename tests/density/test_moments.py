"""Mean, covariance, distribution functions, quantiles and modes against quadrature and SciPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import box_of, box_rule, definition, make, rule, seeds, slow, wide_rule
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

import psdfilter as psd

# One kind for each way the anchors are stored; the factor enters through its product alone.
KINDS = ["singular_weights", "scattered_full", "mixture", "grid_rank_three"]


def bumps(anchors, heights, precision):
    """A model of five anchors, most of them of no weight: one shape, compiled once."""
    points = np.zeros((5, np.shape(anchors)[1]))
    points[: len(anchors)] = anchors
    factor = np.zeros((5, 5))
    factor[range(len(heights)), range(len(heights))] = heights
    return psd.GaussianPSD(points, factor, precision)


def moments_by_quadrature(f, along):
    p = along.weights * definition(f, along.nodes)
    p = p / p.sum()
    mean = p @ along.nodes
    return mean, (along.nodes - mean).T @ (p[:, None] * (along.nodes - mean))


@pytest.mark.long
@pytest.mark.parametrize("dim", [slow(1), 2, slow(3)])
@pytest.mark.parametrize("whole", [False, slow(True)])
@given(kind=st.sampled_from(KINDS), seed=seeds)
@settings(max_examples=10)
def test_mean_and_covariance_equal_quadrature(dim, whole, kind, seed):
    f = make(kind, seed, dim)
    box, along = (None, wide_rule(dim)) if whole else (box_of(dim), box_rule(dim))
    for got, expected in zip(psd.moments(f, box), moments_by_quadrature(f, along), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("center", [0.0, 3.0, 100.0])
@pytest.mark.parametrize("eta", [1e-14, 1e-8, 1e-4, 1e-3, 1e-2])
def test_moments_of_kernels_that_hardly_vary_over_the_box(center, eta):
    # Central moments on Gauss nodes, which are not differences of anything.
    f = bumps([[-0.5], [0.4], [1.3]], [1.0, 0.4, 0.7], eta)
    f = psd.GaussianPSD(f.anchors, f.factor, f.precision, 2 * eta * center**2)
    along = rule(-1.0, 1.0, 40)
    p = along.weights * definition(f, center + along.nodes)
    p, x = p / p.sum(), along.nodes[:, 0]
    mean = p @ x
    got_mean, got_covariance = psd.moments(f, (center - 1.0, center + 1.0))
    np.testing.assert_allclose(got_mean[0] - center, mean, atol=1e-15 * max(1.0, center))
    # 7e-12 with fused multiply-adds, 4e-11 on a processor without them.
    np.testing.assert_allclose(got_covariance[0, 0], p @ (x - mean) ** 2, rtol=1e-10)


@pytest.mark.long
@given(kind=st.sampled_from(KINDS), seed=seeds)
def test_offsets_of_the_units_cost_no_digits(kind, seed):
    f, box = make(kind, seed, 2), box_of(2)
    offset, scale = np.array([1e5, -3e5]), np.array([2.0, 0.5])
    moved = psd.densities.change_units(f, offset, scale)
    room = psd.Box(offset + scale * box.lower, offset + scale * box.upper)
    mean, covariance = psd.moments(f, box)
    got_mean, got_covariance = psd.moments(moved, room)
    np.testing.assert_allclose(got_mean - offset, scale * mean, atol=1e-9)
    np.testing.assert_allclose(got_covariance, np.outer(scale, scale) * covariance, atol=1e-9)


def test_moments_ignore_the_scale_of_the_model():
    f, box = make("scattered_full", 4, 2), box_of(2)
    for log_factor in (-2000.0, 900.0):
        for got, expected in zip(
            psd.moments(psd.scale(f, log_factor), box), psd.moments(f, box), strict=True
        ):
            np.testing.assert_allclose(got, expected, rtol=1e-12)


def test_moments_in_the_tail_are_those_of_a_truncated_normal():
    # One anchor with eta = 1: a normal of standard deviation 1/2, seen 8 of them from its centre.
    f = bumps([[0.0]], [1.0], 1.0)
    mean, covariance = psd.moments(f, (4.0, 9.0))
    truth = stats.truncnorm(8.0, 18.0, scale=0.5)
    np.testing.assert_allclose(mean[0], truth.mean(), rtol=1e-12)
    np.testing.assert_allclose(covariance[0, 0], truth.var(), rtol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("whole", [slow(True), False])
@given(kind=st.sampled_from(["scattered_full", "mixture"]), seed=seeds)
@settings(max_examples=8)
def test_cdf_equals_quadrature_of_the_marginal(whole, kind, seed):
    f, box = make(kind, seed, 2), box_of(2)
    domain = None if whole else box
    low, high = (-5.0, 5.0) if whole else (float(box.lower[0]), float(box.upper[0]))
    other = (-5.0, 5.0) if whole else (float(box.lower[1]), float(box.upper[1]))
    total = rule([low, other[0]], [high, other[1]], 90)
    mass = total.weights @ definition(f, total.nodes)
    for t in (-0.7, 0.4):
        part = rule([low, other[0]], [t, other[1]], 90)
        share = part.weights @ definition(f, part.nodes) / mass
        np.testing.assert_allclose(psd.cdf(f, 0, t, domain), share, atol=1e-9)


@pytest.mark.long
def test_cdf_is_zero_and_one_at_and_beyond_the_box_and_monotone_between():
    # A sharp bump far from the lower bound: its tail function there would overflow.
    f = psd.GaussianPSD([[0.5], [0.45]], [1.0, -0.4], 2000.0)
    t = np.concatenate([[-5.0, -1.0], np.linspace(-0.9, 0.9, 31), [1.0, 3.0]])
    values = np.asarray(psd.cdf(f, 0, t, (-1.0, 1.0)))
    assert np.all(np.isfinite(values))
    np.testing.assert_array_equal(values[[0, 1]], 0.0)
    np.testing.assert_allclose(values[[-2, -1]], 1.0, rtol=1e-14)
    assert np.all(np.diff(values) >= -1e-15)


BOXES = [box_of(2), psd.Box([-np.inf, -0.5], [0.3, np.inf])]


@pytest.mark.parametrize("domains", [slow(BOXES), slow([None])], ids=["boxes", "plane"])
@given(kind=st.sampled_from(["scattered_full", "mixture"]), seed=seeds)
@settings(max_examples=6)
def test_quantile_and_cdf_are_inverse(domains, kind, seed):
    f = make(kind, seed, 2)
    q = np.array([[1e-6, 0.05, 0.5], [0.7, 0.95, 1 - 1e-6]])
    for domain in domains:
        t = psd.quantile(f, 1, q, domain)
        assert t.shape == q.shape
        np.testing.assert_allclose(psd.cdf(f, 1, t, domain), q, atol=1e-12)
        assert np.all(np.diff(np.asarray(t).ravel()) > 0)


@pytest.mark.long
def test_quantiles_of_a_single_bump_are_normal_quantiles():
    f = bumps([[0.3]], [1.0], 1.0)
    q = np.array([0.0, 1e-9, 0.1, 0.5, 0.9, 1 - 1e-9, 1.0])
    np.testing.assert_allclose(
        psd.quantile(f, 0, q), stats.norm(0.3, 0.5).ppf(q), rtol=1e-8, atol=1e-13
    )
    np.testing.assert_allclose(psd.cdf(f, 0, [0.3, 0.8]), stats.norm.cdf([0.0, 1.0]), rtol=1e-13)


@pytest.mark.parametrize("box", [(-1.0, 0.8), (0.0, np.inf), (2.0, 9.0), (2.6, 2.9), (40.0, 41.0)])
def test_quantiles_on_boxes_up_to_the_far_tail(box):
    f = bumps([[0.3]], [1.0], 1.0)
    q = np.array([0.0, 0.01, 0.5, 0.99, 1.0])
    t = np.asarray(psd.quantile(f, 0, q, box))
    np.testing.assert_array_equal(t[[0, -1]], box)
    low, high = (np.array(box) - 0.3) / 0.5
    log_tail = stats.norm.logsf(low)
    inside = 1 - np.exp(stats.norm.logsf(high) - log_tail)
    share = (1 - np.exp(stats.norm.logsf((t[1:-1] - 0.3) / 0.5) - log_tail)) / inside
    np.testing.assert_allclose(share, q[1:-1], atol=1e-9)


@pytest.mark.slow
def test_quantile_gradients_match_finite_differences():
    f = make("scattered_full", 2, 1)

    def value(theta):
        g = psd.GaussianPSD(f.anchors + theta[0], f.factor, f.precision * theta[1])
        return psd.quantile(g, 0, 0.6)

    theta, step = jnp.array([0.0, 1.0]), 1e-5
    got = jax.jit(jax.grad(value))(theta)
    numeric = [(value(theta + step * e) - value(theta - step * e)) / (2 * step) for e in np.eye(2)]
    np.testing.assert_allclose(got, np.stack(numeric), rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_quantile_gradients_on_a_box_that_moves():
    f, room = make("scattered_full", 2, 2), box_of(2)

    def value(theta):
        g = psd.GaussianPSD(f.anchors + theta[0], f.factor, f.precision * theta[1])
        return psd.quantile(g, 0, [0.1, 0.6], psd.Box(room.lower, room.upper + theta[2]))

    theta, step = jnp.array([0.0, 1.0, 0.0]), 1e-5
    got = jax.jit(jax.jacrev(value))(theta)
    numeric = [(value(theta + step * e) - value(theta - step * e)) / (2 * step) for e in np.eye(3)]
    np.testing.assert_allclose(got, np.stack(numeric, axis=1), rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_line_summaries_of_generalised_models():
    f = make("components", 5, 2)
    whole = wide_rule(2)
    p = whole.weights * definition(f, whole.nodes)
    line = rule([-5.0, -5.0], [0.2, 5.0], 90)
    share = line.weights @ definition(f, line.nodes) / p.sum()
    np.testing.assert_allclose(psd.cdf(f, 0, 0.2), share, atol=1e-9)
    np.testing.assert_allclose(psd.cdf(f, 0, psd.quantile(f, 0, 0.3)), 0.3, atol=1e-12)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_mode_is_the_highest_point_of_a_fine_grid_or_above(seed):
    dim = 2
    f, box = make("scattered_full", seed, dim), box_of(dim)
    mesh = np.meshgrid(
        *(np.linspace(a, b, 201) for a, b in zip(box.lower, box.upper, strict=True)), indexing="ij"
    )
    points = np.stack([m.ravel() for m in mesh], axis=-1)
    heights = definition(f, points)
    peak = psd.mode(f, box)
    assert bool(box.contains(peak))
    assert float(f(peak)) >= heights.max() * (1 - 1e-12)
    start = points[np.argmax(heights)]
    polished = optimize.minimize(
        lambda x: -definition(f, x[None])[0],
        start,
        bounds=list(zip(np.asarray(box.lower), np.asarray(box.upper), strict=True)),
    )
    np.testing.assert_allclose(f(peak), -polished.fun, rtol=1e-8)


def test_mode_on_the_boundary_and_in_a_corner():
    f = bumps([[2.0, 0.2]], [1.0], 1.0)
    np.testing.assert_allclose(psd.mode(f, ([-1, -1], [1, 1])), [1.0, 0.2], atol=1e-6)
    corner = bumps([[2.0, -3.0]], [1.0], 1.0)
    np.testing.assert_allclose(psd.mode(corner, ([-1, -1], [1, 1])), [1.0, -1.0], atol=1e-6)


def test_mode_finds_the_higher_of_two_narrow_peaks():
    f = bumps([[-0.7, 0.3], [0.6, -0.4]], [0.7, 0.71], 2500.0)
    np.testing.assert_allclose(psd.mode(f), [0.6, -0.4], atol=1e-6)
    np.testing.assert_allclose(psd.mode(f, ([-1, -1], [0, 1])), [-0.7, 0.3], atol=1e-6)


@pytest.mark.slow
def test_mode_of_a_generalised_model():
    f = psd.from_mixture([1.0], [[0.3, -0.2]], [[[0.2, 0.1], [0.1, 0.3]]])
    np.testing.assert_allclose(psd.mode(f), [0.3, -0.2], atol=1e-6)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: psd.cdf(f, 2, 0.0), r"axis must lie in 0..1, got 2"),
        (lambda f: psd.cdf(f, 0, np.nan), "t must be finite"),
        (lambda f: psd.quantile(f, 0, 1.5), r"q must lie in \[0, 1\], got 1.5"),
        (lambda f: psd.quantile(f, 0, [0.1, np.nan]), "q must be finite"),
        (lambda f: psd.mode(f, num_starts=0), "num_starts must be a whole number >= 1, got 0"),
        (lambda f: psd.moments(psd.generalize(f), ([-1, -1], [1, 1])), "box must be None"),
        (lambda f: psd.moments(psd.conditional_gaussian([[1.0]], [[1.0]])), "finite mass"),
        (lambda f: psd.moments(np.ones(3)), "f must be a GaussianPSD"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call(make("scattered_full", 0, 2))
