"""Three routes to one filter: Algorithm 2 in full, error functions on a grid, quadrature nodes.

All are given the same learned Q^, G^ and prior, of small order; what they learned is beside the
point here, only that they push it through the same filter.
"""

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import psdfilter as psd
from psdfilter import _results, systems
from psdfilter._density.diagonal import weighted_gram
from psdfilter._inference.closed.learned import AbstractLearned, LearnedOnGrid
from psdfilter._inference.closed.model import ClosedModel
from psdfilter._inference.closed.plan import shared_plan
from psdfilter._inference.closed.recursion import Grid
from psdfilter._inference.closed.reference import ReferenceModel
from psdfilter._inference.given.reference import GivenParts
from psdfilter._inference.given.triple import Triple
from psdfilter._inference.nodes.filled import Filled
from psdfilter._inference.nodes.model import NodesModel
from psdfilter._inference.nodes.refine import FineNodes
from psdfilter._inference.report import Report
from psdfilter._inference.sizing.host import fill
from psdfilter._inference.sizing.plan import AxisRegression, Plan, TransitionPlan, assemble
from psdfilter._learning.axes import Axis

TOL = 1e-9

# Models of so small an order miss every tolerance, and say so.
pytestmark = pytest.mark.filterwarnings("ignore:.*steps miss tol:psdfilter.ResolutionWarning")


def report(engine: str) -> Report:
    return Report(engine, "a test", 1e-3, 0.0)


def closed_on(ssm: psd.StateSpaceModel, plan: Plan) -> ClosedModel:
    return ClosedModel(grid=Grid.of(ssm, plan), report=report("closed"))


def reference_of(learned: AbstractLearned | NodesModel) -> ReferenceModel:
    """Algorithm 2 with the densities of a model on nodes, or with any others."""
    learned = LearnedOnGrid(learned.filled) if isinstance(learned, NodesModel) else learned
    return ReferenceModel(learned=learned, report=report("reference"))


def orders(post: psd.Posterior) -> tuple[int, ...]:
    return tuple(law.f.order for law in post.trace.laws)


def tilted_sine() -> psd.StateSpaceModel:
    """The sine map with more noise than shipped, and a prior that takes sides."""
    ssm = systems.sine_map(sd=0.3, sensor_sd=0.3)
    return psd.StateSpaceModel(
        lambda x: 0.8 * x[0], ssm.log_transition, ssm.log_observation, ssm.state_box
    )


def linear_line() -> psd.StateSpaceModel:
    """x' = 0.8 u + 0.1 + N(0, 0.5), y = x + N(0, 0.7), on a box off the origin."""
    return psd.additive_gaussian(
        lambda x: 0.8 * x + 0.1,
        lambda x: x,
        0.5 * jnp.eye(1),
        0.7 * jnp.eye(1),
        jnp.asarray([0.3]),
        jnp.eye(1),
        state_box=psd.Box([-3.0], [4.0]),
    )


def plane() -> psd.StateSpaceModel:
    """A bent rotation in the plane, one sensor."""
    F = jnp.asarray([[0.7, -0.3], [0.0, 0.6]])
    return psd.additive_gaussian(
        lambda x: jnp.tanh(F @ x),
        lambda x: x[:1] + 0.3 * jnp.square(x[1:]),
        0.8 * jnp.eye(2),
        0.5 * jnp.eye(1),
        jnp.asarray([0.3, -0.2]),
        0.8 * jnp.eye(2),
        state_box=psd.Box([-3.0, -2.5], [2.5, 3.0]),
    )


class Case(NamedTuple):
    ssm: psd.StateSpaceModel
    anchors: tuple[int, ...]
    nodes: tuple[int, ...]
    ys: np.ndarray
    ridge: float = 1e-4

    def closed(self) -> ClosedModel:
        axes = [Axis.padded(n, 0.45, 0.2, 1.25) for n in self.anchors]
        plan = shared_plan(self.ssm.state_box, axes, 1e-3, ridge=self.ridge, counts=self.nodes)
        return closed_on(self.ssm, plan)


def column(*values: float) -> np.ndarray:
    return np.asarray(values)[:, None]


CASES = {
    "sine": Case(tilted_sine(), (14,), (96,), column(0.4, 0.05, 0.8, 0.1, 0.3, 0.6)),
    "linear": Case(linear_line(), (14,), (96,), column(0.4, -1.2, 0.8, -0.1, 2.1, 1.5)),
    "plane": Case(plane(), (4, 3), (40, 40), column(0.4, -1.0), 1e-2),
}


