"""States and sensors that wrap, against wrapped grids and von Mises's formulas."""

from functools import cache

import jax.numpy as jnp
import numpy as np
import pytest
from regime_oracles import wrapped_normal
from scipy.special import i0, i1

import psdfilter as psd
from psdfilter._inference.numerics.gridded import masses_on_cells
from psdfilter._inference.numerics.regions import highest_regions

PI = np.pi
CIRCLE = psd.Box(-PI, PI, periodic=0)


def around(delta):
    """By the shortest way."""
    return delta - 2 * PI * np.round(np.asarray(delta) / (2 * PI))


@cache
def compass():
    """A heading that turns by 0.4 in every step, across the end of its box."""
    return psd.additive_gaussian(
        lambda u: u + 0.4, lambda x: x, 0.04, 0.09, 2.5, 0.25, state_box=CIRCLE, wrap=[True]
    )


@cache
def learned():
    return psd.learn(compass(), 1e-4)


YS = around(2.5 + 0.4 * np.arange(1, 7) + np.array([0.1, -0.4, 0.2, 0.5, -0.1, 0.3]))


@cache
def filtered():
    return psd.run_filter(learned(), YS)


@pytest.mark.slow
def test_a_heading_is_filtered_as_on_a_wrapped_grid():
    num = 360
    x = -PI + 2 * PI * np.arange(num) / num
    h, law = 2 * PI / num, wrapped_normal(x - 2.5, 0.5)
    move = wrapped_normal(x[None, :] - x[:, None] - 0.4, 0.2)
    post = filtered()
    for t, y in enumerate(YS):
        law = (law @ move) * h * wrapped_normal(y - x, 0.3)
        mass = law.sum() * h
        law = law / mass
        np.testing.assert_allclose(post.log_likelihoods[t], np.log(mass), atol=1e-7)
        first = (law * np.exp(1j * x)).sum() * h
        assert abs(around(post.mean[t, 0] - np.angle(first))) < 1e-6
        np.testing.assert_allclose(post.resultant[t, 0], abs(first), atol=1e-6)
    np.testing.assert_allclose(post.density(-1)(x[:, None]), law, atol=1e-6)
    # A turn more is the same point.
    np.testing.assert_allclose(post.density(-1)(x[:, None] + 4 * PI), law, atol=1e-6)


@pytest.mark.long
def test_narrow_angles_are_those_of_kalman_without_a_circle():
    line = psd.learn(psd.linear_gaussian(1.0, 0.04, 1.0, 0.09, 2.5, 0.25, b=0.4))
    straight = np.unwrap(np.append(2.5, YS))[1:]
    post, there = filtered(), psd.run_filter(line, straight)
    assert np.abs(around(post.mean - there.mean)).max() < 1e-6
    np.testing.assert_allclose(post.covariance, there.covariance, atol=1e-6)
    smooth, back = psd.run_smoother(learned(), YS), psd.run_smoother(line, straight)
    assert np.abs(around(smooth.mean - back.mean)).max() < 1e-6


@pytest.mark.long
def test_intervals_lie_around_the_mean_direction_even_across_the_end():
    post = filtered()
    mean, sd = np.asarray(post.mean), np.sqrt(np.asarray(post.covariance)[:, 0])
    assert (np.abs(mean) <= PI).all()
    for shortest in (False, True):
        low, high = (np.asarray(end) for end in post.interval(0.9, shortest=shortest))
        np.testing.assert_allclose(np.abs(around(low + 1.6449 * sd - mean)), 0.0, atol=2e-3)
        np.testing.assert_allclose(high - low, 2 * 1.6449 * sd, atol=2e-3)
    assert ((np.asarray(low) < -PI) | (np.asarray(high) > PI)).any()
    np.testing.assert_allclose(post.cdf(post.quantile(0.2)), 0.2, atol=1e-8)
    np.testing.assert_allclose(post.cdf(post.quantile(0.2) + 2 * PI), 0.2, atol=1e-8)


def test_observations_may_differ_by_whole_turns_and_units():
    turned = psd.run_filter(learned(), YS + 2 * PI * np.arange(-3, 3))
    np.testing.assert_allclose(turned.log_likelihoods, filtered().log_likelihoods, atol=1e-9)


@pytest.mark.long
def test_degrees_in_a_sensor_of_radians_are_asked_about():
    question = pytest.warns(UserWarning, match=r"angles of up to 170, 27 turns.*degrees")
    with question:
        psd.run_filter(learned(), [150.0, np.nan, 160.0, 170.0])
    degrees = psd.additive_gaussian(
        lambda u: u, lambda x: 180 / PI * x, 0.1, 9.0, 0.0, 1.0, wrap=[360.0]
    )
    psd.run_filter(psd.learn(degrees, 1e-2), [150.0, 160.0, 170.0])


def von_mises(delta, kappa):
    return kappa * jnp.cos(delta) - np.log(2 * PI * i0(kappa))


