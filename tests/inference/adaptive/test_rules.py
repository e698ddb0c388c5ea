"""Errors of the compiled scan, where integrands have kinks."""

import jax.numpy as jnp
import numpy as np
import pytest
from zoo.registry import ZOO
from zoo.score import score

from psdfilter._inference.adaptive.fast import embedded
from psdfilter._inference.adaptive.loop.roughness import near_kinks


@pytest.mark.long
@pytest.mark.parametrize("num", [49, 97])
def test_kinks_are_told_from_what_is_smooth(num):
    x = np.linspace(-3.0, 3.0, num)
    at = np.argmin(np.abs(x - 0.7))
    for rough in (np.abs(x - 0.7), np.where(x < 0.7, 0.0, 1.0), np.where(x < 0.7, -np.inf, 0.0)):
        found = np.asarray(near_kinks(jnp.asarray(rough + np.sin(x)))) > 0
        assert found[at]
        far = (np.abs(x - x[at]) > 9 * (x[1] - x[0])) & np.isfinite(rough)
        assert not found[far].any()
    for smooth in (np.sin(2 * x), -50 * x**2, np.exp(-(x**2)), 3 * x + 1):
        assert not np.asarray(near_kinks(jnp.asarray(smooth))).any()


def test_the_share_beside_kinks_counts_for_a_third_of_the_difference():
    # |I_h - I_2h| = 1e-3 beside a coarsest rule that resolves nothing.
    assert float(embedded(jnp.asarray(1e-3), jnp.asarray(1.0))) == pytest.approx(5e-5)
    assert float(embedded(jnp.asarray(1e-3), jnp.asarray(1.0), 0.2)) == pytest.approx(1e-3 / 3)
    assert float(embedded(jnp.asarray(1e-3), jnp.asarray(1.0), 6e-4)) == pytest.approx(2e-4)


@pytest.mark.slow
def test_a_kinked_map_is_held_to_the_tolerance():
    case = ZOO["kinked_dynamics"]
    out = score(case, 1e-3)
    assert out.worst < 1e-3
    # Where errors count the estimates are of their size.
    assert all(e < 10 * max(g, 1e-5) for e, g in zip(out.errors, out.estimates, strict=True))
