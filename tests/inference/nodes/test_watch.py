"""Steps in three dimensions watch their own error."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import psdfilter as psd
from psdfilter import _results


def spiral(u):
    """A rotation that shrinks, with a bend: nothing that is linear."""
    x, y, z = u[0], u[1], u[2]
    return jnp.stack([0.7 * x - 0.4 * y, 0.4 * x + 0.7 * y, 0.6 * z + 0.3 * jnp.sin(x)])


def model():
    return psd.additive_gaussian(
        spiral, lambda x: x, 0.3 * jnp.eye(3), 0.5 * jnp.eye(3), jnp.zeros(3), jnp.eye(3)
    )


@pytest.mark.slow
def test_an_outlier_in_three_dimensions_is_not_silent():
    """Eight standard deviations away a learned transition is right to its tolerance only."""
    learned = psd.learn(model(), 1e-2, engine="nodes")
    ys = np.zeros((6, 3))
    ys[3] = 9.0
    with pytest.warns(psd.ResolutionWarning, match=r"from ys\[3\] on"):
        post = psd.run_filter(learned, ys)
    codes = np.asarray(post.codes)
    assert codes[3] == _results.UNRESOLVED
    assert np.all(codes[:3] == 0)
    # A jitted call has nobody to warn, and gives the same numbers.
    under_jit = jax.jit(lambda y: psd.run_filter(learned, y).mean)(jnp.asarray(ys))
    np.testing.assert_allclose(under_jit, post.mean, atol=1e-10)