@pytest.mark.long
def test_von_mises_laws_multiply():
    ssm = psd.StateSpaceModel(
        log_prior=lambda x: von_mises(x[0] - 3.0, 1.5),
        log_transition=lambda u, x: von_mises(x[0] - u[0], 4.0),
        log_observation=lambda x, y: von_mises(y[0] - x[0], 0.8),
        state_box=CIRCLE,
    )
    ys = [-2.0, 2.8]
    post = psd.run_filter(psd.learn(ssm, 1e-4), ys, times=[0, 0])
    vector = 1.5 * np.exp(3.0j)
    for t, y in enumerate(ys):
        before, vector = abs(vector), vector + 0.8 * np.exp(1j * y)
        kappa = abs(vector)
        log_mass = np.log(i0(kappa) / (i0(before) * 2 * PI * i0(0.8)))
        np.testing.assert_allclose(post.log_likelihoods[t], log_mass, atol=1e-9)
        assert abs(around(post.mean[t, 0] - np.angle(vector))) < 1e-9
        np.testing.assert_allclose(post.resultant[t, 0], i1(kappa) / i0(kappa), atol=1e-9)


def bearing(origin, **options):
    """A walker on a line, seen from a point beside it; the angle passes a half turn, or not."""
    side = -1.0 if origin == "behind" else 1.0

    def h(x):
        return jnp.arctan2(side * -x[0], jnp.full((), side))

    return psd.additive_gaussian(
        lambda u: u + 0.3, h, 0.01, 0.0025, -1.0, 0.1, state_box=options.pop("box", None), **options
    )


@pytest.mark.long
@pytest.mark.filterwarnings("ignore::psdfilter.ResolutionWarning")  # of mixtures, both alike
@pytest.mark.parametrize("engine", ["adaptive", pytest.param("mixture", marks=pytest.mark.slow)])
def test_bearings_across_a_half_turn_are_as_good_as_any(engine):
    ahead = np.arctan2(0.7 - 0.3 * np.arange(5), 1.0) + 0.05 * np.array([1, -1, 2, 0, -1])
    behind = around(ahead + PI)
    assert np.abs(np.diff(behind)).max() > PI
    one = psd.learn(bearing("behind", wrap=[True]), 1e-2, engine=engine)
    two = psd.learn(bearing("ahead"), 1e-2, engine=engine)
    crossing, plain = psd.run_filter(one, behind), psd.run_filter(two, ahead)
    # The adaptive engine has a table of one likelihood, and of the other's map.
    atol = 1e-4 if engine == "adaptive" else 1e-9
    np.testing.assert_allclose(crossing.mean, plain.mean, atol=atol)
    np.testing.assert_allclose(crossing.log_likelihoods, plain.log_likelihoods, atol=atol)


@pytest.mark.long
def test_degrees_are_periods_of_their_own():
    def model(unit, period):
        return psd.additive_gaussian(
            lambda u: u, lambda x: unit * x, 0.1, (0.3 * unit) ** 2, 0.0, 1.0, wrap=[period]
        )

    y, x = np.array([2.0]), np.array([-2.9])
    unit = 180 / PI
    radians = model(1.0, True).log_observation(x, y)
    degrees = model(unit, 360.0).log_observation(x, unit * y)
    np.testing.assert_allclose(radians, degrees + np.log(unit), rtol=1e-12)
    np.testing.assert_allclose(radians, np.log(wrapped_normal(2.0 + 2.9, 0.3)), rtol=1e-9)


@pytest.mark.long
def test_a_missing_angle_is_left_out():
    ssm = psd.additive_gaussian(
        lambda u: u, lambda x: jnp.stack([x[0], x[0]]), 0.1, [0.25, 0.04], 0.0, 1.0,
        wrap=[True, False],
    )  # fmt: skip
    x = np.array([0.2])
    alone = ssm.log_observation(x, np.array([np.nan, 0.5]))
    np.testing.assert_allclose(
        alone, np.log(np.exp(-0.5 * (0.3 / 0.2) ** 2) / (0.2 * np.sqrt(2 * PI)))
    )
    angle = ssm.log_observation(x, np.array([6.0, np.nan]))
    np.testing.assert_allclose(angle, np.log(wrapped_normal(5.8, 0.5)), rtol=1e-9)


