"""Distances, entropy and level sets against SciPy, closed forms and the inequalities between them.

None of them has a closed form for PSD models; a single bump is a normal, for which there is one.
"""

import jax
import numpy as np
import pytest
from helpers import box_of, definition, make, rule, seeds, slow
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

import psdfilter as psd

KINDS = st.sampled_from(["scattered_full", "mixture"])


def normal(mean, variance):
    return psd.from_mixture([1.0], np.atleast_2d(mean), np.atleast_1d(variance))


def values(f, nodes, weights):
    p = definition(f, nodes)
    return p / (weights @ p)


@pytest.mark.long
def test_between_two_normals():
    p, q = normal(0.0, 0.04), normal(0.3, 0.09)
    a, b = stats.norm(0.0, 0.2), stats.norm(0.3, 0.3)
    tv, _ = integrate.quad(lambda x: abs(a.pdf(x) - b.pdf(x)), -3, 3, limit=400, epsabs=1e-12)
    kl = np.log(0.3 / 0.2) + (0.04 + 0.09) / (2 * 0.09) - 0.5
    overlap = np.sqrt(2 * 0.06 / 0.13) * np.exp(-0.25 * 0.09 / 0.13)
    np.testing.assert_allclose(psd.total_variation(p, q), tv, rtol=1e-5)
    np.testing.assert_allclose(psd.densities.kl_divergence(p, q), kl, rtol=1e-9)
    np.testing.assert_allclose(psd.densities.hellinger(p, q), np.sqrt(1 - overlap), rtol=1e-9)
    np.testing.assert_allclose(psd.densities.entropy(p), a.entropy(), rtol=1e-9)
    # On a box the log ratio of two normals is a parabola: its extremes are the ends or the top.
    x = np.linspace(-0.5, 0.8, 200_001)
    ratio = a.logpdf(x) - b.logpdf(x)
    got = psd.densities.hilbert_metric(p, q, (-0.5, 0.8))
    np.testing.assert_allclose(got, np.ptp(ratio), rtol=1e-5)


@pytest.mark.slow
def test_between_normals_in_two_and_three_dimensions():
    for dim, rtol in ((2, 1e-9), (3, 1e-6)):
        mean, variance = np.linspace(-0.2, 0.3, dim), np.linspace(0.03, 0.06, dim)
        p, q = normal(np.zeros(dim), np.full(dim, 0.05)), normal(mean, variance)
        kl = 0.5 * np.sum(0.05 / variance + mean**2 / variance - 1 + np.log(variance / 0.05))
        np.testing.assert_allclose(psd.densities.kl_divergence(p, q), kl, rtol=rtol)
        entropy = 0.5 * np.sum(np.log(2 * np.pi * np.e * variance))
        np.testing.assert_allclose(psd.densities.entropy(q), entropy, rtol=rtol)


@pytest.mark.long
@pytest.mark.parametrize("dim", [1, slow(2)])
@given(kind=KINDS, other=KINDS, seed=seeds)
@settings(max_examples=6)
def test_against_quadrature_and_the_inequalities_that_hold_between_them(dim, kind, other, seed):
    p, q, box = make(kind, seed, dim), make(other, seed + 1, dim), box_of(dim)
    along = rule(box.lower, box.upper, {1: 250, 2: 80}[dim])
    a, b = (values(f, along.nodes, along.weights) for f in (p, q))
    tv, hellinger = psd.total_variation(p, q, box), psd.densities.hellinger(p, q, box)
    kl, hilbert = psd.densities.kl_divergence(p, q, box), psd.densities.hilbert_metric(p, q, box)
    expected = np.sqrt(0.5 * along.weights @ (np.sqrt(a) - np.sqrt(b)) ** 2)
    np.testing.assert_allclose(hellinger, expected, rtol=1e-6)
    np.testing.assert_allclose(kl, along.weights @ (a * np.log(a / b)), rtol=1e-6)
    np.testing.assert_allclose(
        psd.densities.entropy(p, box), -along.weights @ (a * np.log(a)), rtol=1e-6
    )
    np.testing.assert_allclose(tv, along.weights @ np.abs(a - b), atol=2e-3)
    slack = 1 + 1e-5
    assert 0 <= float(tv) <= 2
    assert float(tv) <= 2 * np.tanh(float(hilbert) / 4) * slack
    assert float(tv) <= np.sqrt(2 * float(kl)) * slack  # Pinsker, for the norm without 1/2
    assert 2 * float(hellinger) ** 2 <= float(tv) * slack
    assert float(tv) <= 2 * np.sqrt(2) * float(hellinger) * slack
    assert float(kl) <= float(hilbert) * slack


