"""`linear_gaussian`: densities, boxes, priors, and the matrices it carries."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import psdfilter as psd
from psdfilter._statespace.adapters import linear_gaussian

F = np.array([[0.9, 0.2], [-0.1, 0.7]])
Q = np.array([[0.3, 0.1], [0.1, 0.2]])
H = np.array([[1.0, 0.5]])


def test_densities_are_those_of_scipy():
    ssm = linear_gaussian(F, Q, H, 0.4, [0.2, 0.1], np.eye(2), b=[0.1, 0.0], d=[0.3])
    u, x, y = np.array([0.3, -0.2]), np.array([0.5, 0.1]), np.array([0.9])
    transition = stats.multivariate_normal(F @ u + [0.1, 0.0], Q).logpdf(x)
    observation = stats.norm(H @ x + 0.3, np.sqrt(0.4)).logpdf(y)[0]
    u, x, y = map(jnp.asarray, (u, x, y))
    np.testing.assert_allclose(ssm.log_transition(u, x), transition, rtol=1e-12)
    np.testing.assert_allclose(ssm.log_observation(x, y), observation, rtol=1e-12)
    assert not ssm.is_time_varying


def test_matrices_stay_with_the_model():
    ssm = linear_gaussian(F, [0.3, 0.2], H, 0.4, [0.2, 0.1], 1.0, b=[0.1, 0.0])
    s = ssm.structure
    np.testing.assert_array_equal(s.F, F)
    np.testing.assert_array_equal(s.Q, np.diag([0.3, 0.2]))
    np.testing.assert_array_equal(s.R, [[0.4]])
    np.testing.assert_array_equal(s.P0, np.eye(2))
    np.testing.assert_array_equal(s.d, [0.0])
    assert ssm.log_transition_axis is not None


def test_numbers_are_enough_in_one_dimension():
    ssm = linear_gaussian(0.8, 0.36, 1.0, 0.5, 0.0, 1.0)
    reach = float(ssm.state_box.upper[0])
    np.testing.assert_allclose(reach, 5.0, rtol=1e-9)  # stationary from the start
    np.testing.assert_allclose(ssm.state_box.lower[0], -reach)


@pytest.mark.long
def test_box_of_a_random_walk_follows_the_horizon():
    def reach(horizon):
        ssm = linear_gaussian(1.0, 1.0, 1.0, 1.0, 0.0, 1.0, horizon=horizon)
        return float(ssm.state_box.upper[0])

    np.testing.assert_allclose([reach(3), reach(99)], [10.0, 50.0], rtol=1e-12)
    with pytest.raises(ValueError, match="grow without bound"):
        linear_gaussian(1e4, 1.0, 1.0, 1.0, 0.0, 1.0)


@pytest.mark.long
def test_psd_prior_and_other_observation():
    prior = psd.from_mixture([0.5, 0.5], [[-1.0], [1.0]], [0.2])

    def log_counts(x, y):
        return jax.scipy.stats.poisson.logpmf(y[0], jnp.exp(x[0]))

    ssm = linear_gaussian(0.9, 0.1, None, None, None, None, prior=prior, log_observation=log_counts)
    assert ssm.structure.H is None
    point = jnp.asarray([0.7])
    np.testing.assert_allclose(ssm.log_prior(point), jnp.log(prior(point)), rtol=1e-12)
    spread = np.sqrt(1.2)
    assert float(ssm.state_box.upper[0]) >= 5 * spread * (1 - 1e-9)
    assert ssm.sample_observation is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"F": np.ones((2, 3))}, "F must be a square matrix"),
        ({"H": np.ones((1, 3))}, r"H must be a matrix \(any, 2\)"),
        ({"H": None}, "H and R must be given"),
        ({"P0": None}, "m0 and P0 must be given"),
        ({"b": [1.0]}, r"b must have shape \(2,\)"),
        ({"log_observation": lambda x, y: 0.0}, "log_observation stands instead"),
        ({"prior": 3.0}, "prior must be a PSD model or a function"),
        ({"Q": [[1.0, 2.0], [2.0, 1.0]]}, "Q must be positive semidefinite"),
    ],
)
def test_bad_input_is_named(change, message):
    given = {"F": F, "Q": Q, "H": H, "R": 0.4, "m0": [0.0, 0.0], "P0": 1.0}
    with pytest.raises(ValueError, match=message):
        linear_gaussian(**(given | change))
