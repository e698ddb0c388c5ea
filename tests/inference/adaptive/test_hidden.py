"""Narrow features of sensor, map and transition, between the nodes that a law would have."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy import stats
from scipy.stats import norm

import psdfilter as psd
from psdfilter._inference.adaptive.loop.roughness import between, look_inside


def panels(low, high, num, degree=16):
    """Points and weights of Gauss-Legendre panels."""
    z, w = np.polynomial.legendre.leggauss(degree)
    half = (high - low) / (2 * num)
    middle = low + half * (2 * np.arange(num) + 1)
    return (middle[:, None] + half * z).ravel(), np.tile(half * w, num)


def shown(fn, looks=8, num=41):
    """What is told of a map on nodes one apart."""
    line = np.arange(num) - num // 2.0
    return look_inside(fn(between(line, looks))[:, None], (num,), looks)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: 0.3 * x**2,
        lambda x: np.sin(0.5 * x),
        lambda x: np.abs(x - 0.4),
        lambda x: np.where(x > 0.4, 5.0, 0.0),
        lambda x: 5 * np.exp(-0.5 * np.square(x - 0.4)),
    ],
)
def test_what_nodes_show_is_not_hidden(fn):
    assert not shown(fn).hidden.any()


def test_what_nodes_do_not_show_is_hidden_in_its_cell():
    found = shown(lambda x: 5 * np.exp(-0.5 * np.square((x - 3.5) / 0.1)))
    assert np.flatnonzero(found.hidden).tolist() == [23]
    assert np.flatnonzero(found.hidden_beside).tolist() == [23, 24]
    # The range of the map is that of the cell, and not that of its nodes.
    assert found.middle[23, 0] + found.spread[23, 0] == pytest.approx(5.0, abs=1e-6)
    assert shown(lambda x: np.sin(40 * x)).hidden.any()


def test_cells_of_the_plane():
    line = np.arange(21) - 10.0
    x, y = np.meshgrid(between(line, 4), between(line, 4), indexing="ij")
    bump = 5 * np.exp(-0.5 * (np.square(x - 2.5) + np.square(y + 3.5)) / 0.01)
    found = look_inside(bump.reshape(-1, 1), (21, 21), 4)
    assert np.argwhere(found.hidden.reshape(21, 21)).tolist() == [[12, 6]]
    assert not look_inside((0.1 * x * y).reshape(-1, 1), (21, 21), 4).hidden.any()


@pytest.mark.long
@pytest.mark.parametrize("width", [0.01, 0.005])
def test_a_sensor_that_sees_a_spot(width):
    # log Z was off by 1200, with an estimate of 1e-4.
    model = psd.additive_gaussian(
        f=lambda x: 0.95 * x,
        h=lambda x: 5 * jnp.exp(-0.5 * jnp.square((x - 1.2345) / width)),
        Q=0.1,
        R=0.01,
        m0=0.0,
        P0=1.0,
    )
    x, w = panels(1.2345 - 12 * width, 1.2345 + 12 * width, 100)
    seen = norm.pdf(4.9, 5 * np.exp(-0.5 * np.square((x - 1.2345) / width)), 0.1)
    exact = np.log(np.sum(w * norm.pdf(x, 0.0, np.sqrt(0.95**2 + 0.1)) * seen))
    post = psd.run_filter(psd.learn(model, 1e-2), [4.9])
    assert float(post.log_likelihood) == pytest.approx(exact, abs=1e-3)


@pytest.mark.long
@pytest.mark.parametrize("width", [0.01, 0.005, 0.002])
def test_a_transition_with_a_narrow_part(width):
    # log Z was off by half, with estimates of 1e-5 and 1e-6.
    def log_transition(u, x):
        wide = jnp.log(0.98) + stats.norm.logpdf(x[0], 0.8 * u[0], 0.5)
        return jnp.logaddexp(wide, jnp.log(0.02) + stats.norm.logpdf(x[0], 2.0, width))

    model = psd.StateSpaceModel(
        log_prior=lambda x: stats.norm.logpdf(x[0], 0.0, 1.0),
        log_transition=log_transition,
        log_observation=lambda x, y: stats.norm.logpdf(y[0], x[0], 0.3),
        state_box=psd.Box(-9.0, 9.0),
    )
    wide = 0.98 * norm.pdf(2.1, 0.0, np.sqrt(0.64 + 0.25 + 0.09))
    exact = np.log(wide + 0.02 * norm.pdf(2.1, 2.0, np.sqrt(width**2 + 0.09)))
    post = psd.run_filter(psd.learn(model, 1e-2), [2.1])
    assert float(post.log_likelihood) == pytest.approx(exact, abs=1e-4)


@pytest.mark.slow
def test_a_map_with_a_kick():
    # The second log Z was off by 37, with an estimate of 6e-8.
    def f(u, xp):
        return 0.8 * u + 3 * xp.exp(-0.5 * xp.square((u - 0.9) / 0.005))

    ys = [0.9, 3.7]
    model = psd.additive_gaussian(lambda u: f(u, jnp), lambda x: x, Q=0.01, R=0.04, m0=0.0, P0=1.0)
    x, w = panels(-5.0, 6.0, 700)
    density, exact = norm.pdf(x), []
    kernel = norm.pdf(x[None, :], f(x, np)[:, None], 0.1)
    for y in ys:
        density = (w * density) @ kernel * norm.pdf(y, x, 0.2)
        exact.append(np.log(w @ density))
        density = density / (w @ density)
    post = psd.run_filter(psd.learn(model, 1e-2), ys)
    np.testing.assert_allclose(post.log_likelihoods, exact, atol=5e-3)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::psdfilter.ResolutionWarning")
def test_a_spot_in_the_plane_that_a_wider_lattice_misses():
    # Nothing is seen at first, so that the state is not in the spot: a hole in its law. The second
    # observation is made in the spot, and has the first step made again on another lattice.
    centre, width, noise, sensor = np.array([1.0, 0.5]), 0.1, 0.3, 0.3

    def h(x):
        return 5 * jnp.exp(-0.5 * jnp.sum(jnp.square((x - centre) / width)))[None]

    ssm = psd.additive_gaussian(
        lambda u: 0.95 * u, h, noise**2 * np.eye(2), sensor**2, np.zeros(2), np.eye(2)
    )
    ys = np.array([0.0, 4.9])
    post = psd.run_filter(psd.learn(ssm, 1e-2), ys)
    x = np.linspace(-6, 6, 1201)
    step = x[1] - x[0]
    one = stats.norm.pdf(x[:, None], 0.95 * x[None, :], noise) * step
    spot = [np.exp(-0.5 * np.square((x - c) / width)) for c in centre]
    law = stats.norm.pdf(x)[:, None] * stats.norm.pdf(x)[None, :]
    for t, y in enumerate(ys):
        law = one @ law @ one.T * stats.norm.pdf(y, 5 * np.outer(*spot), sensor)
        norm = np.sum(law) * step**2
        law = law / norm
        error = abs(float(post.log_likelihoods[t]) - np.log(norm))
        assert error < 1e-2 or post.codes[t] != 0
        assert error < 10 * float(post.error_estimates[t])


@pytest.mark.slow
@pytest.mark.parametrize("width", [0.05, 0.2])
def test_a_kick_in_the_plane_between_nodes_is_right_or_loud(width):
    # From a spot that no node may be in, the state is thrown to where it is seen.
    centre, kick, noise, sensor, y = np.array([0.5, 0.5]), np.array([4.0, 0.0]), 0.3, 0.5, 4.5

    def f(u):
        return 0.9 * u + kick * jnp.exp(-0.5 * jnp.sum(jnp.square((u - centre) / width)))

    ssm = psd.additive_gaussian(
        f, lambda x: x[:1], noise**2 * np.eye(2), sensor**2, np.zeros(2), np.eye(2)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", psd.ResolutionWarning)
        post = psd.run_filter(psd.learn(ssm, 1e-2), np.array([y]))
    # log Z = log E N(y; f_0(u), noise^2 + sensor^2).
    u, w = panels(-7.0, 7.0, 140)
    bump = np.exp(-0.5 * np.square((u[:, None] - centre) / width))
    means = 0.9 * u[:, None] + kick[0] * np.outer(bump[:, 0], bump[:, 1])
    weights = np.outer(w * norm.pdf(u), w * norm.pdf(u))
    log_z = np.log(np.sum(weights * norm.pdf(y, means, np.hypot(noise, sensor))))
    error = abs(float(post.log_likelihoods[0]) - log_z)
    assert error < 1e-2 or post.codes[0] != 0
    assert error < 10 * float(post.error_estimates[0])


@pytest.mark.long
@pytest.mark.parametrize(("y", "floor"), [(6.0, 1e-300), (-4.0, 1e-40)])
def test_a_likelihood_with_a_floor_far_from_all_nodes(y, floor):
    # A quantised reading nine and more deviations away: on its floor a law would stay where it was.
    edge, noise = 0.01, np.sqrt(0.1)

    def log_observation(x, y):
        upper, lower = (stats.norm.cdf((y[0] + side - x[0]) / edge) for side in (0.5, -0.5))
        return jnp.log(upper - lower + floor)

    ssm = psd.additive_gaussian(
        lambda x: 0.95 * x + 0.1, None, 0.1, None, 1.0, 1.0, log_observation=log_observation
    )
    ys = np.array([1.0, 1.0, 2.0, 2.0, y])
    post = psd.run_filter(psd.learn(ssm, 1e-3), ys)
    x, w = panels(-6.0, 12.0, 150)
    table = norm.pdf(x[:, None], 0.95 * x[None, :] + 0.1, noise) * w[None, :]
    law, log_z = norm.pdf(x, 1.0, 1.0), 0.0
    for seen in ys:
        step = norm.cdf((seen + 0.5 - x) / edge) - norm.cdf((seen - 0.5 - x) / edge)
        law = (table @ law) * (step + floor)
        log_z = np.log(np.sum(w * law))
        law /= np.sum(w * law)
    assert float(post.log_likelihoods[-1]) == pytest.approx(log_z, abs=1e-2)
    assert float(post.mean[-1, 0]) == pytest.approx(np.sum(w * x * law), abs=1e-3)
    assert (np.asarray(post.codes) == 0).all()
