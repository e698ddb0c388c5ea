"""What may stand where a model wants a function."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import psdfilter as psd


class Walk(eqx.Module):
    """A module with arrays: its methods and itself are pytrees."""

    scale: jax.Array
    start: eqx.nn.MLP

    def transition(self, u, x):
        return jnp.sum(-0.5 * jnp.square((x - 0.8 * u) / self.scale) - jnp.log(self.scale))

    def observation(self, x, y, t):
        del t
        return -0.5 * jnp.square(y[0] - x[0])

    def __call__(self, x):
        return -0.5 * jnp.sum(jnp.square(x))


class Plain:
    def __init__(self):
        self.scale = jnp.asarray([0.4])

    def transition(self, u, x):
        return jnp.sum(-0.5 * jnp.square((x - 0.8 * u) / self.scale) - jnp.log(self.scale))


def test_methods_of_modules_and_modules_themselves():
    """Their arrays are leaves of the model: models that differ in them share their programs."""

    def build(scale):
        walk = Walk(jnp.asarray([scale]), eqx.nn.MLP(1, 1, 2, 1, key=jax.random.key(0)))
        ssm = psd.StateSpaceModel(walk, walk.transition, walk.observation, psd.Box(-4, 4))
        return walk, ssm

    count = 0

    @eqx.filter_jit
    def compiled(model, *points):
        nonlocal count
        count += 1
        return model.log_transition(*points)

    u, x = jnp.asarray([0.3]), jnp.asarray([0.1])
    for scale in (0.4, 0.7):
        walk, ssm = build(scale)
        assert not ssm.is_time_varying
        np.testing.assert_allclose(ssm.log_transition(u, x), walk.transition(u, x))
        np.testing.assert_allclose(compiled(ssm, u, x), walk.transition(u, x))
        assert [leaf for leaf in jax.tree.leaves(ssm) if leaf is walk.scale]
    assert count == 1


def test_methods_of_plain_objects():
    plain = Plain()
    ssm = psd.StateSpaceModel(
        lambda x: -0.5 * jnp.sum(jnp.square(x)),
        plain.transition,
        lambda x, y: -0.5 * jnp.square(y[0] - x[0]),
        psd.Box(-4, 4),
    )
    u, x = jnp.asarray([0.3]), jnp.asarray([0.1])
    compiled = eqx.filter_jit(lambda model, *points: model.log_transition(*points))
    np.testing.assert_allclose(compiled(ssm, u, x), plain.transition(u, x))


def test_a_network_may_be_a_prior():
    walk = Walk(jnp.asarray([0.4]), eqx.nn.MLP(1, "scalar", 2, 1, key=jax.random.key(0)))
    ssm = psd.StateSpaceModel(walk.start, walk.transition, walk.observation, psd.Box(-4, 4))
    np.testing.assert_allclose(ssm.log_prior(jnp.ones(1)), walk.start(jnp.ones(1)))
