"""Laws of the calculus over one kind of every density class, against the defining sums."""

import jax
import numpy as np
import pytest
from helpers import DENSITIES, definition, make, slow, wide_rule

import psdfilter as psd

KEY = jax.random.key(0)
every = pytest.mark.parametrize("kind", DENSITIES)
POINTS = np.random.default_rng(3).uniform(-1.2, 1.2, (12, 3))


def assert_close(got, wanted, tol=1e-10):
    size = float(np.max(np.abs(np.asarray(wanted))))
    np.testing.assert_allclose(got, wanted, rtol=tol, atol=tol * size)


@every
def test_values_are_those_of_the_definition_and_never_negative(kind):
    f = make(kind, 1, 2)
    x = POINTS[:, :2]
    assert_close(f(x), definition(f, x))
    far = np.concatenate([x, 30 * x])
    assert np.all(np.asarray(f(far)) >= 0)
    assert np.all(np.isfinite(f.log_density(far)))
    assert int(psd.check(f)) == 0


@every
def test_a_product_with_its_own_kind_is_the_pointwise_product(kind):
    f, g = make(kind, 1, 2), make(kind, 2, 2)
    fg = psd.product(f, g, (0, 1), (1, 2))
    assert type(fg) is type(f)
    assert_close(fg(POINTS), definition(f, POINTS[:, :2]) * definition(g, POINTS[:, 1:]))


PAIRS = [
    ("block_mixture", "scattered_full"),
    ("components", "interfering_blocks"),
    slow("block_mixture", "interfering_blocks"),
    slow("block_mixture", "grid_rank_three"),
    slow("block_mixture", "pairs"),
    slow("scattered_full", "pairs"),
    slow("grid_rank_three", "components"),
    slow("shared_precision", "pairs"),
]


@pytest.mark.long
@pytest.mark.parametrize(("first", "second"), PAIRS)
def test_a_product_of_two_kinds_is_the_pointwise_product(first, second):
    f, g = make(first, 1, 2), make(second, 2, 2)
    fg = psd.product(f, g)
    assert_close(fg(POINTS[:, :2]), definition(f, POINTS[:, :2]) * definition(g, POINTS[:, :2]))


@every
def test_marginal_then_integral_is_the_integral(kind):
    f = make(kind, 1, 2)
    rule = wide_rule(2)
    whole = rule.weights @ definition(f, rule.nodes)
    assert_close(psd.integral(f), whole, 1e-9)
    line = psd.marginal(f, 1)
    assert_close(psd.integral(line), psd.integral(f))
    along = wide_rule(1)
    nodes = np.column_stack([along.nodes[:, 0], np.full(len(along.nodes), 0.3)])
    assert_close(line([0.3]), along.weights @ definition(f, nodes), 1e-9)
    np.testing.assert_allclose(psd.log_integral(f), np.log(whole), atol=1e-9)


@every
def test_partial_evaluation_commutes_with_evaluation(kind):
    f = make(kind, 1, 2)
    got = psd.partial(f, 0, 0.4)(POINTS[:, :1])
    full = np.column_stack([np.full(len(POINTS), 0.4), POINTS[:, 0]])
    assert type(psd.partial(f, 0, 0.4)) is type(f)
    assert_close(got, definition(f, full))


@every
def test_scaling_and_normalising(kind):
    f, x = make(kind, 1, 2), POINTS[:, :2]
    assert_close(psd.scale(f, 1.5)(x), np.exp(1.5) * definition(f, x))
    assert_close(psd.integral(psd.normalize(f)), 1.0, 1e-12)
    center, scale = np.array([0.5, -1.0]), np.array([2.0, 0.5])
    moved = psd.densities.change_units(f, center, scale)
    assert_close(moved(center + scale * x), definition(f, x), 1e-10)


@pytest.mark.long
@every
def test_quantile_inverts_the_distribution_function(kind):
    f = make(kind, 1, 2)
    q = np.array([0.02, 0.5, 0.9])
    t = psd.quantile(f, 1, q)
    np.testing.assert_allclose(psd.cdf(f, 1, t), q, atol=1e-10)
    assert list(np.asarray(psd.quantile(f, 1, [0.0, 1.0]))) == [-np.inf, np.inf]


@pytest.mark.long
@every
def test_draws_have_the_moments(kind):
    f = make(kind, 1, 2)
    mean, covariance = (np.asarray(m) for m in psd.moments(f))
    rule = wide_rule(2)
    values = definition(f, rule.nodes) * rule.weights
    assert_close(mean, values @ rule.nodes / values.sum(), 1e-8)
    draws = np.asarray(psd.sample(f, key=KEY, num=3000))
    error = np.sqrt(np.diag(covariance) / len(draws))
    assert np.all(np.abs(draws.mean(axis=0) - mean) <= 6 * error)
    products = (draws - mean)[:, :, None] * (draws - mean)[:, None, :]
    error = products.std(axis=0) / np.sqrt(len(draws))
    assert np.all(np.abs(products.mean(axis=0) - covariance) <= 6 * error)