@pytest.mark.slow
def test_identical_models_are_at_distance_zero_and_scales_do_not_matter():
    f, box = make("scattered_full", 1, 2), box_of(2)
    g = psd.scale(f, -700.0)
    for distance in (
        psd.total_variation,
        psd.densities.hellinger,
        psd.densities.kl_divergence,
        psd.densities.hilbert_metric,
    ):
        np.testing.assert_allclose(distance(f, g, box), 0.0, atol=1e-10)


def test_models_that_do_not_meet_are_at_distance_two():
    p, q = normal(-0.5, 1e-4), normal(0.5, 1e-4)
    np.testing.assert_allclose(psd.total_variation(p, q), 2.0, rtol=1e-6)
    np.testing.assert_allclose(psd.densities.hellinger(p, q), 1.0, rtol=1e-6)


@pytest.mark.slow
def test_distances_to_a_generalised_model():
    f = make("scattered_full", 3, 2)
    np.testing.assert_allclose(psd.total_variation(f, psd.generalize(f)), 0.0, atol=1e-9)


@pytest.mark.long
@pytest.mark.parametrize("dim", [1, slow(2)])
def test_the_mass_above_the_level_is_the_share(dim):
    f, box = make("scattered_full", 7, dim), box_of(dim)
    shares = np.array([0.1, 0.5, 0.9])
    levels = np.asarray(psd.densities.hdr_level(f, shares, box))
    fine = [np.linspace(a, b, 901) for a, b in zip(box.lower, box.upper, strict=True)]
    middles = [0.5 * (t[1:] + t[:-1]) for t in fine]
    mesh = np.stack([m.ravel() for m in np.meshgrid(*middles, indexing="ij")], axis=-1)
    p = definition(f, mesh)
    p = p / p.sum()
    height = p * (900**dim / float(box.volume))
    covered = [p[height > c].sum() for c in levels]
    np.testing.assert_allclose(covered, shares, atol=2e-3)
    assert np.all(np.diff(levels) < 0)


def test_level_of_a_normal_is_the_density_at_its_quantile():
    p = normal(0.1, 0.04)
    expected = stats.norm(0, 0.2).pdf(0.2 * stats.norm.ppf(0.5 + np.array([0.25, 0.475])))
    np.testing.assert_allclose(psd.densities.hdr_level(p, [0.5, 0.95]), expected, rtol=1e-4)


@pytest.mark.long
def test_distances_work_under_jit_with_a_traced_box_when_nodes_are_told():
    f, g = make("scattered_full", 1, 1), make("mixture", 2, 1)

    @jax.jit
    def run(upper):
        box = psd.Box([-1.0], upper[None])
        return psd.total_variation(f, g, box, num_nodes=300), psd.densities.entropy(
            f, box, num_nodes=300
        )

    tv, entropy = run(np.float64(0.9))
    np.testing.assert_allclose(tv, psd.total_variation(f, g, (-1.0, 0.9)), rtol=1e-3)
    np.testing.assert_allclose(entropy, psd.densities.entropy(f, (-1.0, 0.9)), rtol=1e-8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: psd.total_variation(f, make("mixture", 0, 2)), "equally many coordinates"),
        (lambda f: psd.total_variation(f, 1.0), "q must be a GaussianPSD"),
        (lambda f: psd.densities.hdr_level(f, 1.0), r"mass must lie in \(0, 1\), got 1.0"),
        (lambda f: psd.densities.entropy(f, num_nodes=0), "num_nodes must be a whole number"),
        (
            lambda f: psd.densities.entropy(psd.from_mixture([1.0], np.zeros((1, 4)), np.ones(4))),
            "at most 3 coordinates",
        ),
        (lambda f: jax.jit(psd.densities.entropy)(f), "num_nodes must be given under jit"),
    ],
)
def test_bad_input_is_named(call, message):
    f = make("mixture", 0, 1)
    with pytest.raises(ValueError, match=message):
        call(f)


def test_entropy_of_a_needle():
    needle = psd.GaussianPSD([[0.2]], [1.0], 1e12)
    expected = stats.norm(0, 0.5e-6).entropy()
    np.testing.assert_allclose(psd.densities.entropy(needle, (-1, 1)), expected, rtol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("sd", [1e-1, 1e-3, 1e-5])
def test_narrow_densities_in_a_wide_box(sd):
    """Nodes lie where the densities are, not where the box is."""
    p, q = normal(0.1, sd**2), normal(0.1 + sd, sd**2)
    expected = 2 * (2 * stats.norm.cdf(0.5) - 1)
    np.testing.assert_allclose(psd.total_variation(p, q, psd.Box(-1.0, 1.0)), expected, rtol=1e-5)
