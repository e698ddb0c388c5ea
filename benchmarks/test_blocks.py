"""The filters of Gaussians next to their peers: Kalman filters, particles, a bank of extended ones.

`make bench` prints the tables. Figures of peers need them installed (`compare`); without, those
tests are skipped. Times are the best of several runs after compilation, errors are in standard
deviations of the posterior against the mean of several filters with 10^6 particles.
"""

import time
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import psdfilter as psd
from benchmarks.yardsticks import best_time

STEPS = 100
BEACONS = {
    "two beacons": np.array([[0.0, 0.0], [20.0, 0.0]]),
    "one beacon": np.array([[0.0, 0.0]]),
}
MEAN, SPREAD = np.array([10.0, 0.3, 15.0, -0.2]), np.diag([4.0, 0.1, 4.0, 0.1])
SD, SENSOR_SD = np.sqrt(0.05), 0.5
F = np.kron(np.eye(2), [[1.0, 1.0], [0.0, 1.0]])
Q = SD**2 * np.kron(np.eye(2), [[1 / 3, 1 / 2], [1 / 2, 1.0]])


def linear_problem(num=1000):
    rng = np.random.default_rng(0)
    turn = 0.95 * np.linalg.qr(rng.normal(size=(4, 4)))[0]
    H = rng.normal(size=(2, 4))
    return turn, 0.1 * np.eye(4), H, 0.5 * np.eye(2), rng.normal(size=(num, 2))


def test_order_of_the_prior_costs_less_than_as_many_filters():
    turn, noise, H, R, ys = linear_problem()
    rng = np.random.default_rng(1)
    anchors = rng.normal(size=(16, 4))
    roots = rng.normal(size=(16, 4, 4))
    priors = {
        "one Gaussian": None,
        "16 Gaussians": psd.GaussianBlocks.mixture(
            np.full(16, 1 / 16), anchors, roots @ np.swapaxes(roots, 1, 2)
        ),
        "PSD of order 16": psd.GaussianPSD(anchors, rng.normal(size=(16, 16)), np.ones(4)),
    }
    times = {}
    for name, prior in priors.items():
        given = (np.zeros(4), np.eye(4)) if prior is None else (None, None)
        model = psd.learn(psd.linear_gaussian(turn, noise, H, R, *given, prior=prior))
        times[name] = best_time(lambda model=model: psd.run_filter(model, ys, throw=False).mean)
        print(f"{name:<20} {1e6 * times[name] / len(ys):8.1f} us a step")
    for name in ("16 Gaussians", "PSD of order 16"):
        assert times[name] < 16 * times["one Gaussian"]


def test_one_gaussian_next_to_dynamax():
    pytest.importorskip("dynamax")
    from dynamax.linear_gaussian_ssm import LinearGaussianSSM, lgssm_filter

    turn, noise, H, R, ys = linear_problem()
    peer = LinearGaussianSSM(4, 2)
    parameters, _ = peer.initialize(
        jax.random.key(0),
        initial_mean=jnp.zeros(4),
        initial_covariance=jnp.eye(4),
        dynamics_weights=jnp.asarray(turn),
        dynamics_covariance=jnp.asarray(noise),
        emission_weights=jnp.asarray(H),
        emission_covariance=jnp.asarray(R),
    )
    filter_peer = jax.jit(lgssm_filter)
    seen = jnp.asarray(ys)
    theirs = best_time(lambda: filter_peer(parameters, seen).filtered_means, repeat=15)
    model = psd.learn(psd.linear_gaussian(turn, noise, H, R, np.zeros(4), np.eye(4)))
    ours = best_time(lambda: psd.run_filter(model, seen, throw=False).mean, repeat=15)
    print(f"dynamax {1e6 * theirs / len(ys):.1f} us, exact {1e6 * ours / len(ys):.1f} us a step")
    assert ours < 2 * theirs


@dataclass(frozen=True, eq=False)
class Track:
    """What was seen, and from where."""

    beacons: np.ndarray
    ys: np.ndarray

    def expected(self, x):
        gaps = jnp.stack([x[0] - self.beacons[:, 0], x[2] - self.beacons[:, 1]])
        return jnp.sqrt(jnp.sum(jnp.square(gaps), axis=0) + 1e-12)

    def log_observation(self, x, y):
        return jnp.sum(jax.scipy.stats.norm.logpdf(y, self.expected(x), SENSOR_SD))


@pytest.fixture(scope="module", params=BEACONS)
def track(request):
    beacons, rng = BEACONS[request.param], np.random.default_rng(1)
    x, ys = rng.multivariate_normal(MEAN, SPREAD), []
    for _ in range(STEPS):
        x = F @ x + rng.multivariate_normal(np.zeros(4), Q)
        distances = np.hypot(*(x[[0, 2]] - beacons).T)
        ys.append(distances + SENSOR_SD * rng.normal(size=len(beacons)))
    return Track(beacons, np.asarray(ys))


