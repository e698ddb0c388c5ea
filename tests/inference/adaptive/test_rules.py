"""Errors of the compiled scan, where integrands have kinks."""

import jax.numpy as jnp
import numpy as np
import pytest
from zoo.registry import ZOO
from zoo.score import score

from psdfilter._inference.adaptive.fast import embedded
from psdfilter._inference.adaptive.loop.roughness import near_kinks
from psdfilter._inference.adaptive.plane.axes import Axis, line_errors
from psdfilter._inference.adaptive.plane.kinks import rough_mass


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


def lattice(step, half=10.0):
    """Nodes of a square lattice whose numbers of intervals are multiples of four."""
    num = 4 * round(half / step / 2)
    axis = Axis(-num * step / 2, num * step / 2, num)
    return (axis, axis), np.meshgrid(axis.nodes, axis.nodes, indexing="ij")


SMOOTH = {
    "gaussian": lambda x, y: -(x**2 + y**2 - x * y) / 2,
    "ring": lambda x, y: -((np.hypot(x - 1, y) - 3) ** 2) / 0.3,
    "quartic": lambda x, y: -(x**4) / 8 - (y - 0.3 * x**2) ** 2,
}
ROUGH = {
    "kink": lambda x, y: -np.abs(x - 0.3) - y**2 / 2,
    "diagonal kink": lambda x, y: -np.abs(x + y) - (x**2 + y**2) / 4,
    "jump": lambda x, y: -(x**2 + y**2) / 2 + 2 * (x > 0.4),
    "wall": lambda x, y: np.where(x > y - 0.5, -(x**2 + y**2) / 2, -np.inf),
}


def cut(logs, depth=16.0):
    """As laws are kept: nothing below a depth."""
    return np.where(logs > logs.max() - depth, logs, -np.inf)


@pytest.mark.parametrize("name", [*SMOOTH, *ROUGH])
def test_kinks_of_laws_in_the_plane_are_told_from_what_is_smooth(name):
    _, (x, y) = lattice(0.1)
    logs = cut((SMOOTH | ROUGH)[name](x, y))
    masses = np.exp(logs - logs.max())
    rough = rough_mass(logs, masses / masses.sum())
    assert rough < 1e-5 if name in SMOOTH else rough > 0.02


@pytest.mark.parametrize("step", [0.5, 0.7, 1.0, 1.2, 1.4])
@pytest.mark.parametrize("name", SMOOTH)
def test_errors_of_smooth_sums_are_bounded_and_fall_fast(name, step):
    axes, (x, y) = lattice(step)
    _, finer = lattice(0.02)
    masses = np.exp(SMOOTH[name](x, y)) * step**2
    truth = abs(masses.sum() / (np.exp(SMOOTH[name](*finer)).sum() * 0.02**2) - 1)
    careful, sharp = (np.sum(line_errors(axes, masses / masses.sum(), s)) for s in (False, True))
    assert truth <= sharp + 1e-12
    if careful < 3e-3:
        # a lattice that is fine enough for a hundredth of the difference to be far too much
        assert sharp < 0.2 * careful
