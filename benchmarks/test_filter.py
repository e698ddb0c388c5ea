"""The filter beside a grid written by hand, a particle filter and an extended Kalman filter.

All figures are ratios within one run, after compilation. What other libraries are needed for is
skipped where they are missing; `make peers` builds an environment that has them.
"""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import psdfilter as psd
from benchmarks import peers
from benchmarks.yardsticks import HandGrid, distance, fastest
from psdfilter import systems

SEED = 3


def data(name: str, num: int) -> np.ndarray:
    return np.asarray(systems.ALL[name].simulate(SEED, num)[1])


def hand_at(system, ys, reference, target, times, sizes, separable=False):
    """The smallest hand-written grid with a distance below the target."""
    for num in sizes:
        grid = HandGrid(system(), num, separable)
        error = grid.distance(reference, ys, times)
        if error <= target:
            return grid, num, error
    raise AssertionError(f"no grid of {max(sizes)} nodes reaches {target}")


def ours_at(system, ys, reference, target, times):
    """The filter with the largest tolerance whose distance is below the target."""
    for tol in (10 * target, 5 * target, 2 * target, target):
        model = psd.learn(system(), tol, engine="nodes")
        error = distance(psd.run_filter(model, ys), reference, times)
        if error <= target:
            return model, tol, error
    raise AssertionError(f"tol = {tol} leaves a distance of {error}, above {target}")


def compare_with_hand(capsys, name, targets, num_steps, sizes, separable=False, limit=2.0):
    system, ys = systems.ALL[name], data(name, num_steps)
    reference, times = system.reference(ys), range(0, num_steps, 11)
    on_device = jnp.asarray(ys)
    worst = 0.0
    for target in targets:
        grid, num, theirs = hand_at(system, ys, reference, target, times, sizes, separable)
        model, tol, error = ours_at(system, ys, reference, target, times)
        by_hand, ours = fastest(
            lambda g=grid: g.run(on_device), lambda m=model: psd.run_filter(m, ys).mean
        )
        worst = max(worst, ours / by_hand)
        with capsys.disabled():
            print(
                f"\n{name}, distance {target:.0e}: by hand {num} nodes, {theirs:.1e}, "
                f"{1e6 * by_hand / num_steps:.2f} us per step; ours tol {tol:.0e}, "
                f"{model.report.nodes} nodes, {error:.1e}, {1e6 * ours / num_steps:.2f} us; "
                f"ratio {ours / by_hand:.2f}",
                end="",
            )
    assert worst <= limit


@pytest.mark.parametrize("name", ["sine_map", "stochastic_volatility", "theta_logistic"])
def test_one_dimension_against_a_grid_by_hand(capsys, name):
    compare_with_hand(capsys, name, (1e-2, 1e-3, 1e-4, 1e-6), 100, range(14, 200, 3))


@pytest.mark.parametrize(("name", "separable"), [("range_only", True), ("pendulum", False)])
def test_two_dimensions_against_a_grid_by_hand(capsys, name, separable):
    compare_with_hand(capsys, name, (1e-3,), 60, range(30, 90, 3), separable)


def test_a_transition_that_varies_in_time(capsys):
    """UNGM, tables filled before; against the same filter with a transition frozen at t = 1."""
    ys = data("ungm", 100)
    model = psd.learn(systems.ungm(), 1e-3, engine="nodes")
    varying = systems.ungm()
    frozen = psd.StateSpaceModel(
        varying.log_prior,
        lambda u, x: varying.log_transition(u, x, t=1.0),
        varying.log_observation,
        varying.state_box,
        sample_observation=varying.sample_observation,
    )
    fixed = psd.learn(frozen, 1e-3, engine="nodes")
    ours, still = fastest(
        lambda: psd.run_filter(model, ys).mean, lambda: psd.run_filter(fixed, ys).mean
    )
    with capsys.disabled():
        print(
            f"\nungm {model.report.nodes} nodes: {1e4 * ours:.1f} us per step; frozen in time "
            f"{fixed.report.nodes} nodes: {1e4 * still:.1f} us; ratio {ours / still:.1f}",
            end="",
        )
    assert ours <= 10 * still


