"""Likelihoods given by their values: at the nodes of a lattice, and what lies between them."""

import jax.numpy as jnp
import numpy as np
import pytest

import psdfilter as psd
from psdfilter._inference.adaptive.loop.looks import Rows, likelihoods


def blob(sd, dim):
    """A sensor of the whole state, given as a density."""
    return psd.additive_gaussian(
        lambda x: x,
        Q=np.eye(dim),
        m0=np.zeros(dim),
        P0=np.eye(dim),
        log_observation=lambda x, y: -0.5 * jnp.sum(jnp.square((y - x) / sd)),
    )


def rows(*ys):
    return Rows(np.array(ys), np.arange(1, len(ys) + 1), None)


FRAME = np.array([[2.0, 0.0], [0.5, 1.0]])


@pytest.mark.long
def test_nodes_of_the_plane_have_the_values_of_the_density():
    lines = [0.5 * np.arange(-4, 5), 0.5 * np.arange(-3, 6)]
    seen = likelihoods(blob(1.0, 2), lines, FRAME, rows([0.3, -0.4]), looks=4)
    mesh = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, 2) @ FRAME.T
    expected = -0.5 * np.sum(np.square(np.array([0.3, -0.4]) - mesh), axis=1)
    np.testing.assert_allclose(seen.logs[0], expected, rtol=1e-12)
    # The highest of the looks from a node on is no lower than the node.
    assert (seen.between >= seen.logs).all()


def test_several_rows_of_a_line():
    line = 0.5 * np.arange(-8, 9)
    seen = likelihoods(blob(1.0, 1), [line], np.eye(1), rows([0.0], [1.0], [2.5]))
    for found, y in zip(seen.logs, (0.0, 1.0, 2.5), strict=True):
        np.testing.assert_allclose(found, -0.5 * np.square(y - line), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("looks", [2, 4, 8])
@pytest.mark.parametrize("ratio", [1.0, 2.0, 4.0])
def test_bends_tell_how_much_finer_a_lattice_has_to_be(ratio, looks):
    # A blob as wide as the spacing is what nodes just resolve; bends grow with the square.
    line = np.arange(-6.0, 7.0)
    seen = likelihoods(blob(1 / ratio, 2), [line, line], np.eye(2), rows([0.0, 0.0]), looks)
    just = likelihoods(blob(1.0, 2), [line, line], np.eye(2), rows([0.0, 0.0]), looks)
    assert 0.5 < just.bent.max() <= 1.0
    assert seen.bent.max() / just.bent.max() == pytest.approx(ratio**2, rel=1e-6)
