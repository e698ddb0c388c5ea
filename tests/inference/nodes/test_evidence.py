"""The reverse pass of likelihoods, written by hand, against automatic differentiation."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import psdfilter as psd
from psdfilter._inference.nodes.evidence import _along, _plainly, evidence
from psdfilter._inference.nodes.workspace import Stepper
from psdfilter._inference.series import as_series

LAYOUT = (((0,), (0,)),), (5,)


@pytest.mark.long
@pytest.mark.parametrize("row", ["usual", "no transition", "impossible"])
def test_the_reverse_pass_is_the_derivative_of_the_recursion(row):
    rng = np.random.default_rng(2)
    table, start = jnp.asarray(rng.uniform(size=(5, 5))), jnp.asarray(rng.uniform(size=5))
    weights = jnp.asarray(rng.uniform(0.1, 1.0, size=5))
    seen = rng.uniform(size=(6, 5))
    moves = np.ones(6, dtype=bool)
    if row == "no transition":
        moves[[1, 4]] = False
    if row == "impossible":
        seen[3] = 0.0
    shares = jnp.asarray(rng.normal(size=(6, 5))), jnp.asarray(rng.normal(size=5))

    def through(recursion):
        def total(table, start, weighted):
            last, predicted = recursion(
                LAYOUT, (table,), weights, start, weighted, jnp.asarray(moves)
            )
            return jnp.sum(shares[0] * predicted) + jnp.dot(shares[1], last)

        return jax.grad(total, argnums=(0, 1, 2))(table, start, jnp.asarray(seen))

    for ours, expected in zip(through(_along), through(_plainly), strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
def test_checkpoints_change_neither_value_nor_gradient():
    system = psd.systems.stochastic_volatility
    theta = jnp.asarray([-0.9, 0.93, 0.25])
    ys = np.array(system.simulate(3, 70)[1])
    ys[[5, 30]] = np.nan
    model = psd.learn(system(mu=-0.9, rho=0.93, sigma=0.25), 1e-2, engine="nodes")
    series, frozen = as_series(ys, model.num_observed), model.frozen()

    def total(theta, kept):
        ssm = system(mu=theta[0], rho=theta[1], sigma=theta[2])
        stepper = Stepper.of(frozen.fill(ssm), frozen.space)
        return jnp.sum(evidence(stepper, series, kept=kept).log_masses)

    value_and_gradient = jax.jit(jax.value_and_grad(total), static_argnums=1)
    (value, gradient), (again, same) = (value_and_gradient(theta, kept) for kept in (2**17, 0))
    np.testing.assert_allclose(value, again, rtol=1e-12)
    np.testing.assert_allclose(gradient, same, rtol=1e-9)
