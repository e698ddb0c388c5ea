"""Q learned with free shapes: the closed form on R^d, dense grids and laws as oracles."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import log_ndtr, ndtr

import psdfilter as psd
from psdfilter import _results, systems
from psdfilter._inference.free.atoms import (
    Atoms,
    evaluate,
    kernel_of,
    products,
    slices,
)
from psdfilter._inference.free.compress import SquareSum, project
from psdfilter._inference.free.mass import MassSeries, kept_mass, series_of
from psdfilter._inference.free.model import FreeModel
from psdfilter._inference.free.observation import EachObservation, LearnedObservation
from psdfilter._inference.free.rules import whole_box
from psdfilter._inference.free.run import FitErrors, observe_once
from psdfilter._inference.free.smooth import draw_paths, transition_table
from psdfilter._inference.free.step import (
    LearnedTransition,
    StepSizes,
    predict_law,
    update_law,
)
from psdfilter._inference.report import Report

SLOW = pytest.mark.slow

# Single operations would each be compiled by themselves.
predict, update = (jax.jit(f, static_argnums=n) for f, n in ((predict_law, 2), (update_law, 3)))
cut, multiply = jax.jit(slices, static_argnums=2), jax.jit(products)
density_at = jax.jit(SquareSum.__call__)
values_of, compress = jax.jit(evaluate), jax.jit(project, static_argnums=3)
tabulate = jax.jit(transition_table, static_argnums=3)


def random_square(seed: int, num: int, dim: int, width: float) -> psd.GeneralizedGaussianPSD:
    """(sum_j alpha_j exp(-(w - mu_j)' P_j (w - mu_j)))^2 with coupled precisions."""
    rng = np.random.default_rng(seed)
    roots = np.eye(dim) / width + 0.5 / width * np.tril(rng.uniform(-1, 1, (num, dim, dim)), -1)
    centers = rng.uniform(-0.25, 0.25, (num, dim))
    return psd.GeneralizedGaussianPSD.from_centers(
        centers, rng.uniform(0.4, 1.0, (num, 1)), roots @ np.swapaxes(roots, 1, 2)
    )


def kernel(f: psd.GeneralizedGaussianPSD, fixed: tuple[int, ...]):
    parts = (f.factor, f.precisions(), f.linear, f.offset)
    return kernel_of(*(np.asarray(p) for p in parts), float(f.log_scale), fixed)


def sizes(dim: int) -> StepSizes:
    first = dim == 1
    places, panels = (24, 3) if first else (80, 2)
    return StepSizes(
        places=places,
        left_out=0.0,
        panel_nodes=12,
        source_panels=panels,
        source_nodes=12,
        sources=12 * panels if first else 400,
        panels=4 if first else 3,
        table_nodes=48 if first else 28,
        guard_nodes=24 if first else 14,
        tried=2 * places if first else 3 * places,
        transition_terms=3,
        scan=65 if first else 33,
    )


def mass_of(Q: psd.GeneralizedGaussianPSD, u: np.ndarray) -> np.ndarray:
    """int Q(u, x) dx over the unit box, by quadrature."""
    dim = u.shape[1]
    z, w = np.polynomial.legendre.leggauss(60 if dim == 1 else 30)
    x = np.stack([m.ravel() for m in np.meshgrid(*([z] * dim))], axis=-1)
    weights = np.prod(np.stack([m.ravel() for m in np.meshgrid(*([w] * dim))], axis=-1), axis=1)
    return np.array([weights @ square(Q, np.c_[np.tile(row, (len(x), 1)), x]) for row in u])


def small_model(dim: int = 1):
    """A model whose mass is well inside of the unit box, and the three densities it is made of."""
    Q, G = random_square(1, 3, 2 * dim, 0.3), random_square(2, 2, dim + 1, 0.35)
    prior = random_square(3, 1, dim, 0.25)
    size = sizes(dim)
    given = tuple(range(dim))
    learned = LearnedTransition(
        kernel(Q, given), series_of(lambda u: mass_of(Q, u), dim), jnp.zeros(0)
    )
    seen = psd.Box([-1.0], [1.0])
    observation = LearnedObservation(kernel(G, (dim,)), seen, 2)
    start = kernel(prior, ())  # nothing fixed: the terms themselves
    part = cut(start, jnp.zeros((1, 0)), 1)
    factor = np.zeros((size.places, min(size.places, size.sources)))
    factor[0, 0] = 1.0
    centers = np.zeros((size.places, dim))
    centers[0] = part.centers[0, 0]
    precision = np.tile(np.eye(dim), (size.places, 1, 1))
    precision[0] = part.precision[0, 0]
    law = SquareSum(Atoms(jnp.asarray(centers), jnp.asarray(precision)), jnp.asarray(factor))
    report = Report("free", "made by hand", 1e-3, 0.0, order=size.places)
    model = FreeModel(
        learned=learned,
        sensor=observation,
        start_law=law,
        state_box=psd.Box(-np.ones(dim), np.ones(dim)),
        seen_dim=1,
        sizes=size,
        fit_errors=FitErrors(1e-5, 1e-5, 1e-3),
        report=report,
    )
    return model, Q, G, prior


@pytest.fixture(scope="module")
def model():
    return small_model()[0]


YS = np.array([[0.1], [-0.2], [np.nan], [0.3], [0.05], [-0.1]])


@pytest.fixture(scope="module")
def post(model):
    return psd.run_filter(model, YS)


@pytest.mark.long
@pytest.mark.parametrize("dim", [1, pytest.param(2, marks=SLOW)])
def test_products_and_slices_are_pointwise(dim):
    rng = np.random.default_rng(dim)
    f = random_square(dim, 4, dim + 1, 0.4)
    x, y = rng.uniform(-1, 1, (7, dim)), 0.3
    part = cut(kernel(f, (dim,)), jnp.full((1, 1), y), 4)
    atoms = Atoms(part.centers[0], part.precision[0])
    values = np.square(values_of(atoms, jnp.asarray(x)) @ part.amplitudes[0])
    np.testing.assert_allclose(values, f(np.c_[x, np.full(7, y)]), rtol=1e-12)
    both, factors = multiply(atoms, atoms)
    one = np.asarray(values_of(atoms, jnp.asarray(x)))
    wanted = (one[:, :, None] * one[:, None, :]).reshape(7, -1)
    np.testing.assert_allclose(
        np.asarray(values_of(both, jnp.asarray(x))) * np.asarray(factors).ravel(),
        wanted,
        rtol=1e-12,
    )


@pytest.mark.long
def test_projection_finds_the_atoms_a_density_is_made_of():
    rng = np.random.default_rng(0)
    centers = jnp.asarray(np.linspace(-0.8, 0.8, 12)[:, None])
    atoms = Atoms(centers, jnp.full((12, 1, 1), 40.0))
    factor = np.zeros((12, 3))
    factor[[2, 5, 9]] = rng.normal(size=(3, 3))
    rule = jax.jit(whole_box, static_argnums=(0, 1))(1, 64)
    weights = np.asarray(rule.weights)
    roots = np.asarray(values_of(atoms, rule.nodes)) @ factor
    wanted = np.sum(roots**2, axis=1)
    found = compress(atoms, jnp.asarray(roots), rule, 3)
    np.testing.assert_allclose(
        np.sort(found.atoms.centers[:, 0]), np.asarray(centers)[[2, 5, 9], 0]
    )
    np.testing.assert_allclose(density_at(found, rule.nodes), wanted, atol=1e-9)
    # With fewer places something is lost, and the bound of the module holds.
    fewer = density_at(compress(atoms, jnp.asarray(roots), rule, 2), rule.nodes)
    mass, kept = weights @ wanted, weights @ fewer
    assert 0 < weights @ np.abs(wanted - fewer) <= 2 * np.sqrt((mass - kept) * mass)


def square(f: psd.GeneralizedGaussianPSD, w: np.ndarray) -> np.ndarray:
    """f from its definition."""
    P, h, c = (np.asarray(a) for a in (f.precision, f.linear, f.offset))
    logs = c + 2 * w @ h.T - np.einsum("...d,mde,...e->...m", w, P, w)
    return np.square(np.exp(logs) @ np.asarray(f.factor)[:, 0])


@pytest.mark.slow
def test_the_filter_of_a_dense_grid(post):
    """Means, densities and likelihoods of all steps, a gap among them."""
    _, Q, G, prior = small_model()
    z, w = np.polynomial.legendre.leggauss(120)
    table = square(Q, np.stack(np.meshgrid(z, z, indexing="ij"), axis=-1))
    density = square(prior, z[:, None])
    density = density / (w @ density)
    for t, y in enumerate(YS[:, 0]):
        density, log_mass = (w * density) @ table, 0.0
        if not np.isnan(y):
            density = density * square(G, np.stack([z, np.full(120, y)], axis=-1))
            log_mass = np.log(w @ density)
        density = density / (w @ density)
        np.testing.assert_allclose(post.log_likelihoods[t], log_mass, atol=3e-4)
        np.testing.assert_allclose(post.mean[t, 0], w @ (density * z), atol=1e-4)
        np.testing.assert_allclose(
            w @ np.abs(square_of(post.laws.laws, t, z) - density), 0.0, atol=1e-3
        )


def square_of(laws: SquareSum, t: int, z: np.ndarray) -> np.ndarray:
    """The law at index t from the definition of its atoms, in one dimension."""
    centers, P = (
        np.asarray(laws.atoms.centers[t, :, 0]),
        np.asarray(laws.atoms.precision[t, :, 0, 0]),
    )
    atoms = (2 * P / np.pi) ** 0.25 * np.exp(-P * np.square(z[:, None] - centers))
    return np.sum(np.square(atoms @ np.asarray(laws.factor[t])), axis=1)


@SLOW
@pytest.mark.parametrize("dim", [1, 2])
def test_steps_are_those_of_the_closed_form(dim):
    """Products, marginals and integrals over R^d, with one Gaussian for every pair of terms."""
    made, Q, G, prior = small_model(dim)
    size, old = made.sizes, tuple(range(dim))
    y = 0.2
    joint = psd.product(Q, prior, f_axes=range(2 * dim), g_axes=old)
    ahead = psd.marginal(joint, tuple(range(dim, 2 * dim)))
    start = SquareSum(made.start_law.atoms, made.start_law.factor)
    law, record = predict(start, made.learned, size)
    x = np.random.default_rng(4).uniform(-0.7, 0.7, (40, dim))
    kept = psd.integral(ahead) / psd.integral(prior)
    # In two dimensions 24 nodes for each axis, and 80 places.
    exact, close = (1e-6, 1e-4) if dim == 1 else (2e-5, 1e-3)
    np.testing.assert_allclose(float(record.log_mass), np.log(kept), atol=exact)
    wanted = np.asarray(ahead(x)) / float(psd.integral(ahead))
    np.testing.assert_allclose(law(jnp.asarray(x)), wanted, atol=close * wanted.max())
    seen = psd.product(ahead, psd.partial(G, dim, [y]))
    after, record = update(law, made.sensor, jnp.asarray([y]), size)
    mass = float(psd.integral(seen)) / float(psd.integral(ahead))
    np.testing.assert_allclose(float(record.log_mass), np.log(mass), atol=close)
    wanted = np.asarray(seen(x)) / float(psd.integral(seen))
    np.testing.assert_allclose(after(jnp.asarray(x)), wanted, atol=3 * close * wanted.max())
    mean, covariance = psd.moments(seen)
    np.testing.assert_allclose(record.mean, mean, atol=close)
    np.testing.assert_allclose(record.covariance, covariance, atol=close)


@SLOW
def test_laws_agree_with_their_own_summaries(model, post):
    assert np.asarray(post.seen).tolist() == [True, True, False, True, True, True]
    assert not np.asarray(post.codes).any()
    assert float(post.log_likelihoods[2]) == 0.0
    assert 0 < float(jnp.max(post.trace.errors)) < 1e-3
    np.testing.assert_allclose(post.error_estimate, jnp.sum(post.trace.errors), rtol=1e-12)
    z, w = np.polynomial.legendre.leggauss(200)
    for t in (0, 2, 5):
        f = post.density(t)
        assert f.order <= model.sizes.places
        values = np.asarray(f(z[:, None]))
        assert values.min() >= 0
        np.testing.assert_allclose(w @ values, 1.0, atol=1e-8)
        np.testing.assert_allclose(post.mean[t, 0], w @ (values * z), atol=1e-7)
        low = float(post.quantile(0.2)[t, 0])
        part = 0.5 * (low + 1.0)
        np.testing.assert_allclose(
            part * w @ np.asarray(f((part * (z + 1.0) - 1.0)[:, None])), 0.2, atol=1e-5
        )
    assert "free" in str(post)
    assert post.model.report.order == 24


@SLOW
def test_online_steps_are_the_filter(model, post):
    state = psd.init(model)
    for y in YS:
        state = psd.update(model, psd.predict(model, state), y)
    np.testing.assert_allclose(state.moments(model)[0], post.mean[-1], atol=1e-10)
    np.testing.assert_allclose(state.log_likelihood, post.log_likelihood, atol=1e-10)
    x = np.linspace(-0.5, 0.5, 5)[:, None]
    np.testing.assert_allclose(state.density(model)(x), post.density(-1)(x), rtol=1e-8)
    assert int(state.step) == len(YS)
    refused = psd.update(model, psd.predict(model, state), [3.0])
    assert int(refused.code) == _results.BAD_OBSERVATION
    assert float(refused.log_likelihood) == -np.inf


@SLOW
def test_forecast_is_a_gap_at_the_end(model, post):
    ahead = psd.forecast(model, post, 2)
    longer = psd.run_filter(model, np.concatenate([YS, np.full((2, 1), np.nan)]))
    np.testing.assert_allclose(ahead.mean, longer.mean[-2:], atol=1e-10)
    np.testing.assert_allclose(ahead.covariance, longer.covariance[-2:], atol=1e-10)


@SLOW
def test_batches_times_and_draws(model, post):
    other = YS[::-1].copy()
    means = jax.vmap(lambda ys: psd.run_filter(model, ys).mean)(jnp.stack([YS, other]))
    # Sums of interfering terms, in another order.
    np.testing.assert_allclose(means[0], post.mean, atol=1e-8)
    np.testing.assert_allclose(means[1], psd.run_filter(model, other).mean, atol=1e-8)
    seen = [0, 1, 3, 4, 5]
    timed = psd.run_filter(model, YS[seen], times=np.array(seen) + 1)
    np.testing.assert_allclose(timed.mean, np.asarray(post.mean)[seen], atol=1e-9)
    draws = np.asarray(post.sample(key=jax.random.key(1), num=4000))[:, -1, 0]
    sd = float(np.sqrt(post.covariance[-1, 0, 0]))
    assert abs(draws.mean() - float(post.mean[-1, 0])) < 6 * sd / np.sqrt(4000)
    assert abs(draws.std() / sd - 1) < 0.1


def test_what_cannot_be_used_has_a_code(model):
    ys = YS.copy()
    ys[1] = 3.0
    post = psd.run_filter(model, ys, throw=False)
    assert int(post.codes[1]) == _results.BAD_OBSERVATION
    # What is missing tells nothing; what cannot be has likelihood zero.
    assert np.flatnonzero(np.asarray(post.log_likelihoods) == -np.inf).tolist() == [1]
    assert float(post.log_likelihoods[2]) == 0.0
    assert np.isfinite(np.asarray(post.mean)).all()
    with pytest.raises(ValueError, match=r"failed at ys\[1\]"):
        psd.run_filter(model, ys)


def test_a_second_call_compiles_nothing(model, post):
    psd.run_filter(model, YS)  # compiled programs may have been let go since
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, *_, **__: compiled.append(name) if "backend_compile" in name else None
    )
    try:
        psd.run_filter(model, YS[::-1].copy())
    finally:
        jax.monitoring.clear_event_listeners()
    assert compiled == []


def test_saved_without_functions(model, post, tmp_path):
    psd.save(tmp_path / "model.npz", model)
    again = psd.run_filter(psd.load(tmp_path / "model.npz"), YS)
    np.testing.assert_array_equal(again.mean, post.mean)
    psd.save(tmp_path / "state.npz", psd.init(model))
    state = psd.load(tmp_path / "state.npz")
    for got, wanted in zip(state.moments(model), psd.init(model).moments(model), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_messages_name_the_remedy(model, post):
    with pytest.raises(ValueError, match='"free" does not offer a smoother with a lag; "exact", '):
        psd.run_smoother(model, YS, lag=2)
    with pytest.raises(ValueError, match="inputs must be None"):
        psd.run_filter(model, YS, inputs=np.zeros(6))
    with pytest.raises(ValueError, match="ys must have 1 columns"):
        psd.run_filter(model, np.zeros((3, 2)))
    with pytest.raises(ValueError, match="post must come from run_filter"):
        psd.forecast(model, 3, 2)
    with pytest.raises(ValueError, match=r"t must lie in 0\.\.5"):
        post.density(6)
    with pytest.raises(ValueError, match="at most 2 coordinates, got 3"):
        psd.learn(systems.lorenz63(), engine="free")
    with pytest.raises(ValueError, match="take t or inputs"):
        psd.learn(systems.ungm(), engine="free")
    bare = psd.StateSpaceModel(
        lambda x: 0.0, lambda u, x: 0.0, lambda x, y: 0.0, psd.Box(-1.0, 1.0)
    )
    with pytest.raises(ValueError, match="needs observation_box"):
        psd.learn(bare, engine=psd.engines.Free(observation="joint"))
    bare = psd.StateSpaceModel(
        lambda x: 0.0, lambda u, x: 0.0, lambda x, y: 0.0, psd.Box(-1.0, 1.0),
        psd.Box(-np.ones(4), np.ones(4)),
    )  # fmt: skip
    with pytest.raises(ValueError, match="at most 3 observed coordinates, got 4"):
        psd.learn(bare, engine=psd.engines.Free(observation="joint"))
    with pytest.raises(ValueError, match='observation must be "each" or "joint"'):
        psd.engines.Free(observation="both")


def linear_model(slope: float, sd: float, dim: int = 1) -> psd.StateSpaceModel:
    """x' = slope u + N(0, sd^2) and y = x + N(0, sd^2), axis by axis, on (-1, 1)^d."""

    def log_normal(residual):
        return jnp.sum(-0.5 * jnp.square(residual / sd) - jnp.log(sd * np.sqrt(2 * np.pi)))

    return psd.StateSpaceModel(
        lambda x: jnp.zeros(()),
        lambda u, x: log_normal(x - slope * u),
        lambda x, y: log_normal(y - x),
        psd.Box(-np.ones(dim), np.ones(dim)),
    )


@pytest.mark.long
@pytest.mark.parametrize(
    ("dim", "slope", "sd", "reached"),
    [
        (1, 0.5, 0.005, True),
        pytest.param(1, 3.0, 0.02, True, marks=SLOW),
        pytest.param(1, 20.0, 0.002, False, marks=SLOW),
        pytest.param(2, 0.5, 0.03, True, marks=SLOW),
        pytest.param(2, 1.0, 0.05, True, marks=SLOW),
    ],
)
def test_masses_are_known_or_said_to_be_missed(dim, slope, sd, reached):
    """Normal distribution functions, axis by axis."""
    series, error = kept_mass(linear_model(slope, sd, dim), 2e-5)
    u = np.random.default_rng(dim).uniform(-1, 1, (1000, dim))
    mean = slope * u
    wanted = np.prod(ndtr((1 - mean) / sd) - ndtr((-1 - mean) / sd), axis=1)
    off = np.abs(np.asarray(series(jnp.asarray(u))) - wanted).max()
    assert (error <= 2e-5) == reached
    assert off <= 3 * error + 1e-10


def narrow_transition(slope: float, sd: float) -> LearnedTransition:
    """Q^(u, x) = exp(-u^2 / 10) N(x; slope u, sd^2), to be given the mass 0.8, with its panels."""
    precision = np.array([[slope**2, -slope], [-slope, 1.0]]) / (4 * sd**2)
    precision[0, 0] += 0.05
    height = (2 * np.pi * sd**2) ** -0.25
    Q = psd.GeneralizedGaussianPSD.from_centers([[0.0, 0.0]], [[height]], precision[None])
    rate = jnp.full(11, 0.25 * slope / sd)
    return LearnedTransition(kernel(Q, (0,)), MassSeries(jnp.asarray([0.8])), rate)


@pytest.mark.long
def test_the_smoother_gives_narrow_transitions_their_mass():
    learned = narrow_transition(0.7, 0.012)
    z, w = np.polynomial.legendre.leggauss(1500)
    u = jnp.asarray(np.linspace(-0.95, 0.95, 9)[:, None])
    size = sizes(1)._replace(transition_terms=1)
    masses = w @ np.asarray(tabulate(learned, u, jnp.asarray(z[:, None]), size))
    np.testing.assert_allclose(masses, 0.8, atol=1e-8)


def normal_law(variance: float, size: StepSizes) -> SquareSum:
    """N(0, variance) in the places of a filter."""
    first = np.arange(size.places) == 0
    precision = np.where(first, 0.25 / variance, 1.0)[:, None, None]
    factor = np.zeros((size.places, min(size.places, size.sources)))
    factor[0, 0] = 1.0
    atoms = Atoms(jnp.zeros((size.places, 1)), jnp.asarray(precision))
    return SquareSum(atoms, jnp.asarray(factor))


@SLOW
def test_paths_follow_narrow_transitions():
    """The pair of Gaussian states: x_2 ~ N(0, s^2), and x_1 given it."""
    slope, sd, prior = 0.7, 0.005, 0.04
    size = sizes(1)._replace(transition_terms=1, source_panels=24, sources=24 * 12)
    learned = narrow_transition(slope, sd)
    # The factor exp(-u^2 / 10) is divided out by the mass.
    second = slope**2 * prior + sd**2
    laws = [normal_law(prior, size), normal_law(second, size)]
    stacked = jax.tree.map(lambda *a: jnp.stack(a), *laws)
    num = 4000
    paths = np.asarray(
        draw_paths(stacked, learned, jnp.ones(2, int), jax.random.key(0), num, size)
    )[..., 0]
    gain = slope * prior / second
    left = paths[0] - gain * paths[1]
    spread = np.sqrt(prior - gain * slope * prior)
    assert abs(left.mean()) < 5 * spread / np.sqrt(num)
    assert abs(left.std() / spread - 1) < 5 / np.sqrt(2 * num)
    assert abs(paths[1].std() / np.sqrt(second) - 1) < 5 / np.sqrt(2 * num)


@SLOW
@pytest.mark.parametrize(("sd", "y"), [(0.005, 0.313), (0.1, 5.0)])
def test_fit_errors_of_sharp_and_of_absurd_observations(sd, y):
    """A G between the coarse nodes, and one that is exp(-800) all over the box."""
    size = sizes(1)
    law = normal_law(0.04, size)
    observation = EachObservation(ssm=linear_model(1.0, sd), box=None)
    record = update(law, observation, jnp.asarray([y]), size)[1]
    log_upper, log_lower = (float(log_ndtr((end - y) / sd)) for end in (1.0, -1.0))
    wanted = log_upper + np.log1p(-np.exp(log_lower - log_upper))
    np.testing.assert_allclose(record.log_spread, wanted, atol=1e-5)
    out = observe_once(law, observation, jnp.asarray([y]), size, FitErrors(1e-5, 0.0, 1e-3))[1]
    assert 0 < float(out.fit_error) <= 2
    error = 2e-5 * np.exp(wanted - float(record.log_mass))
    np.testing.assert_allclose(out.fit_error, min(error, 2.0), rtol=1e-4)
    if y > 1:
        assert int(out.code) == _results.UNRESOLVED


def grid_smoother(made, dim: int, ys: np.ndarray, first: str):
    """Weights, means and covariances of the smoother on a dense grid, forwards and backwards."""
    _, Q, G, prior = made
    z, w = np.polynomial.legendre.leggauss(100 if dim == 1 else 28)
    x = np.stack([m.ravel() for m in np.meshgrid(*([z] * dim), indexing="ij")], axis=-1)
    weights = np.prod(np.meshgrid(*([w] * dim), indexing="ij"), axis=0).ravel()
    num = len(x)
    pairs = np.concatenate([np.repeat(x, num, axis=0), np.tile(x, (num, 1))], axis=1)
    table = square(Q, pairs).reshape(num, num)
    seen = [np.ones(num) if np.isnan(y) else square(G, np.c_[x, np.full(num, y)]) for y in ys[:, 0]]
    density, filtered = square(prior, x), []
    for t, likelihood in enumerate(seen):
        if t > 0 or first == "predict":
            density = (weights * density) @ table
        density = density * likelihood
        density = density / (weights @ density)
        filtered.append(density)
    beta, means, covariances = np.ones(num), [], []
    for t in range(len(ys) - 1, -1, -1):
        v = weights * filtered[t] * beta
        v = v / v.sum()
        means.append(v @ x)
        covariances.append(((x - means[-1]) * v[:, None]).T @ (x - means[-1]))
        beta = table @ (weights * seen[t] * beta)
        beta = beta / beta.max()
    return np.stack(means[::-1]), np.stack(covariances[::-1])


@SLOW
@pytest.mark.parametrize(
    ("dim", "num", "first"),
    [(1, 6, "predict"), (1, 6, "observe"), (1, 1, "predict"), (1, 1, "observe"), (2, 4, "predict")],
)
def test_the_smoother_of_a_small_grid(dim, num, first):
    """A gap among the rows, and a single row."""
    made = small_model(dim)
    ys = YS[:num]
    smooth = psd.run_smoother(made[0], ys, first=first)
    mean, covariance = grid_smoother(made, dim, ys, first)
    close = 2e-4 if dim == 1 else 1e-3
    np.testing.assert_allclose(smooth.mean, mean, atol=close)
    np.testing.assert_allclose(smooth.covariance, covariance, atol=close)
    paths = np.asarray(smooth.sample(key=jax.random.key(2), num=1000))
    assert paths.shape == (1000, num, dim)
    sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    assert (np.abs(paths.mean(axis=0) - mean) < 5 * sd / np.sqrt(1000)).all()
