"""Filters of given PSD models, against a dense grid of the same models evaluated point by point."""

import warnings
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import psdfilter as psd

KEY = jax.random.key(3)
BOX, SEEN = psd.Box([-1.0], [1.0]), psd.Box([-1.0], [2.0])
YS = np.array([0.3, 0.9, np.nan, 0.1, 0.7])


def transition(p):
    mean = 0.9 * jnp.sin(2.2 * p[0])
    return jnp.exp(-0.5 * jnp.square((p[1] - mean) / 0.4)) / (0.4 * np.sqrt(2 * np.pi))


def observation(p):
    gap = (p[1] - jnp.square(p[0])) / 0.4
    return jnp.exp(-0.5 * jnp.square(gap)) / (0.4 * np.sqrt(2 * np.pi))


PAIR = psd.Box([-1.0, -1.0], [1.0, 1.0])
STATE_AND_SEEN = psd.Box([-1.0, -1.0], [1.0, 2.0])


def algorithm_one():
    options = {"anchors": "uniform", "num_anchors": 14, "num_points": 200, "ridge": 1e-7}
    Q = psd.learn_rank_one(transition, PAIR, precision=[2.0, 2.5], key=KEY, **options)
    G = psd.learn_rank_one(observation, STATE_AND_SEEN, precision=[2.0, 1.5], key=KEY, **options)
    return Q.model, G.model


def full_rank():
    line = np.linspace(-1.1, 1.1, 4)
    pairs = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    seen = pairs * [1.0, 1.5] + [0.0, 0.5]
    options = {"precision": [2.0, 2.0], "ridge": 1e-6}
    Q = psd.learn_full_rank(transition, PAIR, anchors=pairs, **options).model
    G = psd.learn_full_rank(observation, STATE_AND_SEEN, anchors=seen, **options).model
    return psd.compress(Q, rank=3, box=PAIR), psd.compress(G, rank=2, box=STATE_AND_SEEN)


def from_pairs():
    rng = np.random.default_rng(0)
    u = rng.uniform(-1, 1, 1500)
    x = np.clip(0.9 * np.sin(2.2 * u) + 0.4 * rng.normal(size=1500), -0.999, 0.999)
    y = np.clip(x**2 + 0.4 * rng.normal(size=1500), -0.999, 1.999)
    options = {"ridge": 1e-3, "progress": False}
    Q = psd.learn_conditional(
        u[:, None], x[:, None], BOX, BOX, precision=[3.0, 3.0], **options
    ).model
    G = psd.learn_conditional(
        x[:, None], y[:, None], BOX, SEEN, precision=[3.0, 2.0], **options
    ).model
    return psd.compress(Q, 14, box=PAIR), psd.compress(G, 12, box=STATE_AND_SEEN)


def by_hand():
    Q = psd.GaussianPSD(
        [[-0.8, -0.7], [-0.3, -0.4], [0.3, 0.5], [0.8, 0.6]],
        [[1.0, 0.1], [0.9, 0.0], [1.1, -0.2], [1.0, 0.3]],
        [1.5, 2.0],
    )
    G = psd.GaussianPSD([[-0.7, 0.5], [0.0, 0.0], [0.7, 0.5]], [1.0, 1.0, 1.0], [2.0, 1.5])
    return Q, G


ORIGINS = {
    "algorithm 1": algorithm_one,
    "full rank": full_rank,
    "pairs": from_pairs,
    "by hand": by_hand,
}


@cache
def models(origin):
    prior = psd.GaussianPSD([[0.2], [-0.4]], [1.0, 0.5], [1.0])
    return prior, *ORIGINS[origin]()


def make(origin, **options):
    prior, Q, G = models(origin)
    with warnings.catch_warnings():
        # Models this small are no densities, which `learned` says.
        warnings.simplefilter("ignore", UserWarning)
        return psd.learned(prior=prior, transition=Q, observation=G, box=BOX, **options)