# Particles to a tolerance that leaves less error than 10^5 of them, and the factor promised.
AGAINST_PARTICLES = {
    "sine_map": (1e-2, 100, 500),
    "stochastic_volatility": (1e-2, 100, 500),
    "ungm": (1e-2, 100, 75),
    "range_only": (3e-2, 40, 50),
    "pendulum": (3e-2, 40, 20),
    "lorenz63": (3e-2, 12, 4),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", AGAINST_PARTICLES)
def test_against_a_particle_filter(capsys, name):
    pytest.importorskip("particles", reason="particles is not installed; run `make peers`")
    tol, num_steps, factor = AGAINST_PARTICLES[name]
    system, ys = systems.ALL[name], data(name, num_steps)
    np.random.seed(0)  # noqa: NPY002, the generator that particles draws from
    peers.bootstrap(peers.bootstrap_models()[name], ys[:3], 1000)
    theirs, means = peers.bootstrap(peers.bootstrap_models()[name], ys, 100_000)
    model = psd.learn(system(), tol, engine="nodes")
    post = psd.run_filter(model, ys)
    # Where no dense grid can follow, a filter of a tenth of the tolerance is the reference.
    exact = system.reference(ys) if system.dim <= 2 else psd.run_filter(
        psd.learn(system(), 0.1 * tol, engine="nodes"), ys
    )  # fmt: skip
    deviation = np.sqrt(np.diagonal(np.asarray(exact.covariance), axis1=1, axis2=2))
    errors = [np.mean(np.abs(m - np.asarray(exact.mean)) / deviation) for m in (means, post.mean)]
    ours = fastest(lambda: psd.run_filter(model, ys).mean)[0] / num_steps
    with capsys.disabled():
        print(
            f"\n{name}: particles 10^5 {1e6 * theirs:.0f} us per step, mean error {errors[0]:.1e} "
            f"sd; ours tol {tol:.0e} {1e6 * ours:.1f} us, {errors[1]:.1e} sd; "
            f"{theirs / ours:.0f} times faster (promised {factor})",
            end="",
        )
    assert errors[1] <= errors[0]
    assert theirs >= factor * ours


@pytest.mark.filterwarnings("ignore")
def test_a_batch_against_an_extended_kalman_filter(capsys):
    pytest.importorskip("dynamax", reason="dynamax is not installed; run `make peers`")
    batch, num_steps, system = 1024, 100, systems.sine_map
    several = np.stack([np.asarray(system.simulate(s, num_steps)[1]) for s in range(8)])
    ys = jnp.asarray(np.tile(several, (batch // 8, 1, 1)))
    reference, times = system.reference(several[0]), range(0, num_steps, 11)
    model, tol, error = ours_at(system, several[0], reference, 1e-3, times)

    def one(y):
        post = psd.run_filter(model, y, keep="summaries")
        return post.mean, post.covariance, post.log_likelihoods

    run, kalman = jax.jit(jax.vmap(one)), peers.extended_kalman()
    ours, theirs = (t / batch / num_steps for t in fastest(lambda: run(ys), lambda: kalman(ys)))
    with capsys.disabled():
        print(
            f"\n1024 series: ours tol {tol:.0e}, distance {error:.1e}, {1e6 * ours:.2f} us per "
            f"series and step; extended Kalman {1e6 * theirs:.2f} us; ratio {ours / theirs:.2f}",
            end="",
        )
    assert ours <= 2 * theirs


def test_one_observation_at_a_time(capsys):
    """`update` from Python, in units of a compiled function that does nothing."""
    model, ys = psd.learn(systems.sine_map(), 1e-3, engine="nodes"), data("sine_map", 5)
    state, nothing, small = psd.init(model), jax.jit(lambda x: x + 1), jnp.ones(3)
    ours, unit = fastest(lambda: psd.update(model, state, ys[0]).law.values, lambda: nothing(small))
    with capsys.disabled():
        print(f"\nonline update: {1e6 * ours:.1f} us, {ours / unit:.1f} dispatches", end="")
    assert ours <= 5 * unit


class Product:
    """Two independent swings in one state of four coordinates, and each alone."""

    @staticmethod
    def half():
        return systems.pendulum(angle_sd=0.45, velocity_sd=0.5, sensor_sd=0.3)

    @staticmethod
    def whole():
        one = Product.half()
        lower, upper = np.asarray(one.state_box.lower), np.asarray(one.state_box.upper)

        def f(u):
            return jnp.concatenate([_swing(u[:2]), _swing(u[2:])])

        return psd.additive_gaussian(
            f,
            lambda x: jnp.sin(x[jnp.asarray([0, 2])]),
            np.tile([0.45**2, 0.5**2], 2),
            0.3**2,
            [0.8, 0.0, 0.8, 0.0],
            [0.16] * 4,
            state_box=(np.tile(lower, 2), np.tile(upper, 2)),
        )


def _swing(u):
    velocity = u[1] - 0.4 * (jnp.sin(u[0]) + 0.6 * u[1])
    return jnp.stack([u[0] + 0.4 * velocity, velocity])


def test_four_dimensions(capsys):
    ys = np.random.default_rng(1).normal(0.3, 0.5, size=(6, 2))
    model = psd.learn(Product.whole(), 5e-2)
    post = psd.run_filter(model, ys)
    halves = [
        psd.run_filter(psd.learn(Product.half(), 1e-4, engine="nodes"), ys[:, [i]]) for i in (0, 1)
    ]
    grid = HandGrid(Product.half(), 24)
    errors = []
    for t in (2, 5):
        one, two = (np.asarray(h.density(t)(grid.points)) for h in halves)
        truth = np.multiply.outer(one, two)
        points = np.concatenate(
            [np.repeat(grid.points, len(two), axis=0), np.tile(grid.points, (len(one), 1))], axis=1
        )
        values = np.asarray(post.density(t)(points)).reshape(truth.shape)
        errors.append(grid.weights @ np.abs(values - truth) @ grid.weights)
    seconds = fastest(lambda: psd.run_filter(model, ys).mean, repeat=2)[0] / len(ys)
    with capsys.disabled():
        print(
            f"\n4-d {model.report.nodes} nodes: {seconds:.3f} s per step, "
            f"distance {max(errors):.1e}",
            end="",
        )
    assert max(errors) <= 5e-2
    assert seconds < 1.0


def run_alone(code: str) -> list[float]:
    """The numbers that a fresh interpreter prints: its memory and its compilations are its own."""
    prelude = "import jax; jax.config.update('jax_enable_x64', True)\n"
    done = subprocess.run(
        [sys.executable, "-c", prelude + code], capture_output=True, text=True, check=True
    )
    return [float(word) for word in done.stdout.split()]


MEMORY = """
import time
import numpy as np
import psdfilter as psd
from psdfilter import systems

def peak():
    # Of this process alone: getrusage would count what its parent held before.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024
"""


def test_three_dimensions(capsys):
    code = """
ys = np.asarray(systems.lorenz63.simulate(3, 12)[1])
model = psd.learn(systems.lorenz63(), 1e-2)
post = psd.run_filter(model, ys)
best = 1e9
for _ in range(4):
    start = time.perf_counter()
    psd.run_filter(model, ys).mean.block_until_ready()
    best = min(best, time.perf_counter() - start)
finer = psd.run_filter(psd.learn(systems.lorenz63(), 2e-3), ys)
memory = peak() / 2**30
box = systems.lorenz63().state_box
z, w = np.polynomial.legendre.leggauss(20)
unit = np.stack([m.ravel() for m in np.meshgrid(z, z, z, indexing="ij")], axis=-1)
points = np.asarray(box.center) + np.asarray(box.half_width) * unit
weights = np.multiply.outer(np.multiply.outer(w, w), w).ravel()
shares = weights * np.prod(np.asarray(box.half_width))
gaps = [shares @ np.abs(np.asarray(post.density(t)(points) - finer.density(t)(points)))
        for t in (3, 11)]
print(best / len(ys), max(gaps), memory, peak() / 2**30)
"""
    seconds, error, memory, after = run_alone(MEMORY + code)
    with capsys.disabled():
        print(
            f"\nlorenz63, tol 1e-2: {1e3 * seconds:.1f} ms per step, distance {error:.1e}, "
            f"{memory:.2f} GiB ({after:.2f} after densities at 8000 points)",
            end="",
        )
    assert error <= 1e-2
    assert seconds < 0.030
    assert after < 1.0


def test_memory_does_not_grow_with_the_series(capsys):
    code = """
model = psd.learn(systems.sine_map(), 1e-3, engine="nodes")
one = np.asarray(systems.sine_map.simulate(3, 1000)[1])
sizes = []
for num in (10_000, 1_000_000):
    post = psd.run_filter(model, np.resize(one, (num, 1)), keep="summaries")
    post.mean.block_until_ready()
    sizes.append(peak())
print(*sizes)
"""
    short, long = run_alone(MEMORY + code)
    each = (long - short) / 990_000
    with capsys.disabled():
        print(f"\na million steps: {each:.0f} bytes per step beyond those of 10^4", end="")
    # Series, summaries and their copies are some twenty numbers a step; a density would be 33 more.
    assert each < 33 * 8 + 200


@pytest.mark.parametrize(("name", "limit"), [("sine_map", 5.0), ("range_only", 15.0)])
def test_from_nothing_to_the_first_result(capsys, name, limit):
    code = f"""
ys = np.asarray(systems.{name}.simulate(3, 100)[1])
start, spent = time.perf_counter(), time.process_time()
psd.run_filter(psd.learn(systems.{name}(), 1e-3, engine="nodes"), ys).mean.block_until_ready()
print(time.perf_counter() - start, time.process_time() - spent)
"""
    seconds, spent = run_alone(MEMORY + code)
    with capsys.disabled():
        print(f"\n{name}: learn and first filter {seconds:.1f} s ({spent:.1f} s of CPU)", end="")
    assert seconds < limit