@pytest.mark.slow
def test_a_robot_with_a_heading_is_that_of_a_dense_grid():
    """Position along a line, moved by the cosine of a heading that wraps."""
    box = psd.Box([-4.0, -PI], [4.0, PI], periodic=1)
    ssm = psd.additive_gaussian(
        lambda u: jnp.stack([u[0] + 0.5 * jnp.cos(u[1]), u[1] + 0.6]),
        lambda x: x,
        [0.09, 0.09],
        [0.16, 0.16],
        [0.0, 2.5],
        [0.16, 0.16],
        state_box=box,
        wrap=[False, True],
    )
    ys = np.array([[-0.5, 3.0], [-0.9, -2.6], [-1.2, -2.2]])
    post = psd.run_filter(psd.learn(ssm, 1e-2), ys)
    a, b = np.linspace(-4, 4, 121), -PI + 2 * PI * np.arange(80) / 80
    A, B = (m.ravel() for m in np.meshgrid(a, b, indexing="ij"))
    cell = (a[1] - a[0]) * (b[1] - b[0])

    def normal(d, sd):
        return np.exp(-0.5 * (d / sd) ** 2) / (sd * np.sqrt(2 * PI))

    law = normal(A, 0.4) * wrapped_normal(B - 2.5, 0.4)
    for t, y in enumerate(ys):
        along = A + 0.5 * np.cos(B)
        moved = (law[:, None] * normal(a[None, :] - along[:, None], 0.3)).reshape(121, 80, 121)
        moved = np.einsum("ijk,jl->kl", moved, wrapped_normal(b[None, :] - b[:, None] - 0.6, 0.3))
        law = moved.ravel() * cell * normal(y[0] - A, 0.4) * wrapped_normal(y[1] - B, 0.4)
        mass = law.sum() * cell
        law = law / mass
        np.testing.assert_allclose(post.log_likelihoods[t], np.log(mass), atol=1e-3)
        np.testing.assert_allclose(post.mean[t, 0], law @ A * cell, atol=1e-3)
        direction = np.angle((law * np.exp(1j * B)).sum() * cell)
        assert abs(around(post.mean[t, 1] - direction)) < 1e-3


def test_boxes_with_circles():
    box = psd.Box([0.0, -PI], [1.0, PI], periodic=(-1,))
    assert box.periodic == (1,)
    np.testing.assert_allclose(box.wrap([0.5, PI + 0.1]), [0.5, -PI + 0.1])
    assert box.keep((1,)).periodic == (0,)
    assert box.keep((0,)).periodic == ()


WRONG = {
    "periodic must hold axes of the box": lambda: psd.Box(0.0, 1.0, periodic=1),
    "must be finite on an axis that wraps": lambda: psd.Box(0.0, np.inf, periodic=0),
    "wrap must have 1 entries": lambda: bearing("behind", wrap=[True, False]),
    "wrap must hold True": lambda: bearing("behind", wrap=[-1.0]),
    "log_prior must agree at both ends": lambda: psd.learn(
        psd.StateSpaceModel(lambda x: x[0], lambda u, x: 0.0, lambda x, y: 0.0, CIRCLE)
    ),
    "reaches half round": lambda: psd.learn(
        psd.additive_gaussian(lambda u: u, lambda x: x, 0.1, 2.0, 0.0, 1.0, wrap=[True]),
        engine="mixture",
    ),
    'engine "nodes" cannot serve this model: it does not know a state_box with periodic': lambda: (
        psd.learn(compass(), engine="nodes")
    ),
}


@pytest.mark.parametrize("message", WRONG)
def test_what_makes_no_sense_is_refused(message):
    with pytest.raises(ValueError, match=message):
        WRONG[message]()


@pytest.mark.long
def test_a_sensor_that_jumps_where_the_circle_closes_loses_no_half():
    """y = x + noise with x in (-pi, pi) is a density that jumps: loud, and not far from right."""
    ssm = psd.additive_gaussian(lambda u: u, lambda x: x, 0.25, 0.25, 3.0, 0.25, state_box=CIRCLE)
    with pytest.warns(psd.ResolutionWarning):
        post = psd.run_filter(psd.learn(ssm, 1e-3), [3.0])
    num = 20_000
    x = -PI + 2 * PI * (np.arange(num) + 0.5) / num
    law = wrapped_normal(x - 3.0, np.sqrt(0.5))
    mass = (law * np.exp(-2.0 * (3.0 - x) ** 2) / np.sqrt(0.5 * PI)).sum() * 2 * PI / num
    assert float(post.log_likelihood) == pytest.approx(np.log(mass), abs=0.01)


@pytest.mark.long
def test_a_grid_of_an_angle_holds_its_law_once():
    data = filtered().to_xarray(grid=400)
    x, values = data.x.values[0], data.density.values[:, 0]
    assert x[-1] - x[0] <= 2 * PI * (1 + 1e-12)
    np.testing.assert_allclose(np.trapezoid(values, x, axis=1), 1.0, atol=3e-3)
    for row in values:
        assert len(highest_regions(x, row, 0.9, 2 * PI)) == 1
    # The law of a heading that nobody has seen for long fills the circle.
    ahead = psd.forecast(learned(), filtered(), 60)
    data = ahead.to_xarray(grid=400)
    x, values = data.x.values[0], data.density.values[:, 0]
    np.testing.assert_allclose(x[-1] - x[0], 2 * PI)
    np.testing.assert_allclose(np.trapezoid(values, x, axis=1), 1.0, atol=1e-6)


@pytest.mark.long
def test_masses_between_edges_all_round_a_circle_add_up_to_one():
    ahead = psd.forecast(learned(), filtered(), 60)
    edges = np.linspace(-1.0, -1.0 + 2 * PI, 38)[None]
    masses = masses_on_cells(ahead.laws, ahead.mean.shape, edges) * np.diff(edges)
    np.testing.assert_allclose(masses.sum(axis=-1), 1.0, atol=1e-9)