class Grid:
    """Algorithm 2 by a rule of 200 nodes, with Q^, G^ and the prior evaluated point by point."""

    def __init__(self, prior, Q, G, ys, num=200):
        self.x, self.w = np.polynomial.legendre.leggauss(num)
        pairs = np.stack(np.meshgrid(self.x, self.x, indexing="ij"), axis=-1)
        self.kernel = np.asarray(Q(pairs))
        law = np.asarray(prior(self.x[:, None]))
        law = law / (self.w @ law)
        self.start, self.laws, self.logs, self.likelihoods = law, [], [], []
        for y in ys:
            law = (law * self.w) @ self.kernel
            seen = np.ones_like(law)
            if not np.isnan(y):
                seen = np.asarray(G(np.stack([self.x, np.full(num, y)], axis=-1)))
            law = law * seen
            mass = self.w @ law
            self.logs.append(0.0 if np.isnan(y) else np.log(mass))
            law = law / mass
            self.laws.append(law)
            self.likelihoods.append(seen)

    def smoothed(self):
        beta, out = np.ones_like(self.x), []
        for t in reversed(range(len(self.laws))):
            joint = self.laws[t] * beta
            out.append(joint / (self.w @ joint))
            beta = self.kernel @ (self.w * self.likelihoods[t] * beta)
            beta = beta / beta.max()
        return out[::-1]


@cache
def grid(origin):
    return Grid(*models(origin), YS)


every_origin = pytest.mark.parametrize("origin", ORIGINS)


@pytest.mark.slow
@every_origin
def test_the_filter_is_that_of_a_dense_grid(origin):
    post, exact = psd.run_filter(make(origin), YS), grid(origin)
    np.testing.assert_allclose(post.log_likelihoods, exact.logs, atol=1e-9)
    for t, law in enumerate(exact.laws):
        np.testing.assert_allclose(post.density(t)(exact.x[:, None]), law, atol=1e-8)
        np.testing.assert_allclose(post.mean[t, 0], exact.w @ (law * exact.x), atol=1e-9)


@pytest.mark.long
@every_origin
def test_two_engines_agree(origin):
    ys = YS[:3]
    nodes = psd.run_filter(make(origin), ys)
    calculus = psd.run_filter(make(origin, engine="reference"), ys)
    np.testing.assert_allclose(nodes.log_likelihoods, calculus.log_likelihoods, atol=1e-9)
    x = np.linspace(-1, 1, 41)[:, None]
    for t in range(len(ys)):
        np.testing.assert_allclose(nodes.density(t)(x), calculus.density(t)(x), atol=1e-8)


@pytest.mark.long
def test_error_functions_alone_agree_where_they_do_not_cancel():
    nodes, closed = (psd.run_filter(make("by hand", engine=e), YS) for e in ("nodes", "closed"))
    np.testing.assert_allclose(nodes.log_likelihoods, closed.log_likelihoods, atol=1e-10)


@pytest.mark.long
def test_error_functions_that_cancel_are_refused_by_name():
    prior, _, G = models("by hand")
    points = np.linspace(-1.0, 1.0, 12)
    mesh = np.stack(np.meshgrid(points, points, indexing="ij"), axis=-1).reshape(-1, 2)
    kernel = np.exp(-0.5 * np.square(mesh[:, None] - mesh[None]).sum(axis=-1))
    _, vectors = np.linalg.eigh(kernel)
    # A direction in which the kernels cancel to rounding, so that only coefficients grow.
    rough = psd.GaussianPSD(mesh, vectors[:, -1] / 9 + 1e6 * vectors[:, 0], [0.5, 0.5])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        made = psd.learned(prior=prior, transition=rough, observation=G, box=BOX, engine="closed")
    with pytest.raises(ValueError, match='Take engine="nodes"'):
        psd.run_filter(made, YS)


@pytest.mark.long
@every_origin
def test_the_smoother_is_that_of_a_dense_grid(origin):
    smooth, exact = psd.run_smoother(make(origin), YS), grid(origin)
    for t, law in enumerate(exact.smoothed()):
        np.testing.assert_allclose(smooth.mean[t, 0], exact.w @ (law * exact.x), atol=1e-9)
    np.testing.assert_allclose(smooth.density(1)(exact.x[:, None]), exact.smoothed()[1], atol=1e-8)


@pytest.mark.slow
def test_paths_have_the_smoothed_means():
    smooth = psd.run_smoother(make("by hand"), YS)
    paths = np.asarray(smooth.sample(key=KEY, num=4000))
    spread = np.sqrt(np.asarray(smooth.covariance)[:, 0, 0] / 4000)
    assert np.all(np.abs(paths.mean(axis=0)[:, 0] - np.asarray(smooth.mean)[:, 0]) < 6 * spread)


@pytest.mark.long
def test_densities_have_mass_one_to_rounding_and_expand():
    smooth = psd.run_smoother(make("by hand"), YS)
    for f in (smooth.density(2), smooth.filtered.density(1), smooth.filtered.density(2)):
        whole = f.expand()
        assert abs(float(psd.integral(whole, BOX)) - 1.0) < 1e-12
        np.testing.assert_allclose(whole([[0.3], [-0.8]]), f([[0.3], [-0.8]]), rtol=1e-10)


