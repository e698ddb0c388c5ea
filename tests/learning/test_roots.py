import jax
import jax.numpy as jnp
import numpy as np
import pytest

from psdfilter._density.box import Box
from psdfilter._learning.rank_one import learn_rank_one
from psdfilter._learning.roots import learn_roots

from .test_rank_one import evaluate

BOX = Box([-1.0, -1.0], [1.0, 1.0])
ROOTS = [lambda z: z[0], lambda z: z[1]]


@pytest.mark.long
def test_smooth_roots_of_a_rough_root():
    fit = learn_roots(ROOTS, BOX, tol=1e-6)
    assert fit.model.rank == 2
    x = np.random.default_rng(0).uniform(-1, 1, (2000, 2))
    model = evaluate(fit.model, x) * np.exp(fit.report.log_peak)
    assert np.max(np.abs(model - np.sum(x**2, axis=1))) <= 2e-6
    rank_one = learn_rank_one(lambda z: jnp.sum(z * z), BOX, tol=1e-3)
    assert fit.report.num_anchors < rank_one.report.num_anchors


def test_one_signed_root():
    fit = learn_roots(lambda z: z[0] - 0.3, Box([-1.0], [1.0]), tol=1e-8)
    assert fit.report.num_anchors < 20
    assert float(fit.model(np.array([0.3]))) < 1e-12


@pytest.mark.long
def test_relearning_several_roots():
    fit = learn_roots(ROOTS, BOX, tol=1e-5)
    points = fit.points.points()
    values = jnp.stack([jax.vmap(r)(points) for r in ROOTS], axis=1)
    again = fit.solver().solve(values * np.exp(-0.5 * fit.report.log_peak))
    np.testing.assert_allclose(again, fit.model.factor, atol=1e-8)


def test_errors():
    with pytest.raises(ValueError, match="roots must name at least one"):
        learn_roots([], BOX)
    with pytest.raises(ValueError, match=r"roots\[1\] must return a finite value"):
        learn_roots([lambda z: z[0], lambda z: jnp.log(z[0])], BOX)
