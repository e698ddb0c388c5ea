"""Ends of panels: jumps in the margin that no node sees, and ends beyond which there is nothing."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate

import psdfilter as psd
from psdfilter._inference.adaptive import backtrack
from psdfilter._inference.adaptive.panels import resolve
from psdfilter._inference.adaptive.rules import MARGIN, PANEL, end_rows, patterson


def test_polynomials_are_continued_to_the_ends_of_their_panel():
    powers = np.arange(PANEL)
    at_nodes = patterson().nodes[:, None] ** powers
    assert np.allclose(end_rows() @ at_nodes, [(-1.0) ** powers, np.ones(PANEL)], atol=1e-12)


@pytest.mark.parametrize("share", [-0.9, -0.5, -1e-3, 1e-3, 0.5, 0.9])
@pytest.mark.parametrize("target", [1e-3, 1e-6])
def test_a_jump_beside_an_end_is_found(share, target):
    # two panels that meet at 0; the density doubles within the margin of one of them
    jump = share * MARGIN

    def field(x):
        return np.where(x > jump, np.log(2.0), 0.0), np.zeros((0, len(x)))

    panels = resolve(field, np.array([-1.0, 0.0]), np.array([0.0, 1.0]), target)
    truth = (1 + jump) + 2 * (1 - jump)
    off = abs(np.exp(panels.log_total) / truth - 1)
    assert off <= target
    assert off <= 2 * np.sum(panels.errors) + 1e-15  # an estimate


def exponential_noise():
    return psd.StateSpaceModel(
        log_prior=lambda x: jnp.where(jnp.abs(x[0]) < 1, -jnp.log(2.0), -jnp.inf),
        log_transition=lambda u, x: jnp.where(
            x[0] >= 0.8 * u[0], -(x[0] - 0.8 * u[0]) / 0.5 - jnp.log(0.5), -jnp.inf
        ),
        log_observation=lambda x, y: -0.5 * ((y[0] - x[0]) / 0.3) ** 2,
        state_box=psd.Box([-2.0], [8.0]),
    )


@pytest.mark.long
def test_predictions_are_right_at_every_single_point():
    # p(x) = int_{-1}^{min(1, x / .8)} e^{-(x - .8 u) / .5} du: u jumps at x / .8, anywhere
    ssm = exponential_noise()
    post = psd.run_filter(psd.learn(ssm, 1e-5), np.array([[0.4]]))
    x = np.linspace(-0.79, 1.5, 401)
    top = np.minimum(1.0, x / 0.8)
    scale = 0.5 / 0.8
    prior = scale * (np.exp(top / scale) - np.exp(-1 / scale)) * np.exp(-x / 0.5)
    truth = prior * np.exp(-0.5 * ((0.4 - x) / 0.3) ** 2)

    def again(x):
        u = min(1.0, x / 0.8)
        inner = scale * (np.exp(u / scale) - np.exp(-1 / scale)) * np.exp(-x / 0.5)
        return inner * np.exp(-0.5 * ((0.4 - x) / 0.3) ** 2)

    norm, _ = integrate.quad(again, -0.8, 8.0, points=[0.8], epsabs=1e-13, limit=200)
    ours = np.asarray(post.density(0)(x[:, None]))
    assert np.max(np.abs(ours - truth / norm)) <= 3e-5 * np.max(truth / norm)


@pytest.mark.slow
def test_bounded_sensors_have_nothing_beyond_their_ends(monkeypatch):
    # their laws end in a jump to zero: no window has to be wider, no step made again
    ssm = psd.linear_gaussian(
        1.0,
        0.09,
        None,
        None,
        0.0,
        1.0,
        log_observation=lambda x, y: jnp.where(jnp.abs(y[0] - x[0]) <= 0.4, 0.0, -jnp.inf),
    )
    again, calls = backtrack._again, []
    monkeypatch.setattr(backtrack, "_again", lambda *args: (calls.append(1), again(*args))[1])
    rng = np.random.default_rng(0)
    x = np.cumsum(0.3 * rng.normal(size=6))
    post = psd.run_filter(psd.learn(ssm, 1e-2), (x + rng.uniform(-0.4, 0.4, 6))[:, None])
    assert not calls
    assert np.max(post.error_estimates) <= 1e-2
    assert np.all(np.asarray(post.codes) == 0)
