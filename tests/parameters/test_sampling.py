"""The likelihood inside samplers, against the Gaussian that the posterior nearly is."""

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import psdfilter as psd

BOUNDS = {"q": (0, None), "r": (0, None)}


def build(theta):
    return psd.linear_gaussian(0.8, theta["q"], 1.0, theta["r"], [0.0], 1.0)


@pytest.fixture(scope="module")
def likelihood():
    rng = np.random.default_rng(4)
    x, ys = 0.0, []
    for _ in range(150):
        x = 0.8 * x + 0.7 * rng.normal()
        ys.append(x + 0.5 * rng.normal())
    return psd.likelihood(build, {"q": 0.5, "r": 0.25}, np.array(ys))


@pytest.mark.long
def test_the_log_posterior_has_the_jacobian_of_the_bounds(likelihood):
    target = psd.log_posterior(likelihood, bounds=BOUNDS, log_prior=lambda p: -p["q"])
    z = jnp.asarray([-0.3, 0.4])
    theta = {"q": jnp.exp(z[0]), "r": jnp.exp(z[1])}
    expected = likelihood(theta) - theta["q"] + jnp.sum(z)
    assert float(target(z)) == pytest.approx(float(expected), abs=1e-9)
    back = target.to_free(target.to_theta(z))
    np.testing.assert_allclose(back, z, atol=1e-12)


@pytest.mark.slow
def test_numpyro_and_blackjax_agree_on_the_posterior(likelihood):
    import blackjax
    import numpyro
    import numpyro.distributions as dist

    def model():
        theta = {
            "q": numpyro.sample("q", dist.HalfNormal(1.0)),
            "r": numpyro.sample("r", dist.HalfNormal(1.0)),
        }
        numpyro.factor("y", likelihood(theta))

    mcmc = numpyro.infer.MCMC(
        numpyro.infer.NUTS(model),
        num_warmup=200,
        num_samples=400,
        num_chains=2,
        chain_method="sequential",
        progress_bar=False,
    )
    # Samplers mix dtypes and ranks in ways that these tests forbid to everything else.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        mcmc.run(jax.random.key(0))
    ours = mcmc.get_samples(group_by_chain=True)

    def log_prior(theta):
        return -0.5 * (jnp.square(theta["q"]) + jnp.square(theta["r"]))

    target = psd.log_posterior(likelihood, log_prior=log_prior, bounds=BOUNDS)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        warmup = blackjax.window_adaptation(blackjax.nuts, target)
        (state, tuned), _ = warmup.run(jax.random.key(1), target.to_free(likelihood.theta), 200)
        step = blackjax.nuts(target, **tuned).step
        keys = jax.random.split(jax.random.key(2), 800)
        _, draws = jax.lax.scan(
            lambda s, key: (lambda n: (n, n.position))(step(key, s)[0]), state, keys
        )
    theirs = jax.vmap(target.to_theta)(draws)
    for name in ("q", "r"):
        a, b = np.asarray(ours[name]), np.asarray(theirs[name])
        assert float(arviz.rhat(a)) < 1.03
        error = a.std() * np.sqrt(1 / float(arviz.ess(a)) + 1 / float(arviz.ess(b[None])))
        assert abs(a.mean() - b.mean()) < 4.5 * error
    data = psd.to_arviz(likelihood, ours)
    assert data.log_likelihood["y"].shape == (2, 400, 150)
    total = data.log_likelihood["y"].values[0, 0].sum()
    first = {name: float(values[0, 0]) for name, values in ours.items()}
    assert total == pytest.approx(float(likelihood(first)), abs=1e-9)


def test_draws_must_have_the_names_of_theta(likelihood):
    with pytest.raises(ValueError, match="draws must have the names of theta"):
        psd.to_arviz(likelihood, {"q": np.zeros((1, 5))})
    with pytest.raises(ValueError, match="chains, draws"):
        psd.to_arviz(likelihood, {"q": np.zeros(5), "r": np.zeros(5)})
