"""The list of all local maxima."""

import jax
import numpy as np
import pytest
from helpers import make, slow

import psdfilter as psd


@pytest.mark.long
def test_a_mixture_on_a_line_has_its_peaks_in_order_of_height():
    f = psd.from_mixture([0.2, 0.5, 0.3], [[-2.0], [0.0], [3.0]], [0.04])
    got = np.asarray(psd.modes(f))
    np.testing.assert_allclose(got[:, 0], [0.0, 3.0, -2.0], atol=1e-6)
    np.testing.assert_allclose(got[0], psd.mode(f), atol=1e-6)


@pytest.mark.long
def test_edges_of_the_box_count():
    f = psd.from_mixture([0.5, 0.5], [[-2.0], [2.0]], [0.5])
    np.testing.assert_allclose(np.asarray(psd.modes(f, (-1.0, 1.0)))[:, 0], [-1.0, 1.0])


@pytest.mark.long
@pytest.mark.parametrize(
    "kind", ["scattered_full", slow("components"), slow("pairs"), slow("block_mixture")]
)
def test_gradients_vanish_and_nothing_near_is_higher(kind):
    f = make(kind, 4, 2)
    found = np.asarray(psd.modes(f))
    heights = np.asarray(f(found))
    assert np.all(np.diff(heights) <= 0)
    width = 0.02 * np.stack([[np.cos(t), np.sin(t)] for t in np.linspace(0, 6.2, 16)])
    for x, top in zip(found, heights, strict=True):
        assert np.all(np.asarray(f(x + width)) <= top * (1 + 1e-12))
        np.testing.assert_allclose(f.gradient(x) / top, 0.0, atol=1e-7)
    np.testing.assert_allclose(heights[0], f(psd.mode(f)), rtol=1e-9)


@pytest.mark.long
def test_four_peaks_in_the_plane_and_the_small_one_on_request():
    corners = [[-1.0, -1.0], [-1.0, 1.0], [1.0, -1.0], [1.0, 1.0]]
    f = psd.from_mixture([0.4, 0.3, 0.3, 1e-8], corners, [0.05, 0.02])
    assert len(psd.modes(f)) == 3
    assert len(psd.modes(f, least=1e-10)) == 4


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="one or two coordinates, got 3"):
        psd.modes(make("mixture", 0, 3))
    with pytest.raises(ValueError, match="cannot run under jit"):
        jax.jit(psd.modes)(make("mixture", 0, 1))
    with pytest.raises(ValueError, match=r"least must lie in \[0, 1\)"):
        psd.modes(make("mixture", 0, 1), least=2.0)