class Routes(NamedTuple):
    ssm: psd.StateSpaceModel
    model: ClosedModel
    reference: psd.Posterior
    closed: psd.Posterior
    nodes: psd.Posterior


@pytest.fixture(
    scope="module",
    params=[pytest.param(name, marks=pytest.mark.slow) for name in ("sine", "linear", "plane")],
)
def routes(request) -> Routes:
    case = CASES[request.param]
    model = case.closed()
    on_nodes = model.on_nodes()
    return Routes(
        case.ssm,
        model,
        psd.run_filter(reference_of(on_nodes), case.ys),
        psd.run_filter(model, case.ys),
        psd.run_filter(on_nodes, case.ys),
    )


def worst(a, b) -> float:
    return float(np.max(np.abs(np.asarray(a) - np.asarray(b))))


@pytest.mark.parametrize("field", ["log_likelihoods", "mean", "covariance", "log_kept"])
def test_routes_agree_in_every_number(routes, field):
    truth = getattr(routes.reference, field)
    assert worst(getattr(routes.closed, field), truth) < TOL
    assert worst(getattr(routes.nodes, field), truth) < TOL


@pytest.mark.slow
def test_routes_agree_in_densities(routes):
    box = routes.ssm.state_box
    unit = np.random.default_rng(3).uniform(-1, 1, (60, box.dim))
    points = box.from_unit(unit)
    for t, density in enumerate(routes.reference.laws.densities):
        assert worst(routes.closed.density(t)(points), density(points)) < TOL
    assert worst(routes.nodes.density(-1)(points), density(points)) < TOL
    line, weights = jnp.asarray(np.linspace(-1, 1, 7)), routes.model.grid.plan.weights
    fine = FineNodes((line,) * box.dim, weights)
    assert worst(routes.closed.laws.values_on(fine), routes.nodes.laws.values_on(fine)) < TOL


def test_order_is_constant_mass_one_and_weights_psd(routes):
    """The corollary on Algorithm 2: pi_k has order at most M_Q M_G for k >= 1."""
    reference, plan = routes.reference, routes.model.grid.plan
    of_g = int(np.prod([r.anchors.shape[0] for r in plan.observation]))
    of_x = int(np.prod([r.anchors.shape[0] for r in plan.transitions[0].group_regressions]))
    of_u = int(np.prod([r.anchors.shape[0] for r in plan.transitions[0].given_regressions]))
    assert set(orders(reference)) == {of_x * of_g}
    assert of_x * of_g <= (of_u * of_x) * of_g
    for density in reference.laws.densities:
        assert abs(float(psd.integral(density, routes.ssm.state_box)) - 1) < 1e-12
        eigenvalues = np.linalg.eigvalsh(np.asarray(density.factor @ density.factor.T))
        assert eigenvalues[0] > -1e-14 * eigenvalues[-1]


@pytest.mark.slow
def test_kernel_means_give_a_positive_gram_matrix(routes):
    """W before any clipping, by grid midpoints and by all pairs: positive to rounding."""
    grid, t = routes.model.grid.midpoints, 1
    W = np.asarray(grid.gram(routes.closed.trace.laws.sources[t]))
    values = np.linalg.eigvalsh(W)
    assert values[0] > -1e-14 * values[-1]
    box = routes.ssm.state_box
    density = psd.densities.change_units(
        routes.reference.laws.densities[t - 1], -box.center / box.half_width, 1 / box.half_width
    )
    anchors = psd.densities.TensorGrid([a.anchors for a in grid.axes]).points()
    precision = jnp.stack([a.precision for a in grid.axes])
    unit = psd.Box(-np.ones(box.dim), np.ones(box.dim))
    gram, log_scale = eqx.filter_jit(weighted_gram)(anchors, precision, density, unit)
    assert worst(W, gram * jnp.exp(log_scale)) < 1e-10


@pytest.mark.slow
def test_densities_of_the_closed_route_have_mass_one(routes):
    for t in (0, len(routes.reference.laws.densities) - 1):
        density = routes.closed.density(t)
        assert abs(float(psd.integral(density, routes.ssm.state_box)) - 1) < 1e-10
        assert density.order <= np.prod([2 * n - 1 for n in routes.model.grid.midpoints.shape])
        mean, covariance = psd.moments(density, routes.ssm.state_box)
        assert worst(mean, routes.closed.mean[t]) < 1e-10
        assert worst(covariance, routes.closed.covariance[t]) < 1e-10


