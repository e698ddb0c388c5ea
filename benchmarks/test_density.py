"""Speed and memory of the calculus of densities; `make bench` runs it and prints the figures.

Times are the best of several runs after compilation, ratios are against a bare piece of the work
measured next to it, so that they mean the same on a faster machine.
"""

import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.special import erf

import psdfilter as psd
from benchmarks.yardsticks import best_time

MEMORY_PROGRAMME = """
import resource, jax
jax.config.update("jax_enable_x64", True)
import numpy as np, psdfilter as psd
rng = np.random.default_rng(0)
Q = psd.GaussianPSD(rng.uniform(-1, 1, (120, 2)), rng.normal(size=(120, {rank})), [20.0, 30.0])
f = psd.GaussianPSD(rng.uniform(-1, 1, (120, 1)), rng.normal(size=(120, {rank})), 20.0)
box = psd.Box(-1.0, 1.0)
if {gradient}:
    def value(eta):
        g = psd.GaussianPSD(f.anchors, f.factor, eta)
        return psd.integral(psd.transition(Q, g, box), box)
    jax.block_until_ready(jax.jit(jax.grad(value))(f.precision))
else:
    jax.block_until_ready(psd.transition(Q, f, box))
# The peak of this program alone: ru_maxrss also remembers the process that it was forked from.
try:
    lines = open("/proc/self/status").read().splitlines()
    print(next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")))
except FileNotFoundError:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def scattered(order, dim, rank=1, seed=0):
    rng = np.random.default_rng(seed)
    anchors = rng.uniform(-1.0, 1.0, (order, dim))
    return psd.GaussianPSD(anchors, rng.normal(size=(order, rank)), np.full(dim, 20.0))


def gridded(side, dim, rank=1, seed=0):
    rng = np.random.default_rng(seed)
    grid = psd.densities.TensorGrid([np.linspace(-1.0, 1.0, side)] * dim)
    return psd.GaussianPSD(grid, rng.normal(size=(side**dim, rank)), np.full(dim, 20.0))


def components(order, dim, seed=0):
    rng = np.random.default_rng(seed)
    roots = rng.normal(size=(order, dim, dim))
    precision = roots @ np.swapaxes(roots, 1, 2) + 5 * np.eye(dim)
    centers = rng.uniform(-1.0, 1.0, (order, dim))
    return psd.GeneralizedGaussianPSD.from_centers(centers, rng.normal(size=order), precision)


def unit_box(dim):
    return psd.Box([-1.0] * dim, [1.0] * dim)


def test_evaluation_against_a_bare_exponential(capsys):
    f, rng = scattered(500, 2), np.random.default_rng(1)
    x = jnp.asarray(rng.uniform(-1.0, 1.0, (100_000, 2)))
    exponents = jnp.asarray(-rng.uniform(0.0, 30.0, (100_000, 500)))
    bare = best_time(jax.jit(jnp.exp), exponents, repeat=5)
    ours = best_time(f, x, repeat=5)
    with capsys.disabled():
        print(f"\nevaluation, order 500, 1e5 points, d = 2: {ours:.3f} s, ", end="")
        print(f"{ours / bare:.2f} of a bare exp over 5e7 entries ({bare:.3f} s); bar 3")
    assert ours <= 3 * bare


def test_box_integral_against_its_gram_matrix(capsys):
    f, box = scattered(1000, 2), unit_box(2)

    @jax.jit
    def erf_gram(x, eta, lower, upper):
        middle, delta = 0.5 * (x[:, None] + x[None]), x[:, None] - x[None]
        root = jnp.sqrt(2 * eta)
        masses = erf(root * (upper - middle)) - erf(root * (lower - middle))
        masses = jnp.prod(0.5 * jnp.sqrt(jnp.pi) / root * masses, axis=-1)
        return jnp.exp(-0.5 * jnp.sum(eta * delta**2, axis=-1)) * masses

    bare = best_time(erf_gram, f.anchors, f.precision, box.lower, box.upper)
    ours = best_time(psd.integral, f, box)
    with capsys.disabled():
        print(f"\nbox integral, order 1000, d = 2: {1e3 * ours:.1f} ms, ", end="")
        print(f"{ours / bare:.2f} of its erf Gram matrix ({1e3 * bare:.1f} ms); bar 2")
    assert ours <= 2 * bare


@pytest.mark.parametrize("gradient", [False, True], ids=["value", "gradient"])
def test_memory_of_the_generic_transition(capsys, gradient):
    program = MEMORY_PROGRAMME.format(rank=1, gradient=gradient)
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    peak = float(run.stdout.strip())
    with capsys.disabled():
        what = "its gradient" if gradient else "the transition"
        print(f"\npeak memory of {what}, order 120 x 120, scattered: {peak:.0f} MiB; bar 1024")
    assert peak < 1024


# Name: how to build the call at a size, the sizes, and the exponent of the cost table for it.
GROWTH = {
    "evaluation": (
        lambda n: (lambda f: f(jnp.zeros((1024, 2))), scattered(n, 2)),
        (125, 250, 500, 1000),
        1,
    ),
    "integral, box": (
        lambda n: (lambda f: psd.integral(f, unit_box(2)), scattered(n, 2)),
        (400, 800, 1600, 3200),
        2,
    ),
    "marginal, box, factor form": (
        lambda n: (lambda f: psd.marginal(f, 0, unit_box(2)), scattered(n, 2)),
        (50, 100, 200, 400),
        3,  # the m^2 d of the table for the matrix, and m^3 for its root
    ),
    "partial": (
        lambda n: (lambda f: psd.partial(f, 0, 0.1), scattered(n, 2, rank=n)),
        (200, 400, 800, 1600),
        2,
    ),
    "product, in the number of anchors": (
        lambda n: (lambda f: psd.product(f, f), scattered(n, 2)),
        (100, 200, 400, 800),
        2,
    ),
    "transition": (
        lambda n: (
            lambda q: psd.transition(q, scattered(60, 1, seed=1), unit_box(1)),
            scattered(n, 2),
        ),
        (40, 80, 160, 320),
        2,
    ),
    "transition, in the order of f": (
        lambda n: (lambda f: psd.transition(scattered(60, 2), f, unit_box(1)), scattered(n, 1)),
        (40, 80, 160, 320),
        2,
    ),
    "structured transition, side of the grid": (
        lambda n: (
            lambda q: psd.transition(q, scattered(10, 1, seed=1), unit_box(1)),
            gridded(n, 2),
        ),
        (50, 100, 200, 400),
        3,
    ),
    "generalised integral": (
        lambda n: (psd.integral, components(n, 3)),
        (25, 50, 100, 200),
        2,
    ),
    "generalised marginal": (
        lambda n: (lambda f: psd.marginal(f, 0), components(n, 3)),
        (25, 50, 100, 200),
        2,
    ),
    "generalised partial": (
        lambda n: (lambda f: psd.partial(f, 0, 0.1), components(n, 3)),
        (500, 2000, 8000, 32000),
        1,  # components stay components: no pairs are formed, better than the table's m^2
    ),
    "generalised product, in the order of each": (
        lambda n: (lambda f: psd.product(f, f), components(n, 3)),
        (25, 50, 100, 200),
        2,  # again components, not the pairs of the table
    ),
}


def growth_exponent(sizes, times):
    """Slope of log time over log size without the smallest, where the constant still shows."""
    return float(np.polyfit(np.log(sizes[1:]), np.log(times[1:]), 1)[0])


@pytest.mark.parametrize("name", GROWTH)
def test_growth_of_each_operation(capsys, name):
    build, sizes, expected = GROWTH[name]
    times = []
    for n in sizes:
        call, argument = build(n)
        times.append(best_time(call, argument, repeat=10 if not times or times[-1] < 0.1 else 4))
    exponent = growth_exponent(sizes, times)
    with capsys.disabled():
        listed = ", ".join(f"{n}: {1e3 * t:.2f}" for n, t in zip(sizes, times, strict=True))
        print(f"\n{name}: exponent {exponent:.2f}, table {expected}; ms at {listed}")
    # Caches, threads and fresh memory bend the lines; a wrong power of the size would add one.
    assert exponent <= expected + 0.75
