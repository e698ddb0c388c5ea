"""Fixed plans integrate the prior too, however narrow it is: against a rule around the prior."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.stats import norm as jnorm
from scipy.stats import norm

import psdfilter as psd

MEAN, Y = 0.123, 0.7


def model(sd):
    return psd.StateSpaceModel(
        log_prior=lambda x: jnorm.logpdf(x[0], MEAN, sd),
        log_transition=lambda u, x: jnorm.logpdf(x[0], 1.6 * jnp.sin(u[0]), 0.5),
        log_observation=lambda x, y: jnorm.logpdf(y[0], x[0], 0.4),
        state_box=psd.Box(-4.0, 4.0),
    )


def truth(sd):
    """log Z of the first step, the density at nodes x, and their weights."""
    z, w = np.polynomial.legendre.leggauss(200)
    u, x = MEAN + 9 * sd * z, 4 * z
    moved = (9 * sd * w * norm.pdf(u, MEAN, sd)) @ norm.pdf(x[None], 1.6 * np.sin(u)[:, None], 0.5)
    p = moved * norm.pdf(Y, x, 0.4)
    return np.log(4 * w @ p), p / (4 * w @ p), x, 4 * w


@pytest.mark.long
@pytest.mark.parametrize("sd", [0.3, 0.1, 0.01])
def test_the_first_step_has_its_tolerance(sd):
    """With a prior of a tenth of the noise, log Z was off by 0.09 at tol = 1e-3, with code 0."""
    log_Z, density, x, w = truth(sd)
    post = psd.run_filter(psd.learn(model(sd), 1e-3, engine="nodes"), [Y])
    assert abs(float(post.log_likelihood) - log_Z) < 1e-3
    assert w @ np.abs(np.asarray(post.density(0)(x[:, None])) - density) < 1e-3
    assert np.all(np.asarray(post.codes) == 0)


@pytest.mark.long
def test_so_do_series_that_are_traced():
    log_Z, *_ = truth(0.1)
    learned = psd.learn(model(0.1), 1e-3)
    run = jax.vmap(lambda ys: psd.run_filter(learned, ys, throw=False).log_likelihood)
    np.testing.assert_allclose(run(jnp.full((2, 1), Y)), log_Z, atol=1e-3)


def test_a_prior_that_no_plan_resolves_is_refused_by_its_cause():
    with pytest.raises(ValueError, match="the prior"):
        psd.learn(model(1e-5), 1e-3, engine="nodes")


@pytest.mark.long
def test_batches_that_no_plan_serves_are_filtered_one_by_one():
    """A state that is nearly known at the start; a textbook filter is the truth."""
    ssm = psd.additive_gaussian(lambda x: 0.9 * x, lambda x: x, 0.1, 0.2, 0.3, 1e-6)
    batch = [np.array([0.4, -0.2, 0.5]), np.array([0.1, 0.3])]
    learned = psd.learn(ssm, 1e-4)
    post = psd.run_filter(learned, batch)
    for i, ys in enumerate(batch):
        m, P, total = 0.3, 1e-6, 0.0
        for y in ys:
            m, P = 0.9 * m, 0.81 * P + 0.1
            total += norm.logpdf(y, m, np.sqrt(P + 0.2))
            m, P = m + P / (P + 0.2) * (y - m), P * 0.2 / (P + 0.2)
        np.testing.assert_allclose(post.log_likelihood[i], total, atol=1e-4)
    with pytest.raises(ValueError, match="the prior is so narrow"):
        jax.jit(lambda ys: psd.run_filter(learned, ys).mean)(jnp.zeros((2, 1)))
