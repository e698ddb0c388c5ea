"""`from_particles` on a minimal copy of the interface of `particles`, and on the package itself."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import psdfilter as psd
from psdfilter import systems
from psdfilter._inference.learn import learn
from psdfilter._inference.run import run_filter
from psdfilter._statespace.black_box import from_particles


class Normal:
    dim = 1

    def __init__(self, loc=0.0, scale=1.0):
        self.loc, self.scale = loc, scale

    def logpdf(self, x):
        return stats.norm.logpdf(x, loc=self.loc, scale=self.scale)

    def rvs(self, size=None):
        return np.random.normal(loc=self.loc, scale=self.scale, size=size)  # noqa: NPY002


class Independent:
    """As `IndepProd` of particles."""

    def __init__(self, *laws):
        self.dists = laws

    def logpdf(self, x):
        return sum(law.logpdf(x[..., i]) for i, law in enumerate(self.dists))

    def rvs(self, size=None):
        return np.stack([law.rvs(size=size) for law in self.dists], axis=1)


class Volatility:
    mu, rho, sigma = -1.0, 0.95, 0.2

    def PX0(self):
        return Normal(self.mu, self.sigma / np.sqrt(1 - self.rho**2))

    def PX(self, t, xp):
        return Normal(self.mu + self.rho * (xp - self.mu), self.sigma)

    def PY(self, t, xp, x):
        return Normal(0.0, np.exp(0.5 * x))


class Growth:
    def PX0(self):
        return Normal(0.0, 2.0)

    def PX(self, t, xp):
        return Normal(0.5 * xp + 8.0 * np.cos(1.2 * t), 3.0)

    def PY(self, t, xp, x):
        return Normal(x**2 / 20.0, 1.0)


class Plane:
    def PX0(self):
        return Independent(Normal(0.0, 1.0), Normal(1.0, 0.5))

    def PX(self, t, xp):
        return Independent(Normal(0.7 * xp[:, 0], 0.5), Normal(0.3 * xp[:, 1], 0.4))

    def PY(self, t, xp, x):
        return Independent(Normal(x[:, 0], 0.3), Normal(x[:, 0] * x[:, 1], 0.2))


class Cube:
    """Three coordinates that know nothing of each other."""

    rho, sd, sensor = (0.6, 0.4, 0.7), (0.5, 0.6, 0.4), (0.5, 0.6, 0.7)

    def PX0(self):
        return Independent(*(Normal(0.0, 0.6) for _ in range(3)))

    def PX(self, t, xp):
        return Independent(*(Normal(self.rho[i] * xp[:, i], self.sd[i]) for i in range(3)))

    def PY(self, t, xp, x):
        return Independent(*(Normal(x[:, i], self.sensor[i]) for i in range(3)))


class Lagged(Volatility):
    def PY(self, t, xp, x):
        return Normal(0.0 if xp is None else 0.5 * xp, np.exp(0.5 * x))


def test_functions_of_points():
    ssm = from_particles(Volatility())
    assert ssm.vectorized
    assert not ssm.is_time_varying
    u, x, y = np.array([[-1.0], [0.5]]), np.array([[-0.8], [0.2]]), np.array([[0.3], [0.3]])
    expected = stats.norm.logpdf(x[:, 0], -1.0 + 0.95 * (u[:, 0] + 1.0), 0.2)
    np.testing.assert_allclose(ssm.log_transition(u, x), expected)
    expected = stats.norm.logpdf(y[:, 0], 0.0, np.exp(0.5 * x[:, 0]))
    np.testing.assert_allclose(ssm.log_observation(x, y, t=3), expected)
    sd = 0.2 / np.sqrt(1 - 0.95**2)
    np.testing.assert_allclose(ssm.log_prior(x), stats.norm.logpdf(x[:, 0], -1.0, sd))


def test_states_and_observations_of_two_coordinates():
    ssm = from_particles(Plane())
    assert ssm.dim == 2
    x, y = np.array([[0.5, 1.0], [0.1, 0.2]]), np.array([[0.4, 0.6], [0.4, 0.6]])
    expected = stats.norm.logpdf(y[:, 0], x[:, 0], 0.3)
    expected = expected + stats.norm.logpdf(y[:, 1], x[:, 0] * x[:, 1], 0.2)
    np.testing.assert_allclose(ssm.log_observation(x, y, t=0), expected)
    assert ssm.sample_observation(np.random.default_rng(0), x[0], t=1).shape == (2,)


def test_independent_coordinates_are_factored():
    ssm = from_particles(Plane())
    u, x = np.array([[0.5, 1.0], [0.1, 0.2]]), np.array([[0.4, 0.6], [0.3, -0.2]])
    parts = [ssm.log_transition_axis(i, u, x[:, i]) for i in range(2)]
    np.testing.assert_allclose(parts[1], stats.norm.logpdf(x[:, 1], 0.3 * u[:, 1], 0.4))
    np.testing.assert_allclose(sum(parts), ssm.log_transition(u, x))
    assert from_particles(Volatility()).log_transition_axis is None


@pytest.mark.slow
def test_three_independent_coordinates():
    """The likelihood of a product is the product of three Kalman filters."""
    cube, rng = Cube(), np.random.default_rng(4)
    ys = rng.normal(size=(6, 3))
    model = learn(from_particles(cube, state_box=([-3.2] * 3, [3.2] * 3)), 3e-2)
    assert len(model.filled.plan.transitions) == 3
    post = run_filter(model, ys)
    total = np.zeros(6)
    for i in range(3):
        mean, variance = 0.0, 0.36
        for t in range(6):
            mean, variance = cube.rho[i] * mean, cube.rho[i] ** 2 * variance + cube.sd[i] ** 2
            spread = variance + cube.sensor[i] ** 2
            total[t] += stats.norm.logpdf(ys[t, i], mean, np.sqrt(spread))
            gain = variance / spread
            mean, variance = mean + gain * (ys[t, i] - mean), (1 - gain) * variance
            np.testing.assert_allclose(post.mean[t, i], mean, atol=3e-2)
    np.testing.assert_allclose(post.log_likelihoods, total, atol=3e-2)


def test_time_variation_is_found_or_told():
    assert from_particles(Growth()).is_time_varying
    assert not from_particles(Growth(), time_varying=False).is_time_varying
    assert from_particles(Volatility(), time_varying=True).is_time_varying


def test_box_holds_the_state_and_the_global_generator_is_left_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    ssm = from_particles(Volatility())
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002
    low, high = float(ssm.state_box.lower[0]), float(ssm.state_box.upper[0])
    sd = 0.2 / np.sqrt(1 - 0.95**2)
    assert stats.norm.cdf(low, -1.0, sd) + stats.norm.sf(high, -1.0, sd) < 1e-4


def test_a_class_stands_for_its_defaults():
    x = np.array([[-1.3], [0.4]])
    np.testing.assert_array_equal(
        from_particles(Volatility).log_transition(x, x[::-1]),
        from_particles(Volatility()).log_transition(x, x[::-1]),
    )

    class Asks(Volatility):
        def __init__(self, mu):
            self.mu = mu

    with pytest.raises(ValueError, match="an instance of Asks, with its parameters"):
        from_particles(Asks)


def test_fits_say_that_functions_of_numpy_have_no_gradients():
    class Scaled(Volatility):
        def __init__(self, sigma):
            self.sigma = sigma

    for build in (lambda sigma: from_particles(Scaled(sigma)), lambda _: from_particles(Scaled(1))):
        with pytest.raises(ValueError, match=r"have no gradients.*psdfilter\.models"):
            psd.likelihood(build, 0.2, [0.1, 0.2])


def test_what_cannot_be_used_is_refused():
    with pytest.raises(ValueError, match="PY must not depend on xp"):
        from_particles(Lagged())
    with pytest.raises(ValueError, match="with a method PX0"):
        from_particles(object())
    with pytest.raises(ValueError, match="state_box must have 1 coordinates"):
        from_particles(Volatility(), state_box=([0.0, 0.0], [1.0, 1.0]))


@pytest.mark.slow
def test_the_filter_is_that_of_the_jax_model():
    system = systems.stochastic_volatility
    ssm = system()
    _, ys = system.simulate(0, 20)
    black_box = from_particles(Volatility(), state_box=ssm.state_box)
    posts = [run_filter(learn(m, 1e-4), ys) for m in (ssm, black_box)]
    np.testing.assert_allclose(posts[1].mean, posts[0].mean, atol=1e-4)
    np.testing.assert_allclose(posts[1].log_likelihoods, posts[0].log_likelihoods, atol=1e-4)


def test_the_package_itself():
    pytest.importorskip("particles", exc_type=ImportError)
    from particles import state_space_models

    ssm = from_particles(state_space_models.StochVol(mu=-1.0, rho=0.95, sigma=0.2))
    x = np.array([[-1.3], [0.4]])
    np.testing.assert_allclose(
        ssm.log_transition(x, x[::-1]), from_particles(Volatility()).log_transition(x, x[::-1])
    )
    ssm = from_particles(state_space_models.Gordon_etal())
    assert ssm.is_time_varying
    box = psd.Box([-40.0], [40.0])
    assert bool(jnp.all(box.contains(np.asarray([ssm.state_box.lower, ssm.state_box.upper]))))