@every
def test_generalised_it_is_the_same_function(kind):
    f, x = make(kind, 1, 2), POINTS[:, :2]
    assert_close(psd.generalize(f)(x), definition(f, x))


@pytest.mark.long
@pytest.mark.parametrize("kind", [k for k in DENSITIES if "block" not in k])
def test_compression_is_within_its_bound(kind):
    f, rule = make(kind, 1, 2), wide_rule(2)
    before = definition(f, rule.nodes)
    total = rule.weights @ before
    for order, rank in ((2, None), (None, 1), (2, 1)):
        small, lost = psd.densities.compress_with_loss(f, order, rank)
        assert type(small) is type(f)
        assert (order is None or small.order == order) and (rank is None or small.rank == rank)  # noqa: PT018
        after = np.asarray(small(rule.nodes))
        gap = rule.weights @ np.abs(after - before)
        assert gap <= 2 * np.sqrt(float(lost) * total) * (1 + 1e-8) + 1e-9 * total
        if order is None:
            assert_close(gap, float(lost), 1e-8)


@pytest.mark.long
@pytest.mark.parametrize("kind", ["components", "pairs"])
def test_components_that_depend_on_others_are_dropped_without_loss(kind):
    """A model whose components come twice, with half the factor each, is one of half the order."""
    f, x = make(kind, 1, 2), POINTS[:, :2]
    twice = np.tile(np.arange(f.order), 2)
    if kind == "components":
        parts = f.precision[twice], f.linear[twice], f.offset[twice]
    else:
        i, j = twice[:, None], twice[None, :]
        parts = f.precision[i, j], f.linear[i, j], f.offset[i, j]
    doubled = type(f)(0.5 * f.factor[twice], *parts, f.log_scale, f.origin)
    small, lost = psd.densities.compress_with_loss(doubled, f.order)
    assert float(lost) <= 1e-10 * float(psd.integral(f))
    assert_close(small(x), definition(f, x), 1e-7)


@pytest.mark.long
def test_a_kalman_law_enters_the_calculus_with_order_one():
    f = psd.GaussianBlocks.mixture([0.0, 1.0], [[9.0, 9.0], [0.3, -0.2]], [[0.5, 0.2], [0.2, 0.4]])
    g = psd.generalize(f)
    assert isinstance(g, psd.GeneralizedGaussianPSD)
    assert g.order == 1
    likelihood = psd.partial(psd.conditional_gaussian([[1.0, 0.5]], [[0.1]]), 2, [0.7])
    post = psd.normalize(psd.product(f, likelihood))
    H, S = np.array([[1.0, 0.5]]), np.array([[0.5, 0.2], [0.2, 0.4]])
    gain = S @ H.T / (H @ S @ H.T + 0.1)
    mean, covariance = psd.moments(post)
    at = np.array([0.3, -0.2])
    np.testing.assert_allclose(mean, at + gain[:, 0] * (0.7 - H @ at), atol=1e-12)
    np.testing.assert_allclose(covariance, S - gain @ H @ S, atol=1e-12)


@pytest.mark.long
def test_a_law_on_a_line_is_multiplied_and_fixed_where_it_has_a_density():
    f = psd.GaussianBlocks.mixture([1.0], [[0.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]])
    g = psd.GaussianBlocks.mixture([1.0], [[0.5]], [[0.5]])
    mean, covariance = psd.moments(psd.product(f, g))
    np.testing.assert_allclose(mean, [1 / 3, 4 / 3], atol=1e-12)
    np.testing.assert_allclose(covariance, np.full((2, 2), 1 / 3), atol=1e-12)
    np.testing.assert_allclose(psd.cdf(psd.partial(f, 0, 0.2), 0, [1.19, 1.21]), [0.0, 1.0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: psd.compress(f, 1), r"compress generalize\(f\)"),
        (lambda f: psd.moments(f, ([-1, -1], [1, 1])), "box must be None"),
        (lambda f: psd.marginal(f, 0, ([-1, -1], [1, 1])), "box must be None"),
        (lambda f: psd.sample(f, ([-1, -1], [1, 1]), key=KEY, num=3), "keep those in the box"),
        (lambda f: psd.integral(f, ([-1, -1], [1, 1])), "couples its axes"),
        (lambda f: psd.integral(psd.scale(f, np.inf)), "must be finite"),
    ],
)
def test_what_blocks_cannot_do_says_what_to_call(call, message):
    with pytest.raises(ValueError, match=message):
        call(make("block_mixture", 1, 2))


def test_singular_blocks_say_so():
    f = psd.GaussianBlocks.mixture([1.0], [[0.0, 1.0]], np.diag([1.0, 0.0]))
    for call in (psd.generalize, lambda f: psd.partial(f, 1, 1.0)):
        with pytest.raises(ValueError, match="no density"):
            call(f)


@pytest.mark.long
def test_blocks_work_compiled_and_mapped():
    f = make("interfering_blocks", 1, 2)

    def summary(g):
        return psd.log_integral(psd.product(g, g)), psd.moments(g)[0], psd.cdf(g, 0, 0.3)

    for a, b in zip(jax.jit(summary)(f), summary(f), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11)