@pytest.fixture(scope="module")
def reference(track):
    """Mean and standard deviation of four filters with 10^6 particles each."""
    num = 1_000_000
    root, start_root = np.linalg.cholesky(Q), np.linalg.cholesky(SPREAD)

    @jax.jit
    def run(key):
        start_key, key = jax.random.split(key)
        x = MEAN + jax.random.normal(start_key, (num, 4)) @ start_root.T

        def step(x, at):
            y, step_key = at
            move_key, pick_key = jax.random.split(step_key)
            x = x @ F.T + jax.random.normal(move_key, (num, 4)) @ root.T
            w = jax.nn.softmax(jax.vmap(lambda p: track.log_observation(p, y))(x))
            mean = w @ x
            variance = w @ jnp.square(x - mean)
            levels = (jnp.arange(num) + jax.random.uniform(pick_key)) / num
            index = jnp.minimum(jnp.searchsorted(jnp.cumsum(w), levels), num - 1)
            return x[index], (mean, variance)

        keys = jax.random.split(key, STEPS)
        return jax.lax.scan(step, x, (jnp.asarray(track.ys), keys))[1]

    runs = [run(jax.random.key(seed)) for seed in range(4)]
    means, variances = (np.stack([np.asarray(r[k]) for r in runs]) for k in range(2))
    return means.mean(0), np.sqrt(variances.mean(0))


def error_of(mean, reference):
    return float(np.sqrt(np.mean(np.square((np.asarray(mean) - reference[0]) / reference[1]))))


def extended_bank(track, num):
    """A plain Gaussian-sum filter: extended Kalman filters that are weighted, never split."""
    rng = np.random.default_rng(0)
    starts = MEAN + rng.normal(size=(num, 4)) @ np.linalg.cholesky(0.75 * SPREAD).T
    slope = jax.jacfwd(track.expected)
    R = SENSOR_SD**2 * jnp.eye(len(track.beacons))

    def update(log_w, m, P, y):
        m, P = F @ m, F @ P @ F.T + Q
        H, e = slope(m), y - track.expected(m)
        S = H @ P @ H.T + R
        K = jnp.linalg.solve(S, H @ P).T
        log_z = -0.5 * (e @ jnp.linalg.solve(S, e) + jnp.linalg.slogdet(2 * jnp.pi * S)[1])
        return log_w + log_z, m + K @ e, P - K @ S @ K.T

    @jax.jit
    def run(ys):
        def step(carry, y):
            log_w, m, P = jax.vmap(update, (0, 0, 0, None))(*carry, y)
            log_w = log_w - jax.nn.logsumexp(log_w)
            return (log_w, m, P), jnp.exp(log_w) @ m

        covariances = jnp.broadcast_to(jnp.asarray(0.25 * SPREAD), (num, 4, 4))
        first = (jnp.full(num, -jnp.log(num)), jnp.asarray(starts), covariances)
        return jax.lax.scan(step, first, ys)[1]

    return lambda: run(jnp.asarray(track.ys))


def particle_filter(track, num):
    """`particles`, bootstrap with systematic resampling: means and seconds."""
    import particles
    from particles import distributions as dists
    from particles import state_space_models as ssms
    from particles.collectors import Moments

    class Target(ssms.StateSpaceModel):
        def PX0(self):
            return dists.MvNormal(loc=F @ MEAN, cov=F @ SPREAD @ F.T + Q)

        def PX(self, t, xp):
            return dists.MvNormal(loc=xp @ F.T, cov=Q)

        def PY(self, t, xp, x):
            ranges = [np.hypot(x[:, 0] - b[0], x[:, 2] - b[1]) for b in track.beacons]
            return dists.IndepProd(*(dists.Normal(loc=r, scale=SENSOR_SD) for r in ranges))

    bootstrap = ssms.Bootstrap(ssm=Target(), data=list(track.ys[:, None, :]))
    smc = particles.SMC(fk=bootstrap, N=num, resampling="systematic", collect=[Moments()])
    start = time.perf_counter()
    smc.run()
    seconds = time.perf_counter() - start
    return np.stack([m["mean"] for m in smc.summaries.moments]), seconds


def test_ranges_next_to_particles(track, reference):
    pytest.importorskip("particles")
    np.random.seed(0)  # noqa: NPY002  (particles draws from the global generator)
    rows = []
    ours = {}
    ssm = psd.linear_gaussian(F, Q, None, None, MEAN, SPREAD, log_observation=track.log_observation)
    for order in (8, 16, 32, 48, 64):
        model = psd.learn(ssm, engine=psd.engines.Mixture(order=order))
        post = psd.run_filter(model, track.ys)
        seconds = best_time(lambda m=model: psd.run_filter(m, track.ys, throw=False).mean, repeat=3)
        ours[order] = error_of(post.mean, reference), seconds
        rows.append((f"mixture, {order} Gaussians", *ours[order]))
    for num in (32, 128):
        bank = extended_bank(track, num)
        rows.append((f"Gaussian-sum, {num} EKF", error_of(bank(), reference), best_time(bank)))
    peers = {}
    for num in (10_000, 100_000, 1_000_000):
        runs = [particle_filter(track, num) for _ in range(1 if num > 500_000 else 3)]
        error = float(np.sqrt(np.mean([error_of(m, reference) ** 2 for m, _ in runs])))
        peers[num] = error, min(s for _, s in runs)
        rows.append((f"particles, N = {num}", *peers[num]))
    print(f"\nbeacons: {len(track.beacons)}")
    for name, error, seconds in rows:
        print(f"{name:<26} error {error:.4f} sd   {1e3 * seconds / STEPS:8.2f} ms a step")
    for num, factor in ((100_000, 4), (1_000_000, 10)):
        error, seconds = peers[num]
        fast = [s for e, s in ours.values() if e <= error]
        assert fast, f"no order reaches the error {error:.4f} of {num} particles"
        print(f"error of {num} particles: {seconds / min(fast):.1f} times as fast")
        assert seconds / min(fast) > factor