@pytest.mark.long
def test_online_steps_are_the_series():
    model = make("by hand")
    post, state = psd.run_filter(model, YS), psd.init(model)
    for y in YS:
        state = psd.update(model, psd.predict(model, state), y)
    np.testing.assert_allclose(state.log_likelihood, post.log_likelihood, atol=1e-12)
    np.testing.assert_allclose(state.density(model)([0.2]), post.density(-1)([0.2]), rtol=1e-10)
    np.testing.assert_allclose(state.moments(model)[0], post.mean[-1], atol=1e-12)


@pytest.mark.long
def test_forecasts_and_laws_of_observations():
    model, exact = make("by hand", observation_box=SEEN), grid("by hand")
    post = psd.run_filter(model, YS)
    ahead = psd.forecast(model, post, 2)
    law = exact.laws[-1]
    for k in range(2):
        law = (law * exact.w) @ exact.kernel
        law = law / (exact.w @ law)
        np.testing.assert_allclose(ahead.mean[k, 0], exact.w @ (law * exact.x), atol=1e-9)
        np.testing.assert_allclose(ahead.density(k)(exact.x[:, None]), law, atol=1e-8)
    levels = np.asarray(post.pit)
    assert np.isnan(levels[2])
    assert np.all((levels[[0, 1, 3, 4]] > 0) & (levels[[0, 1, 3, 4]] < 1))
    assert ahead.observations.mean.shape == (2, 1)
    assert float(post.log_predictive) != float(post.log_likelihood)


@pytest.mark.long
def test_certificates_are_of_the_quadrature():
    post = psd.run_filter(make("by hand"), YS)
    assert np.max(post.error_estimates) < 1e-9
    found = post.certificate
    assert np.nanmax(found.estimate) < 1e-6
    assert 0 < found.sigma[0] < 1


def test_the_models_come_back():
    model = make("by hand")
    prior, Q, G = models("by hand")
    assert model.prior is prior
    assert model.transition is Q
    assert model.observation is G


def test_masses_are_reported_and_large_gaps_warned_of():
    prior, Q, G = models("by hand")
    with pytest.warns(UserWarning, match="mass there lies"):
        model = psd.learned(prior=prior, transition=Q, observation=G, box=BOX)
    assert "mass of Q^(u, .)" in str(model.report)


@pytest.mark.long
def test_kalman_by_conditional_gaussians_on_all_of_space():
    Q, G = psd.conditional_gaussian([[0.9]], [[0.3]]), psd.conditional_gaussian([[1.0]], [[0.5]])
    prior = psd.from_mixture([1.0], [[0.0]], np.ones((1, 1, 1)))
    ys = [0.4, -0.2, 1.0]
    model = psd.learned(prior=prior, transition=Q, observation=G, box=None, engine="reference")
    post = psd.run_filter(model, ys)
    m, P, total = 0.0, 1.0, 0.0
    for t, y in enumerate(ys):
        m, P = 0.9 * m, 0.81 * P + 0.3
        S = P + 0.5
        total += -0.5 * (y - m) ** 2 / S - 0.5 * np.log(2 * np.pi * S)
        m, P = m + P / S * (y - m), P - P**2 / S
        np.testing.assert_allclose(post.mean[t, 0], m, atol=1e-12)
    np.testing.assert_allclose(post.log_likelihood, total, atol=1e-12)
    wide = psd.Box([-14.0], [14.0])
    nodes = psd.learned(prior=prior, transition=Q, observation=G, box=wide)
    again = psd.run_filter(nodes, ys)
    np.testing.assert_allclose(again.log_likelihood, total, atol=1e-9)
    np.testing.assert_allclose(again.density(2)([[0.3]]), post.density(2)([[0.3]]), atol=1e-8)


