"""Likelihoods given by their values: at the nodes of a lattice, and what lies between them."""

import jax.numpy as jnp
import numpy as np
import pytest

import psdfilter as psd
from psdfilter._inference.adaptive.loop.looks import (
    LOOKS,
    Rows,
    line_likelihoods,
    plane_likelihoods,
)
from psdfilter._inference.adaptive.spikes import BUMP


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
    seen = plane_likelihoods(blob(1.0, 2), lines, FRAME, rows([0.3, -0.4]), looks=4)
    mesh = np.stack(np.meshgrid(*lines, indexing="ij"), axis=-1).reshape(-1, 2) @ FRAME.T
    expected = -0.5 * np.sum(np.square(np.array([0.3, -0.4]) - mesh), axis=1)
    np.testing.assert_allclose(seen.logs[0], expected, rtol=1e-12)
    # The highest of the looks from a node on is no lower than the node.
    assert (seen.between >= seen.logs).all()


def test_several_rows_of_a_line():
    line = 0.5 * np.arange(-8, 9)
    seen = line_likelihoods(blob(1.0, 1), line, 1.0, rows([0.0], [1.0], [2.5]))
    for found, y in zip(seen.logs, (0.0, 1.0, 2.5), strict=True):
        np.testing.assert_allclose(found, -0.5 * np.square(y - line), rtol=1e-12, atol=1e-12)


def test_looks_at_a_long_line_are_those_of_all_its_points():
    # More nodes than are evaluated at once, and a sensor that saturates at 3 with a jump.
    def log_g(x):
        return np.where(x > 3, -np.inf, -0.5 * np.square(0.7 - np.sin(3 * x)) / 0.01)

    model = psd.additive_gaussian(
        lambda x: x,
        Q=1.0,
        m0=0.0,
        P0=1.0,
        log_observation=lambda x, y: jnp.where(
            x[0] > 3, -jnp.inf, -0.5 * jnp.square(y[0] - jnp.sin(3 * x[0])) / 0.01
        ),
    )
    line = 0.05 * np.arange(-150, 151)
    seen = line_likelihoods(model, line, 0.5, rows([0.7]))
    fine = 0.5 * (line[0] + (line[1] - line[0]) / LOOKS * np.arange(LOOKS * len(line)))
    logs = log_g(fine)
    bent = np.zeros(len(fine))
    with np.errstate(invalid="ignore"):
        bent[1:-1] = np.nan_to_num(np.abs(np.diff(logs, 2)), nan=np.inf, posinf=np.inf) / BUMP
    none = np.isinf(logs)
    bent[1:-1][none[:-2] & none[1:-1] & none[2:]] = 0.0
    np.testing.assert_allclose(seen.logs[0], logs[::LOOKS], atol=1e-9)
    np.testing.assert_allclose(seen.between[0], logs.reshape(-1, LOOKS).max(axis=1), atol=1e-9)
    np.testing.assert_allclose(seen.bent[0], bent.reshape(-1, LOOKS).max(axis=1), atol=1e-8)


@pytest.mark.parametrize("looks", [2, 4, 8])
@pytest.mark.parametrize("ratio", [1.0, 2.0, 4.0])
def test_bends_tell_how_much_finer_a_lattice_has_to_be(ratio, looks):
    # A blob as wide as the spacing is what nodes just resolve; bends grow with the square.
    line = np.arange(-6.0, 7.0)
    seen = plane_likelihoods(blob(1 / ratio, 2), [line, line], np.eye(2), rows([0.0, 0.0]), looks)
    just = plane_likelihoods(blob(1.0, 2), [line, line], np.eye(2), rows([0.0, 0.0]), looks)
    assert 0.5 < just.bent.max() <= 1.0
    assert seen.bent.max() / just.bent.max() == pytest.approx(ratio**2, rel=1e-6)
