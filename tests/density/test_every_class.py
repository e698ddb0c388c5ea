"""The calculus has no exceptions: every class of density goes through, or says what to call."""

import warnings
from functools import cache

import jax
import numpy as np
import pytest

import psdfilter as psd
from psdfilter._inference.adaptive.density import LineDensity
from psdfilter._inference.given.density import StepDensity
from psdfilter._inference.nodes.densities import ProductDensity, SmoothedDensity

KEY = jax.random.key(0)
BOX = psd.Box([-1.0], [1.0])
YS = [0.3, 0.6]


@cache
def posterior(engine):
    model = psd.learn(psd.systems.sine_map(), 1e-2, engine=engine)
    return psd.run_filter(model, YS), psd.run_smoother(model, YS)


def diagonal():
    return psd.GaussianPSD([[-0.5], [0.4]], [[1.0, 0.2], [0.5, 0.3]], [4.0])


def general():
    return psd.GeneralizedGaussianPSD.from_centers(
        [[-0.5], [0.4]], [[1.0, 0.2], [0.5, 0.3]], [[[4.0]], [[3.0]]]
    )


def pairs():
    wide = psd.GeneralizedGaussianPSD.from_centers(
        [[-0.5, 0.1], [0.4, 0.0]],
        [1.0, 0.5],
        [[[4.0, 1.0], [1.0, 3.0]], [[3.0, -0.5], [-0.5, 2.0]]],
    )
    return psd.marginal(wide, 0)


def given():
    Q = psd.GaussianPSD([[-0.5, -0.4], [0.5, 0.4]], [1.0, 1.0], [1.5, 2.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = psd.learned(prior=diagonal(), transition=Q, observation=Q, box=BOX)
    return psd.run_filter(model, YS).density(1)


CLASSES = {
    "GaussianPSD": diagonal,
    "GeneralizedGaussianPSD": general,
    "PairwiseGaussianPSD": pairs,
    "GaussianBlocks": lambda: psd.GaussianBlocks.mixture([0.4, 0.6], [[-0.5], [0.4]], [[0.1]]),
    "ProductDensity": lambda: posterior("nodes")[0].density(1),
    "SmoothedDensity": lambda: posterior("nodes")[1].density(0),
    "LineDensity": lambda: posterior("adaptive")[0].density(1),
    "StepDensity": given,
}
LAZY = (ProductDensity, SmoothedDensity, LineDensity, StepDensity)
KERNEL = psd.GaussianPSD([[-0.3, -0.2], [0.3, 0.2]], [1.0, 1.0], [1.0, 1.0])
OPERATIONS = {
    "integral": psd.integral,
    "moments": psd.moments,
    "marginal": lambda f: psd.marginal(f, 0),
    "product": lambda f: psd.product(f, diagonal()),
    "partial": lambda f: psd.partial(psd.product(f, KERNEL, (0,), (0, 1)), 0, [0.1]),
    "transition": lambda f: psd.transition(KERNEL, f),
    "cdf": lambda f: psd.cdf(f, 0, 0.2),
    "quantile": lambda f: psd.quantile(f, 0, 0.4),
    "sample": lambda f: psd.sample(f, key=KEY, num=3),
    "compress": lambda f: psd.compress(f, 1),
    "generalize": psd.generalize,
}


@cache
def density(name):
    return CLASSES[name]()


@pytest.mark.long
def test_the_registry_names_what_it_holds():
    for name in CLASSES:
        assert type(density(name)).__name__ == name


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("name", CLASSES)
def test_an_operation_works_or_names_the_conversion(name, operation):
    f = density(name)
    if not isinstance(f, LAZY) and (name, operation) != ("GaussianBlocks", "compress"):
        leaves = jax.tree.leaves(OPERATIONS[operation](f))
        assert all(np.isfinite(leaf).all() for leaf in leaves)
        return
    with pytest.raises(ValueError, match=r"expand\(\)|learn_rank_one|generalize\(f\)"):
        OPERATIONS[operation](f)


@pytest.mark.long
@pytest.mark.parametrize("name", ["ProductDensity", "StepDensity"])
def test_what_expands_goes_through_on_its_box(name):
    f = density(name)
    whole = f.expand()
    assert abs(float(psd.integral(whole, BOX)) - 1.0) < 1e-11
    x, w = np.polynomial.legendre.leggauss(300)
    values = np.asarray(f(x[:, None]))
    np.testing.assert_allclose(psd.moments(whole, BOX)[0], [w @ (x * values)], atol=1e-10)
    np.testing.assert_allclose(psd.cdf(whole, 0, psd.quantile(whole, 0, 0.4, BOX), BOX), 0.4)


@pytest.mark.parametrize("name", ["ProductDensity", "SmoothedDensity", "StepDensity"])
def test_densities_on_a_box_have_mass_one_to_rounding(name):
    x, w = np.polynomial.legendre.leggauss(400)
    assert abs(w @ np.asarray(density(name)(x[:, None])) - 1.0) < 1e-12


def test_what_the_rule_of_the_filter_is_off_by():
    post, _ = posterior("nodes")
    errors = np.asarray(post.normalizer_errors)
    assert errors.shape == (2,)
    assert 0 < np.abs(errors).max() < 1e-2
