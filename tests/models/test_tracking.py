"""Targets and robots, against a textbook Kalman filter, integrated arcs and particle filters."""

import jax.numpy as jnp
import numpy as np
import pytest
from models.particles_oracle import bootstrap
from scipy import stats

import psdfilter as psd

# Mixtures of Gaussians say by themselves what they miss; here it is measured.
MISSES = pytest.mark.filterwarnings("ignore::psdfilter.ResolutionWarning")

RNG = np.random.default_rng(3)
TIMES = np.array([0.0, 0.7, 1.1, 2.0, 2.4, 3.9, 4.2, 5.0, 5.5, 6.7])
STATION, ACCEL = np.array([1.0, -2.0]), 0.4
M0, P0 = (10.0, 1.0, 8.0, -0.5), (1.0, 0.25, 1.0, 0.25)


def velocity(dt, sd=ACCEL):
    F = np.kron(np.eye(2), [[1.0, dt], [0.0, 1.0]])
    Q = sd**2 * np.kron(np.eye(2), [[dt**3 / 3, dt**2 / 2], [dt**2 / 2, dt]])
    return F, Q


def track(seed=0):
    rng, x, out = np.random.default_rng(seed), np.array(M0), []
    for dt in np.diff(TIMES, prepend=TIMES[0]):
        F, Q = velocity(dt)
        x = F @ x + (rng.multivariate_normal(np.zeros(4), Q) if dt else 0.0)
        out.append(x)
    return np.array(out)


def seen(x):
    gap = x[..., [0, 2]] - STATION
    far = np.linalg.norm(gap, axis=-1)
    rate = (gap * x[..., [1, 3]]).sum(-1) / far
    return np.stack([far, np.arctan2(gap[..., 1], gap[..., 0]), rate], axis=-1)


def kalman(ys, sd):
    H = np.eye(4)[[0, 2]]
    m, P, ll = np.array(M0), np.diag(P0), 0.0
    for y, dt in zip(ys, np.diff(TIMES, prepend=TIMES[0]), strict=True):
        F, Q = velocity(dt)
        m, P = F @ m, F @ P @ F.T + Q
        if not np.isnan(y).any():
            S = H @ P @ H.T + sd**2 * np.eye(2)
            ll += stats.multivariate_normal(H @ m, S).logpdf(y)
            K = P @ H.T @ np.linalg.inv(S)
            m, P = m + K @ (y - H @ m), P - K @ S @ K.T
    return m, P, ll


def positions():
    ys = track()[:, [0, 2]] + 0.3 * RNG.normal(size=(len(TIMES), 2))
    ys[4] = np.nan
    return ys


@pytest.mark.long
def test_positions_of_constant_velocity_are_a_kalman_filter():
    ys = positions()
    family = psd.models.ConstantVelocity(m0=M0, P0=P0)
    post = family.filter(ys, times=TIMES, sigma_accel=ACCEL, sigma_position=0.3)
    m, P, ll = kalman(ys, 0.3)
    assert post.model.engine == "exact"
    assert float(post.log_likelihood) == pytest.approx(ll, abs=1e-9)
    np.testing.assert_allclose(post.mean[-1], m, atol=1e-9)
    np.testing.assert_allclose(post.covariance[-1], P, atol=1e-9)


@pytest.mark.slow
def test_a_turn_of_rate_zero_is_constant_velocity():
    ys = positions()
    family = psd.models.CoordinatedTurn(m0=(*M0, 0.0), P0=(*P0, 1e-12))
    theta = {"sigma_accel": ACCEL, "sigma_turn": 1e-7, "sigma_position": 0.3}
    post = family.filter(ys, times=TIMES, **theta)
    m, P, ll = kalman(ys, 0.3)
    assert float(post.log_likelihood) == pytest.approx(ll, abs=1e-5)
    np.testing.assert_allclose(post.mean[-1, :4], m, atol=1e-5)
    np.testing.assert_allclose(post.covariance[-1, :4, :4], P, atol=1e-5)


