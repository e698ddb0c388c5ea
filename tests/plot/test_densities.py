"""Pictures of densities: what is drawn is the density, where its mass is, in user units."""

import numpy as np
import pytest
import scipy.stats

import psdfilter as psd

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

MEAN, SD = np.array([3.0, -20.0]), np.array([0.5, 4.0])


@pytest.fixture(autouse=True)
def closed():
    from matplotlib import pyplot

    yield
    pyplot.close("all")


@pytest.fixture(scope="module")
def line():
    """Five posteriors of a random walk around 50; normal laws."""
    model = psd.learn(psd.linear_gaussian(1.0, 0.3, 1.0, 0.5, 50.0, 1.0))
    return model, psd.run_filter(model, 50.0 + np.array([0.4, 0.9, np.nan, -0.3, 0.7]))


@pytest.fixture(scope="module")
def plane():
    """Independent coordinates, the second in units forty times as large."""
    ssm = psd.linear_gaussian(
        0.9 * np.eye(2),
        np.diag([0.1, 9.0]),
        np.eye(2),
        np.diag([0.2, 16.0]),
        [1.0, 40.0],
        np.eye(2),
    )
    model = psd.learn(ssm)
    ys = np.array([[0.8, 38.0], [1.1, 31.0], [0.4, 33.0]])
    return model, psd.run_filter(model, ys)


def bell(mean=MEAN, sd=SD):
    return psd.from_mixture([1.0], np.asarray(mean)[None], np.square(sd))


def normal_at(post, t, i=0):
    mean, sd = np.asarray(post.mean)[t, i], np.sqrt(np.asarray(post.covariance)[t, i, i])
    return scipy.stats.norm(mean, sd)


@pytest.mark.long
def test_a_curve_is_the_density_where_its_mass_is(line):
    _, post = line
    ax = psd.plot.density(post, 3, truth=[50.1], names=("level",))
    x, values = ax.lines[0].get_data()
    law = normal_at(post, 3)
    np.testing.assert_allclose(values, law.pdf(x), rtol=1e-9, atol=1e-12)
    assert law.cdf(x[0]) < 1e-3 < 1e-2 < x[-1] - x[0]
    assert law.sf(x[-1]) < 1e-3
    assert ax.lines[1].get_xdata()[0] == 50.1
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("level", "density")


def test_regions_hold_their_masses():
    ax = psd.plot.density(bell(), limits=[(0.0, 6.0), (-44.0, 4.0)], masses=(0.5, 0.9))
    outlines = ax.collections[1]
    for path, mass in zip(outlines.get_paths(), (0.9, 0.5), strict=False):
        # Ellipses of a normal law: |z|^2 is chi-squared on their edge.
        z = (path.vertices - MEAN) / SD
        np.testing.assert_allclose(np.sum(z**2, axis=1), scipy.stats.chi2.ppf(mass, 2), rtol=0.03)
    assert ax.get_xlim() == (0.0, 6.0)
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["regions of 50%, 90%"]


def test_marginals_stand_beside_the_plane():
    ax = psd.plot.density(bell(), limits=[(0.0, 6.0), (-44.0, 4.0)], marginals=True)
    top, side = ax.child_axes
    corners = top.collections[0].get_paths()[0].vertices
    curve = corners[corners[:, 1] > 0]
    expected = scipy.stats.norm(MEAN[0], SD[0]).pdf(curve[:, 0])
    np.testing.assert_allclose(curve[:, 1], expected, atol=2e-3)
    widths = side.collections[0].get_paths()[0].vertices[:, 0]
    assert widths.max() == pytest.approx(scipy.stats.norm.pdf(0) / SD[1], rel=1e-2)


def test_a_heat_map_is_the_density_of_every_time(line):
    _, post = line
    ax = psd.plot.over_time(post, mass=0.8, truth=np.full(5, 50.2), observations=np.full(5, 49.9))
    image = ax.collections[0]
    values = image.get_array().reshape(-1, 5)
    corners = image.get_coordinates()[:, 0, 1]
    x = 0.5 * (corners[1:] + corners[:-1])
    for t in range(5):
        np.testing.assert_allclose(values[:, t] ** 2, normal_at(post, t).pdf(x), atol=1e-6)
    lower, upper = ax.lines[:2]
    np.testing.assert_allclose(lower.get_ydata(), [normal_at(post, t).ppf(0.1) for t in range(5)])
    np.testing.assert_allclose(upper.get_ydata(), [normal_at(post, t).ppf(0.9) for t in range(5)])
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["80% interval", "observed", "truth"]


@pytest.mark.long
def test_a_heat_map_of_one_coordinate_of_several_holds_its_masses(plane):
    _, post = plane
    ax = psd.plot.over_time(post, 1, names=("position", "height"))
    image = ax.collections[0]
    values = image.get_array().reshape(-1, 3) ** 2
    edges = image.get_coordinates()[:, 0, 1]
    for t in range(3):
        exact = np.diff(normal_at(post, t, 1).cdf(edges)) / np.diff(edges)
        np.testing.assert_allclose(values[:, t], exact, atol=1e-6)
    assert ax.get_ylabel() == "height"