@pytest.mark.long
def test_golden_filter_step():
    """maths.md: anchors (-1, 0, 1), eta = 1, a_pq = b_pq = 1 / (1 + |p - q|), y = 0.3."""
    line = np.asarray([-1.0, 0.0, 1.0])
    pairs = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    steps = np.abs(np.subtract.outer(np.arange(3), np.arange(3)))
    root = psd.GaussianPSD(pairs, (1 / (1 + steps)).ravel(), [1.0, 1.0])
    box = psd.Box([-1.0], [1.0])
    prior = psd.normalize(psd.GaussianPSD([[0.0]], [1.0], [1.0]), box)
    post = psd.run_filter(reference_of(GivenParts(Triple(prior, root, root, box))), [0.3])
    assert float(jnp.exp(post.log_likelihoods[0])) == pytest.approx(23.524939253496, abs=1e-11)
    assert float(post.mean[0, 0]) == pytest.approx(0.047449141226, abs=1e-12)
    assert float(post.covariance[0, 0, 0]) == pytest.approx(0.238823456441, abs=1e-12)
    assert float(post.density(0)([0.0])) == pytest.approx(0.695412255644, abs=1e-12)
    # Scattered anchors: the order is M_Q M_G with the grid's duplicates counted.
    assert orders(post) == (81,)


@pytest.mark.slow
def test_reference_multiplies_factors_that_share_old_coordinates():
    """Q = Q_0(u_0, u_1; x_0) Q_1(u_1; x_1), each factor on anchors of its own."""
    ssm = plane()
    axes = [Axis.padded(n, 0.5, 0.3, 1.25) for n in (3, 2, 4)]
    a, b, c = (AxisRegression.make(axis, axis.nodes, 1e-2) for axis in axes)
    parts = (
        TransitionPlan((0, 1), (0,), (a, b), (c,)),
        TransitionPlan((1,), (1,), (a,), (b,)),
    )
    plan = assemble(ssm.state_box, (32, 32), parts, (b, a), (c, a), 1e-3)
    model = NodesModel(filled=Filled(ssm, plan, *fill(plan, ssm, False)), report=report("nodes"))
    ys = column(0.4, -1.0)
    reference, nodes = psd.run_filter(reference_of(model), ys), psd.run_filter(model, ys)
    assert worst(reference.log_likelihoods, nodes.log_likelihoods) < TOL
    assert worst(reference.mean, nodes.mean) < TOL
    assert worst(reference.covariance, nodes.covariance) < TOL


@pytest.mark.slow
def test_reference_where_an_old_coordinate_does_not_matter():
    ssm = plane()
    axis = Axis.padded(3, 0.5, 0.3, 1.25)
    a = AxisRegression.make(axis, axis.nodes, 1e-2)
    parts = (TransitionPlan((1,), (0, 1), (a,), (a, a)),)
    plan = assemble(ssm.state_box, (32, 32), parts, (a, a), (a, a), 1e-3)
    model = NodesModel(filled=Filled(ssm, plan, *fill(plan, ssm, False)), report=report("nodes"))
    reference = psd.run_filter(reference_of(model), column(0.4, np.nan), first="observe")
    nodes = psd.run_filter(model, column(0.4, np.nan), first="observe")
    assert worst(reference.log_likelihoods, nodes.log_likelihoods) < TOL
    assert worst(reference.mean, nodes.mean) < TOL


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sine", "linear"])
@pytest.mark.parametrize("first", ["predict", "observe"])
def test_routes_agree_with_missing_observations(name, first):
    case = CASES[name]
    model, ys = case.closed(), case.ys.copy()
    ys[[1, 3]] = np.nan
    on_nodes = model.on_nodes()
    reference = psd.run_filter(reference_of(on_nodes), ys, first=first)
    for post in (psd.run_filter(model, ys, first=first), psd.run_filter(on_nodes, ys, first=first)):
        for field in ("log_likelihoods", "mean", "covariance", "log_kept"):
            assert worst(getattr(post, field), getattr(reference, field)) < TOL


@pytest.mark.slow
def test_closed_in_the_plane():
    case = CASES["plane"]
    model, ys = case.closed(), column(0.4, np.nan, -1.0)
    closed, nodes = psd.run_filter(model, ys), psd.run_filter(model.on_nodes(), ys)
    for field in ("log_likelihoods", "mean", "covariance", "log_kept"):
        assert worst(getattr(closed, field), getattr(nodes, field)) < TOL