@pytest.mark.slow
def test_arcs_are_those_of_small_straight_steps():
    turn = psd.models.CoordinatedTurn(m0=(0.0,) * 5, P0=(1.0,) * 5)
    robot = psd.models.PlanarRobot([(1.0, 2.0)])
    x = np.array([1.0, 2.0, -1.0, 0.5, 0.7])
    theta = {"sigma_accel": 1.0, "sigma_turn": 0.1, "sigma_position": 1.0}
    move = turn.build(theta).structure.f
    z, theta = np.array([1.0, -1.0, 0.3]), robot.start(np.zeros((1, 2)))
    steer = robot.build(theta).structure.f
    for rate in (0.7, 0.0, 1e-6):
        x[4], dt, num = rate, 0.8, 4000
        v, place = np.array([x[1], x[3]]), np.array([x[0], x[2]])
        pose = z.copy()
        h = dt / num
        for _ in range(num):
            place = place + h * (v + h / 2 * rate * np.array([-v[1], v[0]]))
            c, s = np.cos(rate * h), np.sin(rate * h)
            v = np.array([[c, -s], [s, c]]) @ v
            middle = pose[2] + rate * h / 2
            pose = pose + h * np.array([1.3 * np.cos(middle), 1.3 * np.sin(middle), rate])
        got = np.asarray(move(jnp.asarray(x), dt=dt))
        np.testing.assert_allclose(got[[0, 2, 1, 3]], [*place, *v], atol=1e-6)
        got = steer(jnp.asarray(z), inputs=jnp.array([1.3, rate]), dt=dt)
        np.testing.assert_allclose(got, pose, atol=1e-6)


def check(post, oracle, sds, share=0.1):
    """Means within six standard errors and a share of a posterior deviation, likelihoods too."""
    mean, error, ll, ll_error = oracle
    gaps = np.abs(np.asarray(post.mean) - mean)
    assert np.all(gaps <= 6 * error + share * sds)
    assert float(post.log_likelihood) == pytest.approx(ll, abs=6 * ll_error + 0.1)


def deviations(post):
    return np.sqrt(np.diagonal(np.asarray(post.covariance), axis1=1, axis2=2))


@MISSES
@pytest.mark.slow
@pytest.mark.parametrize("clutter", [False, True])
def test_range_bearing_and_doppler_with_clutter_are_those_of_particles(clutter):
    sds, x = np.array([0.2, 0.03, 0.1]), track(1)
    ys = seen(x) + sds * RNG.normal(size=(len(TIMES), 3))
    ys[3] = np.nan
    if clutter:
        ys[6] = [3.0, -2.0, 2.0]
    sensor, names = "range_bearing_doppler", ("sigma_range", "sigma_bearing", "sigma_doppler")
    if clutter:
        sensor, names, ys, sds = "range_bearing", names[:2], ys[:, :2], sds[:2]
    family = psd.models.ConstantVelocity(sensor, clutter=clutter, station=STATION, m0=M0, P0=P0)
    theta = {"sigma_accel": ACCEL, **dict(zip(names, sds, strict=True))}
    if clutter:
        theta["clutter"] = 0.1
    fitted = family.at(ys, times=TIMES, **theta)
    post = fitted.filter()
    volume = 2 * np.pi * 1.5 * np.ptp(ys[~np.isnan(ys[:, 0]), 0])

    def density(y):
        def log_g(x):
            gap = y - seen(x)[:, : len(y)]
            gap[:, 1] = (gap[:, 1] + np.pi) % (2 * np.pi) - np.pi
            logs = stats.norm.logpdf(gap, scale=sds).sum(1)
            return np.logaddexp(np.log(0.9) + logs, np.log(0.1 / volume)) if clutter else logs

        return None if np.isnan(y).any() else log_g

    def move(dt):
        F, Q = velocity(dt)
        root = np.linalg.cholesky(Q + 1e-15 * np.eye(4))
        return lambda rng, x: x @ F.T + rng.normal(size=x.shape) @ root.T

    moves = [None] + [move(dt) for dt in np.diff(TIMES)]
    oracle = bootstrap(
        lambda rng, n: M0 + np.sqrt(P0) * rng.normal(size=(n, 4)), moves,
        [density(y) for y in ys],
    )  # fmt: skip
    check(post, oracle, deviations(post))
    ahead = fitted.forecast(2, times=[7.0, 8.0])
    F, Q = velocity(7.0 - TIMES[-1])
    np.testing.assert_allclose(ahead.mean[0], F @ np.asarray(post.mean[-1]), atol=1e-6)
    np.testing.assert_allclose(
        ahead.covariance[0], F @ np.asarray(post.covariance[-1]) @ F.T + Q, rtol=1e-3, atol=1e-6
    )