@pytest.mark.long
def test_rows_at_one_time_are_one_column():
    model = psd.learn(psd.linear_gaussian(1.0, 0.3, 1.0, 0.5, 0.0, 1.0))
    post = psd.run_filter(model, [0.4, 0.1, 0.2], times=[1, 1, 2])
    image = psd.plot.over_time(post).collections[0]
    values = image.get_array().reshape(-1, 2)
    assert values[:, 0].max() ** 2 == pytest.approx(
        normal_at(post, 1).pdf(post.mean[1, 0]), rel=1e-3
    )


def test_ridges_are_curves_at_their_times(line):
    _, post = line
    ax = psd.plot.over_time(post, style="ridges", truth=np.full((5, 1), 50.2))
    curves = [drawn for drawn in ax.lines if len(drawn.get_xdata()) > 1]
    assert len(curves) == 5
    for t, curve in enumerate(curves):
        x, y = curve.get_data()
        law = normal_at(post, t)
        np.testing.assert_allclose(
            (y - t) / (y - t).max(), law.pdf(x) / law.pdf(x).max(), atol=1e-6
        )
    assert [label.get_text() for label in ax.get_yticklabels()] == ["1", "2", "3", "4", "5"]


@pytest.mark.long
def test_snapshots_share_their_limits_and_hide_spare_panels(plane):
    _, post = plane
    axes = psd.plot.snapshots(post, [0, 1, -1], truth=np.asarray(post.mean), columns=2)
    assert [ax.get_title() for ax in axes[:3]] == ["t = 1", "t = 2", "t = 3"]
    assert len({ax.get_xlim() for ax in axes[:3]}) == 1
    assert not axes[3].get_visible()
    np.testing.assert_allclose(axes[2].lines[0].get_xydata()[0], post.mean[2])


def test_tracks_follow_means_with_regions(plane):
    _, post = plane
    ax = psd.plot.track(post, truth=np.asarray(post.mean) + 1, landmarks=[[0.0, 30.0]], every=1)
    drawn = {line.get_label(): line for line in ax.lines}
    np.testing.assert_allclose(drawn["mean"].get_xydata(), post.mean)
    np.testing.assert_allclose(drawn["truth"].get_xydata(), np.asarray(post.mean) + 1)
    np.testing.assert_allclose(drawn["landmarks"].get_xydata(), [[0.0, 30.0]])
    # Regions are drawn from the last time backwards.
    edge = ax.collections[1].get_paths()[0].vertices
    mean, covariance = np.asarray(post.mean)[2], np.asarray(post.covariance)[2]
    distances = np.sum((edge - mean) @ np.linalg.inv(covariance) * (edge - mean), axis=1)
    np.testing.assert_allclose(distances, scipy.stats.chi2.ppf(0.9, 2), rtol=0.05)


@pytest.mark.long
def test_tracks_of_longer_states_have_ellipses():
    model = psd.learn(psd.systems.linear_4d())
    post = psd.run_filter(model, np.array([[0.2, 0.1], [0.5, 0.3]]))
    ax = psd.plot.track(post, (2, 0), every=1)
    pair = [2, 0]
    edge = ax.lines[0].get_xydata()
    mean = np.asarray(post.mean)[1, pair]
    covariance = np.asarray(post.covariance)[1][np.ix_(pair, pair)]
    distances = np.sum((edge - mean) @ np.linalg.inv(covariance) * (edge - mean), axis=1)
    np.testing.assert_allclose(distances, scipy.stats.chi2.ppf(0.9, 2), rtol=1e-9)


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda post: psd.plot.density(post), "t must be given"),
        (lambda post: psd.plot.density(3.0), "source must be"),
        (lambda post: psd.plot.density(post, 9), "t must lie in 0..4"),
        (lambda post: psd.plot.density(post, 0, limits=(2.0, 1.0)), "limits must be"),
        (lambda post: psd.plot.over_time(post, 1), "coordinate must lie"),
        (lambda post: psd.plot.over_time(post, style="bars"), "style must be"),
        (lambda post: psd.plot.over_time(post, truth=[1.0]), "truth must have shape"),
        (lambda post: psd.plot.over_time(post, times=[1.0]), "times must have shape"),
        (lambda post: psd.plot.snapshots(post, [0]), "two coordinates"),
        (lambda post: psd.plot.track(post), "at least two"),
        (lambda post: psd.plot.comparison({}), "at least one"),
        (lambda post: psd.plot.states(post, names=("a", "b")), "names must be 1"),
    ],
)
def test_what_cannot_be_drawn_is_said(line, draw, words):
    with pytest.raises(ValueError, match=words):
        draw(line[1])


def test_densities_of_more_coordinates_are_refused():
    with pytest.raises(ValueError, match="marginal"):
        psd.plot.density(bell([0.0, 0.0, 0.0], [1.0, 1.0, 1.0]))
