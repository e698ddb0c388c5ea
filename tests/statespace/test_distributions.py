"""Models given by distributions, on supports with and without walls, against grids and scipy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import psdfilter as psd
from psdfilter._statespace.model import AdditiveGaussian

dist = pytest.importorskip("numpyro.distributions")


@pytest.fixture(autouse=True)
def _promotion_as_users_have_it():
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def counts():
    return psd.StateSpaceModel.from_distributions(
        prior=dist.Normal(0.0, 1.0),
        transition=lambda u: dist.Normal(0.9 * u, 0.3),
        observation=lambda x: dist.Poisson(jnp.exp(x)),
    )


def positive(shape=3.0):
    return psd.StateSpaceModel.from_distributions(
        prior=dist.Gamma(2.0, 1.0),
        transition=lambda u: dist.Gamma(shape, shape / (0.5 + 0.5 * u)),
        observation=lambda x: dist.Poisson(x),
    )


class Grid:
    """Filter and smoother on a dense grid with weights, from tables of densities."""

    def __init__(self, x, weights, prior, table, likelihoods):
        move = table * weights[None, :]
        p, self.filtered, self.log_likelihood = prior, [], 0.0
        for g in likelihoods:
            p = (p * weights) @ table
            if g is not None:
                p = p * g
            z = p @ weights
            self.log_likelihood += np.log(z)
            p = p / z
            self.filtered.append(p)
        after, self.smoothed = np.ones_like(p), []
        for p, g in zip(self.filtered[::-1], likelihoods[::-1], strict=True):
            law = p * after
            self.smoothed.insert(0, law / (law @ weights))
            after = move @ ((1.0 if g is None else g) * after)
            after /= after.max()
        self.x, self.weights = x, weights

    def mean(self, laws):
        return np.array([law @ (self.weights * self.x) for law in laws])

    def cdf(self, law):
        masses = law * self.weights
        return np.cumsum(masses) - 0.5 * masses


YS = np.array([1.0, 2.0, 0.0, np.nan, 3.0, 5.0])


def positive_grid():
    z = np.linspace(-14.0, 4.0, 3001)
    x, h = np.exp(z), z[1] - z[0]
    rate = 3.0 / (0.5 + 0.5 * x)
    table = stats.gamma.pdf(x[None, :], 3.0, scale=1 / rate[:, None])
    seen = [None if np.isnan(y) else stats.poisson.pmf(y, x) for y in YS]
    return Grid(x, x * h, stats.gamma.pdf(x, 2.0), table, seen)


@pytest.mark.long
def test_counts_need_no_normaliser_no_box_and_no_formula():
    ssm = counts()
    assert isinstance(ssm.structure, AdditiveGaussian)
    assert ssm.structure.h is None
    assert ssm.num_observed == 1
    post = psd.run_filter(psd.learn(ssm, 1e-4), YS)
    x = np.linspace(-7.0, 7.0, 3001)
    table = stats.norm.pdf(x[None, :], 0.9 * x[:, None], 0.3)
    seen = [None if np.isnan(y) else stats.poisson.pmf(y, np.exp(x)) for y in YS]
    grid = Grid(x, np.full(3001, x[1] - x[0]), stats.norm.pdf(x), table, seen)
    assert float(post.log_likelihood) == pytest.approx(grid.log_likelihood, abs=1e-4)
    np.testing.assert_allclose(post.mean[:, 0], grid.mean(grid.filtered), atol=1e-4)


@pytest.mark.slow
def test_positive_states_are_reported_in_their_own_units():
    model, grid = psd.learn(positive(), 1e-5), positive_grid()
    smooth = psd.run_smoother(model, YS)
    post, law = smooth.filtered, grid.filtered[-1]
    assert float(post.log_likelihood) == pytest.approx(grid.log_likelihood, abs=1e-5)
    np.testing.assert_allclose(post.mean[:, 0], grid.mean(grid.filtered), rtol=2e-5)
    np.testing.assert_allclose(smooth.mean[:, 0], grid.mean(grid.smoothed), rtol=1e-4)
    variance = law @ (grid.weights * grid.x**2) - grid.mean([law])[0] ** 2
    np.testing.assert_allclose(post.covariance[-1, 0, 0], variance, rtol=1e-4)
    at = np.array([0.3, 1.0, 4.0])
    np.testing.assert_allclose(post.density(5)(at[:, None]), np.interp(at, grid.x, law), rtol=1e-3)
    assert float(post.density(5)([[-1.0]])[0]) == 0.0
    below = np.interp([1.0, 4.0], grid.x, grid.cdf(law))
    assert float(post.cdf([1.0])[-1, 0]) == pytest.approx(below[0], abs=2e-3)
    assert float(post.cdf([-1.0])[-1, 0]) == 0.0
    ends = np.interp([0.05, 0.95], grid.cdf(law), grid.x)
    np.testing.assert_allclose(
        [post.interval(0.9)[0][-1, 0], post.interval(0.9)[1][-1, 0]], ends, 3e-3
    )
    expected = law @ (grid.weights * np.sqrt(grid.x))
    assert float(post.expect(lambda x: jnp.sqrt(x[0]))[-1]) == pytest.approx(expected, rel=1e-5)
    draws = np.asarray(post.sample(key=jax.random.key(0), num=4000))[:, -1, 0]
    assert (draws > 0).all()
    assert abs(draws.mean() - grid.mean([law])[0]) < 6 * np.sqrt(variance / 4000)
    paths = np.asarray(smooth.sample(key=jax.random.key(1), num=2000))
    assert (paths > 0).all()
    gaps = paths[:, :, 0].mean(axis=0) - grid.mean(grid.smoothed)
    assert np.all(np.abs(gaps) < 6 * paths[:, :, 0].std(axis=0) / np.sqrt(2000))


@pytest.mark.slow
def test_one_observation_at_a_time_and_ahead_are_in_user_units_too():
    model, grid = psd.learn(positive(), 1e-4), positive_grid()
    state = psd.init(model)
    for y in YS:
        state = psd.update(model, psd.predict(model, state), y)
    assert float(state.log_likelihood) == pytest.approx(grid.log_likelihood, abs=1e-4)
    assert float(state.moments(model)[0][0]) == pytest.approx(
        grid.mean(grid.filtered)[-1], rel=1e-4
    )
    ahead = psd.forecast(model, psd.run_filter(model, YS), 2)
    # E x' = (1 + E u) / 2.
    last = grid.mean(grid.filtered)[-1]
    np.testing.assert_allclose(ahead.mean[:, 0], [0.5 + last / 2, 0.75 + last / 4], rtol=1e-4)


@pytest.mark.slow
def test_a_pole_at_the_wall_is_no_reason_to_refuse():
    ssm = psd.StateSpaceModel.from_distributions(
        prior=dist.Beta(0.5, 0.5),
        transition=lambda u: dist.Beta(2.0 + 8 * u, 2.0 + 8 * (1 - u)),
        observation=lambda x: dist.Binomial(8, x),
    )
    post = psd.run_filter(psd.learn(ssm, 1e-5), [8.0], first="observe")
    exact = stats.beta(8.5, 0.5)
    mass = stats.betabinom.pmf(8, 8, 0.5, 0.5)
    assert float(post.log_likelihood) == pytest.approx(np.log(mass), abs=1e-5)
    assert float(post.mean[0, 0]) == pytest.approx(exact.mean(), abs=1e-5)
    assert float(post.covariance[0, 0, 0]) == pytest.approx(exact.var(), rel=1e-4)
    np.testing.assert_allclose(
        post.quantile([0.1, 0.5, 0.9])[:, 0, 0], exact.ppf([0.1, 0.5, 0.9]), rtol=1e-5
    )
    np.testing.assert_allclose(
        post.density(0)([[0.5], [0.9], [0.999]]), exact.pdf([0.5, 0.9, 0.999]), rtol=1e-4
    )


@pytest.mark.long
def test_products_are_factored_by_axis_and_supports_are_read():
    ssm = psd.StateSpaceModel.from_distributions(
        prior=[dist.Normal(0.0, 1.0), dist.Gamma(2.0, 1.0)],
        transition=lambda u: [dist.Normal(u[0], u[1]), dist.Gamma(3.0, 3.0 / u[1])],
        observation=lambda x: dist.Normal(jnp.stack([x[0], x[0] + x[1]]), 0.3).to_event(1),
    )
    u, x = jnp.array([0.2, 1.5]), jnp.array([0.7, 0.9])
    parts = stats.norm.logpdf(0.7, 0.2, 1.5), stats.gamma.logpdf(0.9, 3.0, scale=0.5)
    assert float(ssm.log_transition(u, x)) == pytest.approx(sum(parts))
    found = [float(ssm.log_transition_axis(i, u, x[i])) for i in range(2)]
    np.testing.assert_allclose(found, parts)
    assert ssm.coordinates.words == "the real line, x > 0"
    # A product of observations leaves out what is missing.
    y = jnp.array([jnp.nan, 1.0])
    assert float(ssm.log_observation(x, y)) == pytest.approx(stats.norm.logpdf(1.0, 1.6, 0.3))
    slope = jax.grad(lambda x: ssm.log_observation(x, y))(x)
    assert np.isfinite(np.asarray(slope)).all()


@pytest.mark.slow
def test_densities_written_by_hand_take_supports_and_bijections():
    def log_prior(x):
        return jax.scipy.stats.gamma.logpdf(x[0], 2.0)

    def log_transition(u, x):
        rate = 3.0 / (0.5 + 0.5 * u[0])
        return jax.scipy.stats.gamma.logpdf(x[0], 3.0, scale=1 / rate)

    def log_observation(x, y):
        return y[0] * jnp.log(x[0]) - x[0] - jax.scipy.special.gammaln(y[0] + 1)

    class Squared:
        """x = z^2 for z > 0, as a softplus would do."""

        forward = staticmethod(jax.nn.softplus)
        inverse = staticmethod(lambda x: x + jnp.log(-jnp.expm1(-x)))

    grid = positive_grid()
    for support in ("positive", (0.0, None), Squared()):
        ssm = psd.StateSpaceModel(
            log_prior, log_transition, log_observation, psd.Box(1e-5, 50.0), support=support
        )
        post = psd.run_filter(psd.learn(ssm, 1e-4, engine="nodes"), YS)
        assert float(post.log_likelihood) == pytest.approx(grid.log_likelihood, abs=1e-3)
        np.testing.assert_allclose(post.mean[:, 0], grid.mean(grid.filtered), rtol=1e-3)


@pytest.mark.slow
def test_the_likelihood_of_parameters_is_that_of_the_filter():
    ll = psd.likelihood(lambda theta: positive(theta), 3.0, YS, tol=1e-4)
    assert float(ll(3.0)) == pytest.approx(positive_grid().log_likelihood, abs=1e-4)
    slope = (float(ll(3.01)) - float(ll(2.99))) / 0.02
    assert float(jax.grad(ll)(3.0)) == pytest.approx(slope, rel=1e-3)
    assert float(ll.posterior(3.0).mean[-1, 0]) == pytest.approx(
        positive_grid().mean(positive_grid().filtered)[-1], rel=1e-3
    )


class Duck:
    """A distribution of no library: log_prob, and sample with a seed."""

    def __init__(self, loc):
        self.loc = loc

    def log_prob(self, x):
        return jax.scipy.stats.norm.logpdf(x, self.loc, 1.0)

    def sample(self, seed):
        return self.loc + jax.random.normal(seed, jnp.shape(self.loc))


@pytest.mark.long
def test_anything_with_log_prob_and_sample_is_a_distribution():
    ssm = psd.StateSpaceModel.from_distributions(
        Duck(jnp.zeros(1)), lambda u: Duck(0.5 * u), lambda x: Duck(x)
    )
    model = psd.learn(ssm, 1e-4)
    exact = psd.learn(psd.linear_gaussian(0.5, 1.0, 1.0, 1.0, 0.0, 1.0))
    got, want = psd.run_filter(model, [0.3, 2.0]), psd.run_filter(exact, [0.3, 2.0])
    assert float(got.log_likelihood) == pytest.approx(float(want.log_likelihood), abs=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prior": 3.0}, "prior must be a distribution with log_prob and sample"),
        ({"prior": dist.Poisson(3.0)}, "prior must be a distribution of real numbers, got Poisson"),
        ({"transition": lambda u: u}, r"transition\(x\) must be a distribution"),
        ({"transition": dist.Normal(0.0, 1.0)}, "transition must be a function"),
        (
            {"transition": lambda u: dist.Normal(jnp.zeros(3), 1.0)},
            "of 1 coordinates, as prior has",
        ),
        ({"prior": dist.Dirichlet(jnp.ones(3))}, "real, positive or between two bounds"),
        ({"support": "circle"}, 'support must be "real", "positive" or "unit"'),
        ({"observation": lambda x, inputs: dist.Normal(x, inputs)}, "inputs must be given"),
    ],
)
def test_what_is_wrong_is_named(changes, message):
    given = {
        "prior": dist.Normal(0.0, 1.0),
        "transition": lambda u: dist.Normal(jnp.broadcast_to(u[:1], (1,)), 1.0),
        "observation": lambda x: dist.Normal(x, 1.0),
        **changes,
    }
    if "Dirichlet" in message or "between" in message:
        given["transition"] = lambda u: dist.Dirichlet(10 * u)
    with pytest.raises(ValueError, match=message):
        psd.StateSpaceModel.from_distributions(**given)


@pytest.mark.long
@pytest.mark.parametrize(("freedom", "heavy"), [(5.0, False), (2.0, True)])
def test_variances_that_rest_on_tails_are_not_silent(freedom, heavy):
    """Student's law with two degrees of freedom has none; it was forecast as 14."""
    ssm = psd.StateSpaceModel.from_distributions(
        prior=dist.Normal(0.0, 1.0),
        transition=lambda u: dist.StudentT(freedom, 0.5 * u, 1.0),
        observation=lambda x: dist.Normal(x, 1.0),
    )
    model = psd.learn(ssm)
    post = psd.run_filter(model, [1.1, 1.2])
    if heavy:
        with pytest.warns(psd.ResolutionWarning, match="2 steps ahead.*variance"):
            ahead = psd.forecast(model, post, 2)
    else:
        ahead = psd.forecast(model, post, 2)
        wanted = 5 / 3 + 0.25 * float(post.covariance[-1, 0, 0])
        assert float(ahead.covariance[0, 0, 0]) == pytest.approx(wanted, rel=1e-3)
    assert np.all(np.asarray(ahead.codes) == (7 if heavy else 0))
    if heavy:
        with pytest.warns(
            psd.ResolutionWarning, match=r"1 steps without an observation, from ys\[1"
        ):
            gap = psd.run_filter(model, [1.1, np.nan, 1.2])
    else:
        gap = psd.run_filter(model, [1.1, np.nan, 1.2])
    assert list(np.asarray(gap.codes)) == [0, 7 if heavy else 0, 0]
    assert "variance" in psd.explain(7)