@MISSES
@pytest.mark.slow
def test_a_turn_that_is_felt_is_that_of_particles():
    """Half a circle at a rate that is not known, against 10^6 particles in five dimensions."""
    first, spread = np.array([10.0, 0.0, 5.0, 2.0, 0.5]), np.array([0.25, 0.09, 0.25, 0.09, 0.04])
    sds, accel, turn = np.array([0.3, 0.03]), 0.2, 0.05

    def move(dt):
        # The exact arc: the velocity is a complex number that turns, its integral the place.
        root = np.linalg.cholesky(velocity(dt, accel)[1])

        def moved(rng, x):
            v, rate = x[:, 1] + 1j * x[:, 3], x[:, 4]
            place = x[:, 0] + 1j * x[:, 2] + v * np.expm1(1j * rate * dt) / (1j * rate)
            v = v * np.exp(1j * rate * dt)
            flat = np.stack([place.real, v.real, place.imag, v.imag], axis=1)
            flat = flat + rng.normal(size=flat.shape) @ root.T
            return np.column_stack([flat, rate + turn * np.sqrt(dt) * rng.normal(size=len(x))])

        return moved

    rng, x, ys = np.random.default_rng(9), first[None], []
    for dt in np.diff(TIMES, prepend=0.0):
        x = move(dt)(rng, x) if dt else x
        ys.append(seen(x)[0, :2] + sds * rng.normal(size=2))
    ys = np.array(ys)
    family = psd.models.CoordinatedTurn("range_bearing", station=STATION, m0=first, P0=spread)
    theta = {"sigma_accel": accel, "sigma_turn": turn, "sigma_range": 0.3, "sigma_bearing": 0.03}
    post = family.filter(ys, times=TIMES, **theta)

    def density(y):
        return lambda x: stats.norm.logpdf(y - seen(x[:, :4])[:, :2], scale=sds).sum(1)

    oracle = bootstrap(
        lambda rng, n: first + np.sqrt(spread) * rng.normal(size=(n, 5)),
        [None] + [move(dt) for dt in np.diff(TIMES)],
        [density(y) for y in ys],
        num=1_000_000,
    )
    check(post, oracle, deviations(post))
    assert deviations(post)[-1, 4] < 0.5 * np.sqrt(spread[4])  # the rate has been learned


@MISSES
@pytest.mark.slow
def test_a_robot_with_landmarks_is_that_of_particles():
    marks = np.array([[4.0, 4.0], [-3.0, 6.0], [0.0, -5.0]])
    num = 12
    controls = np.stack([np.full(num, 1.0), np.full(num, 0.35)], axis=1)
    sds = {"sigma_position": 0.1, "sigma_heading": 0.08, "sigma_range": 0.3, "sigma_bearing": 0.1}
    noise = np.array([0.1, 0.1, 0.08])

    def step(x, v, w):
        # The chord of an arc: half of its turn before and after.
        chord, middle = v * np.sin(w / 2) / (w / 2), x[:, 2] + w / 2
        return x + np.stack([chord * np.cos(middle), chord * np.sin(middle), 0 * middle + w], 1)

    def see(x):
        gap = marks[None] - x[:, None, :2]
        bearing = np.arctan2(gap[..., 1], gap[..., 0]) - x[:, 2:]
        return np.stack([np.linalg.norm(gap, axis=-1), bearing], -1).reshape(len(x), -1)

    rng, x, ys = np.random.default_rng(5), np.array([[0.0, 0.0, 2.9]]), []
    scale = np.tile([0.3, 0.1], 3)
    for v, w in controls:
        x = step(x, v, w) + noise * rng.normal(size=(1, 3))
        y = see(x)[0] + scale * rng.normal(size=6)
        y[1::2] = (y[1::2] + np.pi) % (2 * np.pi) - np.pi  # headings pass half a turn
        ys.append(np.where(np.repeat(rng.random(3) < 0.3, 2), np.nan, y))
    robot = psd.models.PlanarRobot(marks, m0=(0.0, 0.0, 2.9), P0=(0.25, 0.25, 0.04))
    fitted = robot.at(np.array(ys), inputs=controls, **sds)
    post = fitted.filter()

    def density(y):
        def log_g(x):
            gap = np.where(np.isnan(y), 0.0, y) - see(x)
            gap[:, 1::2] = (gap[:, 1::2] + np.pi) % (2 * np.pi) - np.pi
            return stats.norm.logpdf(gap, scale=scale)[:, ~np.isnan(y)].sum(1)

        return log_g

    oracle = bootstrap(
        lambda rng, n: [0.0, 0.0, 2.9] + np.array([0.5, 0.5, 0.2]) * rng.normal(size=(n, 3)),
        [lambda r, x, c=c: step(x, *c) + noise * r.normal(size=x.shape) for c in controls],
        [density(y) for y in ys],
    )
    check(post, oracle, deviations(post))
    ahead = fitted.forecast(1, inputs=controls[:1])
    assert ahead.observations.mean.shape == (1, 6)
    assert np.all(deviations(fitted.smooth())[:-1] < deviations(post)[:-1] + 0.02)