@pytest.mark.slow
def test_closed_takes_gaps_between_times_and_starts_at_the_prior():
    case = CASES["linear"]
    model, ys = case.closed(), case.ys.copy()
    ys[3] = np.nan
    times = [0, 3, 4, 7, 8, 9]
    closed = psd.run_filter(model, ys, times=times)
    nodes = psd.run_filter(model.on_nodes(), ys, times=times)
    for field in ("log_likelihoods", "mean", "covariance", "log_kept"):
        assert worst(getattr(closed, field), getattr(nodes, field)) < TOL


@pytest.mark.slow
def test_closed_passes_through_every_transition_that_varies_in_time():
    _, ys = systems.ungm.simulate(0, 3)
    model, keep = psd.learn(systems.ungm(), 1e-1, engine="closed"), np.array([0, 2, 4])
    gappy = np.full((5, 1), np.nan)
    gappy[keep] = np.asarray(ys)
    jumps, whole = psd.run_filter(model, gappy[keep], times=keep + 1), psd.run_filter(model, gappy)
    assert worst(jumps.mean, whole.mean[keep]) < 1e-9


@pytest.mark.slow
def test_closed_fits_sensors_of_one_time_together():
    """Equal times: one fit of the product of both likelihoods, each worth its share."""
    case = CASES["linear"]._replace(anchors=(30,), ridge=1e-14)
    model = case.closed()
    ys, times = column(0.4, 0.9, -1.2, np.nan, 0.8), [0, 0, 1, 1, 2]
    closed = psd.run_filter(model, ys, times=times)
    nodes = psd.run_filter(model.on_nodes(), ys, times=times)
    assert worst(closed.log_likelihoods, nodes.log_likelihoods) < 1e-4
    assert worst(closed.mean, nodes.mean) < 1e-4
    assert list(closed.seen) == [True, True, True, False, True]


@pytest.mark.long
def test_closed_works_under_vmap_and_jit():
    case = CASES["sine"]
    model = case.closed()
    batch = jnp.asarray(np.stack([case.ys, case.ys[::-1]]))
    together = jax.jit(jax.vmap(lambda ys: psd.run_filter(model, ys).log_likelihoods))(batch)
    for row, ys in zip(together, batch, strict=True):
        assert worst(row, psd.run_filter(model, ys).log_likelihoods) < 1e-13


@pytest.mark.slow
def test_closed_names_the_step_without_mass():
    model = CASES["linear"].closed()
    ssm = model.grid.ssm
    blind = psd.StateSpaceModel(
        ssm.log_prior,
        ssm.log_transition,
        lambda x, y: jnp.where(y[0] > 9.0, -jnp.inf, ssm.log_observation(x, y)),
        ssm.state_box,
    )
    model = closed_on(blind, model.grid.plan)
    with pytest.raises(ValueError, match=r"ys\[1\]"):
        psd.run_filter(model, [0.3, 10.0, 0.2])
    post = psd.run_filter(model, [0.3, 10.0, 0.2], throw=False)
    assert list(post.codes) == [_results.OK, _results.NO_MASS, _results.OK]
    gap = psd.run_filter(model, [0.3, np.nan, 0.2])
    assert worst(post.mean, gap.mean) < 1e-14
    assert post.log_likelihoods[1] == -np.inf
    assert gap.log_likelihoods[1] == 0


@pytest.mark.slow
@pytest.mark.parametrize("tol", [1e-3, 1e-6])
def test_closed_meets_its_tolerance_on_the_sine_map(tol):
    system = systems.sine_map
    _, ys = system.simulate(4, 50)
    truth = system.reference(np.asarray(ys))
    post = psd.run_filter(psd.learn(system(), tol, engine="closed"), ys)
    nodes = FineNodes((jnp.asarray(truth.nodes).ravel(),), (jnp.asarray(truth.weights).ravel(),))
    gaps = np.abs(np.asarray(post.laws.values_on(nodes)) - np.asarray(truth.densities))
    assert np.max(gaps @ np.asarray(truth.weights).ravel()) < tol
    assert worst(post.log_likelihoods, truth.log_likelihoods) < tol
    assert not np.any(post.codes)


@pytest.mark.long
def test_closed_refuses_what_it_cannot_do():
    with pytest.raises(ValueError, match="tol must lie in"):
        psd.learn(linear_line(), 1e-9, engine="closed")
    line = psd.Box([-1.0] * 3, [1.0] * 3)
    cube = psd.StateSpaceModel(*(lambda *_: jnp.zeros(()),) * 3, line)
    with pytest.raises(ValueError, match="1 or 2 coordinates"):
        psd.learn(cube, 1e-2, engine="closed")
    case = CASES["linear"]
    post = psd.run_filter(case.closed(), case.ys, keep="summaries")
    with pytest.raises(ValueError, match="keep"):
        post.density(0)