@pytest.mark.long
def test_components_with_free_shapes():
    rng = np.random.default_rng(2)
    lower = np.tril(rng.normal(size=(3, 2, 2))) + 2 * np.eye(2)
    Q = psd.GeneralizedGaussianPSD.from_centers(
        rng.uniform(-1, 1, (3, 2)), rng.normal(size=(3, 2)), lower @ lower.transpose(0, 2, 1)
    )
    prior, _, G = models("by hand")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = psd.learned(prior=prior, transition=Q, observation=G, box=BOX)
    post, exact = psd.run_filter(model, YS), Grid(prior, Q, G, YS)
    np.testing.assert_allclose(post.log_likelihoods, exact.logs, atol=1e-9)
    np.testing.assert_allclose(post.density(1)(exact.x[:, None]), exact.laws[1], atol=1e-8)
    f = post.density(1)
    np.testing.assert_allclose(f.expand()([[0.3]]), f([[0.3]]), rtol=1e-9)
    with pytest.raises(ValueError, match='engine="nodes"'):
        psd.learned(prior=prior, transition=Q, observation=G, box=BOX, engine="reference")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"transition": psd.GaussianPSD([[0.0]], [1.0], [1.0])}, "transition must have 2"),
        ({"observation": psd.GaussianPSD([[0.0]], [1.0], [1.0])}, "observation must have more"),
        ({"box": psd.Box([-1.0, -1.0], [1.0, 1.0])}, "box must have 1"),
        ({"box": None}, "box must be given"),
        ({"box": psd.Box([-np.inf], [1.0])}, "box must be finite"),
        ({"engine": "exact"}, "engine must be one of"),
        ({"prior": lambda x: x}, "prior must be a GaussianPSD"),
        ({"box": psd.Box([400.0], [401.0])}, "prior must have a positive"),
        ({"tol": 0.0}, "tol must lie"),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    prior, Q, G = models("by hand")
    given = {"prior": prior, "transition": Q, "observation": G, "box": BOX, **change}
    with pytest.raises(ValueError, match=message):
        psd.learned(**given)


def test_bad_numbers_are_named():
    prior, Q, G = models("by hand")
    bad = jax.tree.map(lambda a: a.at[0].set(jnp.nan) if a.ndim == 2 else a, Q)
    with pytest.raises(ValueError, match=r"transition\.anchors must be finite"):
        psd.learned(prior=prior, transition=bad, observation=G, box=BOX)


def test_what_is_not_offered_says_where_it_is():
    model = make("by hand", engine="reference")
    with pytest.raises(ValueError, match='engine="nodes"'):
        psd.run_smoother(model, YS)
    post = psd.run_filter(make("by hand"), YS)
    with pytest.raises(ValueError, match="observation_box"):
        _ = post.pit


@pytest.mark.long
@pytest.mark.parametrize("eta", [1e3, 1e5])
def test_narrow_priors_have_their_nodes(eta):
    """Nodes were sized without the prior: log Z was off by 0.12, with code 0 and no warning."""
    at, box = 0.123456, psd.Box(-1.0, 1.0)
    weights, anchors = np.array([1.0, 0.8, 0.9]), np.array([[0.2, 0.3], [-0.3, -0.5], [0.6, -0.2]])
    Q = psd.GaussianPSD(anchors, weights, [20.0, 6.0])
    G = psd.GaussianPSD([[0.3, 0.1], [-0.5, 0.2]], [1.0, 0.4], [4.0, 0.5])
    z, w = np.polynomial.legendre.leggauss(80)
    u = at + 7 / np.sqrt(eta) * z
    start = w * np.exp(-2 * eta * (u - at) ** 2)
    start = start / start.sum()
    gaps = 20.0 * (u[:, None, None] - anchors[:, 0]) ** 2, 6.0 * (z[:, None] - anchors[:, 1]) ** 2
    roots = np.exp(-gaps[0] - gaps[1][None]) @ weights
    seen = np.exp(-4 * (z[:, None] - [0.3, -0.5]) ** 2 - 0.5 * (0.1 - np.array([0.1, 0.2])) ** 2)
    p = (start @ roots**2) * (seen @ [1.0, 0.4]) ** 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Q and G are no densities
        prior = psd.GaussianPSD([[at]], [1.0], eta)
        model = psd.learned(prior=prior, transition=Q, observation=G, box=box)
        post = psd.run_filter(model, [[0.1]])
    np.testing.assert_allclose(post.log_likelihood, np.log(w @ p), rtol=1e-8)
    np.testing.assert_allclose(post.mean[0, 0], w @ (p * z) / (w @ p), rtol=1e-8)


def test_a_prior_that_no_table_holds_is_named():
    prior = psd.GaussianPSD([[0.1]], [1.0], 1e7)
    one = psd.GaussianPSD([[0.0, 0.0]], [1.0], [1.0, 1.0])
    with pytest.raises(ValueError, match="the prior is the narrowest"):
        psd.learned(prior=prior, transition=one, observation=one, box=psd.Box(-1.0, 1.0))