@pytest.mark.slow
def test_an_epidemic_is_that_of_particles():
    ys = np.array([3.0, 6.0, 5.0, np.nan, 14.0, 22.0, 25.0, 44.0, 60.0, 71.0])
    theta = {"beta": 0.45, "gamma": 0.12, "sigma": 0.2, "rho": 0.3}
    fitted = psd.models.SIR(population=5000.0).at(ys, **theta)
    post = fitted.filter()

    def move(rng, x):
        s, i = np.exp(x.T)
        new = np.stack(
            [np.log(s) - 0.45 * i, np.log(i * np.exp(-0.12) + s - s * np.exp(-0.45 * i))]
        )
        return new.T + np.array([0.02, 0.2]) * rng.normal(size=x.shape)

    def density(y):
        return None if np.isnan(y) else lambda x: stats.poisson.logpmf(y, 1500 * np.exp(x[:, 1]))

    first = np.log([0.95, 4 / 1500])
    oracle = bootstrap(
        lambda rng, n: first + np.array([0.05, 1.0]) * rng.normal(size=(n, 2)),
        [None] + [move] * (len(ys) - 1),
        [density(y) for y in ys],
    )
    check(post, oracle, deviations(post), share=0.03)
    low, high = fitted.forecast(1).observations.interval(0.9)
    assert 30 < float(low[0, 0]) < 100 < float(high[0, 0]) < 250
    with pytest.raises(ValueError, match="population must be positive"):
        psd.models.SIR(population=0.0)


@MISSES
@pytest.mark.slow
def test_parameters_of_a_track_are_found():
    rng = np.random.default_rng(8)
    times = np.cumsum(rng.exponential(0.5, size=150))
    x, ys = np.array(M0), []
    for dt in np.diff(times, prepend=times[0]):
        F, Q = velocity(dt)
        x = F @ x + (rng.multivariate_normal(np.zeros(4), Q) if dt else 0.0)
        ys.append(x[[0, 2]] + 0.3 * rng.normal(size=2))
    fitted = psd.models.ConstantVelocity().fit(np.array(ys), times=times)
    assert float(fitted.theta["sigma_position"]) == pytest.approx(0.3, rel=0.2)
    assert float(fitted.theta["sigma_accel"]) == pytest.approx(ACCEL, rel=0.4)
    assert "sigma_accel" in fitted.summary()


def test_what_is_wrong_with_a_target_is_named():
    with pytest.raises(ValueError, match="sensor must be one of"):
        psd.models.ConstantVelocity("sonar")
    with pytest.raises(ValueError, match="depends on four coordinates"):
        psd.models.ConstantVelocity("range_bearing_doppler", clutter=True)
    with pytest.raises(ValueError, match=r"m0 must have 5 numbers"):
        psd.models.CoordinatedTurn(m0=M0, P0=P0)
    with pytest.raises(ValueError, match="m0 and P0 must be given both"):
        psd.models.ConstantVelocity(m0=M0)
    with pytest.raises(ValueError, match='m0 and P0 must be given for sensor "bearing"'):
        psd.models.ConstantVelocity("bearing").filter(np.zeros(4))
    with pytest.raises(ValueError, match="y must have 2 columns"):
        psd.models.ConstantVelocity("range_bearing").filter(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="y must have 4 columns, range and bearing of each of 2"):
        psd.models.PlanarRobot([(0, 1), (1, 1)]).at(np.zeros((3, 2)), inputs=np.zeros((3, 2)))
