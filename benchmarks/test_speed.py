"""Time of a step at equal error: the compiled grid of one system, a fixed plan, and the default.

    pytest -p no:xdist -s benchmarks/test_speed.py

The fixed plan (`engine="nodes"`) knows its nodes beforehand, as the grid does. The default chooses
them at every step, estimates the error of every step and keeps what densities are made of.
"""

import numpy as np
import pytest

import psdfilter as psd
from benchmarks.compiled_grid import SYSTEMS, grid_at
from benchmarks.yardsticks import distance, fastest
from psdfilter import systems

SEED = 3
TARGETS = (1e-2, 1e-3, 1e-4)
STEPS = {1: 1000, 2: 200}
# Tolerances that are tried for a target, the largest first: the default often errs by far less.
FACTORS = (50, 20, 10, 5, 2, 1)


def ours_at(name, engine, ys, reference, target, times):
    """The filter with the largest tolerance whose distance is below the target."""
    for factor in FACTORS:
        if factor * target > 0.5:
            continue
        model = psd.learn(systems.ALL[name](), factor * target, engine=engine)
        error = distance(psd.run_filter(model, ys), reference, times)
        if error <= target:
            return model, factor * target, error
    raise AssertionError(f"{engine}: tol = {target} leaves a distance of {error} on {name}")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SYSTEMS)
def test_a_step_at_equal_error(capsys, name):
    system = systems.ALL[name]
    num = STEPS[system.dim]
    ys = np.asarray(system.simulate(SEED, num)[1])
    reference, times = system.reference(ys), range(0, num, num // 20)
    for target in TARGETS:
        grid, theirs = grid_at(name, ys, reference, target, times)
        fixed, fixed_tol, fixed_error = ours_at(name, "nodes", ys, reference, target, times)
        own, own_tol, own_error = ours_at(name, "auto", ys, reference, target, times)
        limit, by_plan, by_default = (
            1e6 * seconds / num
            for seconds in fastest(
                lambda g=grid: g.run(ys),
                lambda m=fixed: psd.run_filter(m, ys).mean,
                lambda m=own: psd.run_filter(m, ys).mean,
                seconds=2.0,
            )
        )
        with capsys.disabled():
            print(
                f"\n{name}, TV {target:.0e}: compiled grid {limit:.2f} us ({theirs:.0e}); "
                f"nodes {by_plan:.1f} us, {by_plan / limit:.0f} times "
                f"(tol {fixed_tol:.0e}, {fixed_error:.0e}); "
                f"default {by_default:.1f} us, {by_default / limit:.0f} times "
                f"(tol {own_tol:.0e}, {own_error:.0e})",
                end="",
            )
        assert max(theirs, fixed_error, own_error) <= target
