"""A registry of one-dimensional models, and a dense reference in NumPy that shares no code."""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy import special, stats

import psdfilter as psd

REGISTRY: dict[str, Any] = {}


@dataclass
class Case:
    """A model for the engine, and the same written in NumPy for the reference.

    log_q(u, x, t), log_g(x, y, t) broadcast; `box` is where the reference integrates.
    """

    ssm: Any
    log_p: Any
    log_q: Any
    log_g: Any
    ys: np.ndarray
    box: tuple[float, float]
    num: int = 3000
    varies: bool = False
    f_q: Any = None
    cdf_q: Any = None  # cdf of the noise and map f, where Q jumps: cells get exact masses


def register(fn):
    REGISTRY[fn.__name__] = fn
    return fn


def normal(r, s):
    return -0.5 * (r / s) ** 2 - np.log(s) - 0.5 * np.log(2 * np.pi)


def jnormal(r, s):
    return -0.5 * (r / s) ** 2 - jnp.log(s) - 0.5 * np.log(2 * np.pi)


def dense(case: Case):
    """Densities (T, n) on midpoints, log Z (T,), grid and spacing."""
    lo, hi = case.box
    n = case.num
    h = (hi - lo) / n
    x = lo + h * (np.arange(n) + 0.5)
    with np.errstate(all="ignore"):
        p = np.exp(case.log_p(x))
        p /= p.sum() * h
        table = None if case.varies else np.exp(case.log_q(x[:, None], x[None, :], 1))
        if case.cdf_q is not None:
            edges = lo + h * np.arange(n + 1)
            table = np.diff(case.cdf_q(edges[None, :] - case.f_q(x)[:, None]), axis=1) / h
        out, logz = [], []
        for t, y in enumerate(case.ys, start=1):
            q = np.exp(case.log_q(x[:, None], x[None, :], t)) if case.varies else table
            pred = (p * h) @ q
            if np.isnan(y).all():
                p = pred / (pred.sum() * h)
                logz.append(0.0)
            else:
                g = case.log_g(x, y[0], t)
                with np.errstate(divide="ignore"):
                    logs = np.log(pred) + g
                top = logs.max()
                f = np.exp(logs - top)
                z = f.sum() * h
                p = f / z
                logz.append(np.log(z) + top)
            out.append(p)
    return np.array(out), np.array(logz), x, h


def _case(log_p, log_q, log_g, ys, box, jp, jq, jg, **kw):
    ssm = psd.StateSpaceModel(jp, jq, jg, state_box=psd.Box([box[0]], [box[1]]))
    return Case(ssm, log_p, log_q, log_g, np.asarray(ys, float).reshape(-1, 1), box, **kw)


def _both(mean_q, noise, log_g, jlog_g, ys, box, prior=(0.0, 1.0), **kw):
    """Transition noise(x - f(u)) with `noise(xp, r)` written once for both modules."""
    m, s = prior
    return _case(
        lambda x: normal(x - m, s),
        lambda u, x, t: noise(np, x - mean_q(np, u)),
        lambda x, y, t: log_g(np, x, y),
        ys,
        box,
        lambda x: jnormal(x[0] - m, s),
        lambda u, x: noise(jnp, x[0] - mean_q(jnp, u[0])),
        lambda x, y: jlog_g(jnp, x[0], y[0]) if jlog_g else log_g(jnp, x[0], y[0]),
        **kw,
    )


def _ng(s):
    return lambda xp, r: -0.5 * (r / s) ** 2 - np.log(s) - 0.5 * np.log(2 * np.pi)


def _gs(s, h=lambda xp, x: x):
    return lambda xp, x, y: -0.5 * ((y - h(xp, x)) / s) ** 2 - np.log(s) - 0.5 * np.log(2 * np.pi)


def _sim(T, seed, f, draw, h, s, x0=0.0):
    rng = np.random.default_rng(seed)
    x, ys = x0, []
    for _ in range(T):
        x = f(np, x) + draw(rng)
        ys.append(h(np, x) + s * rng.standard_normal())
    return np.array(ys)


@register
def volatility_slow():
    T = 300
    rng = np.random.default_rng(1)
    x, ys = 0.0, []
    for _ in range(T):
        x = 0.998 * x + 0.05 * rng.standard_normal()
        ys.append(np.exp(x / 2) * rng.standard_normal())

    def g(xp, x, y):
        return -0.5 * y**2 * xp.exp(-x) - 0.5 * x - 0.5 * np.log(2 * np.pi)

    return _both(lambda xp, u: 0.998 * u, _ng(0.05), g, None, ys, (-6, 6), prior=(0, 0.79))


def _outlier(k):
    def build():
        f = lambda xp, u: 0.9 * u  # noqa: E731
        ys = _sim(50, 2, f, lambda r: 0.5 * r.standard_normal(), lambda xp, x: x, 0.5)
        ys[20] += k * 0.9
        ys[35] -= k * 0.9
        return _both(f, _ng(0.5), _gs(0.5), None, ys, (-60, 60), num=6000)

    return build


for _k in (6, 10, 50):
    REGISTRY[f"outlier_{_k}"] = _outlier(_k)


@register
def poisson_growth():
    rng = np.random.default_rng(3)
    x, ys = 1.0, []
    for _ in range(60):
        x = x + 0.05 + 0.1 * rng.standard_normal()
        ys.append(float(rng.poisson(np.exp(x))))

    def gn(xp, x, y):
        return y * x - np.exp(x) - special.gammaln(y + 1)

    def gj(xp, x, y):
        from jax.scipy.special import gammaln

        return y * x - jnp.exp(x) - gammaln(y + 1)

    return _both(lambda xp, u: u + 0.05, _ng(0.1), gn, gj, ys, (-6, 12), prior=(1, 0.5), num=4000)


@register
def cubic_walk():
    f = lambda xp, u: u  # noqa: E731
    h = lambda xp, x: x**3  # noqa: E731
    ys = _sim(60, 4, f, lambda r: 0.3 * r.standard_normal(), h, 0.5)
    return _both(f, _ng(0.3), _gs(0.5, h), None, ys, (-9, 9))


def _noise_case(name, noise, draw, box=(-15, 15), num=4000, s=0.5, cdf=None):
    def build():
        f = lambda xp, u: 0.8 * u  # noqa: E731
        ys = _sim(50, 5, f, draw, lambda xp, x: x, s)
        more = {} if cdf is None else {"cdf_q": cdf, "f_q": lambda u: 0.8 * u}
        return _both(f, noise, _gs(s), None, ys, box, num=num, **more)

    REGISTRY[name] = build


_noise_case(
    "student3",
    lambda xp, r: (
        -2 * xp.log(1 + (r / 0.4) ** 2 / 3)
        - np.log(0.4)
        + float(special.gammaln(2) - special.gammaln(1.5) - 0.5 * np.log(3 * np.pi))
    ),
    lambda r: 0.4 * r.standard_t(3),
    box=(-40, 40),
    num=6000,
)
_noise_case(
    "cauchy",
    lambda xp, r: -xp.log(1 + (r / 0.3) ** 2) - np.log(np.pi * 0.3),
    lambda r: 0.3 * np.clip(r.standard_cauchy(), -60, 60),
    box=(-60, 60),
    num=6000,
)
_noise_case(
    "laplace",
    lambda xp, r: -xp.abs(r) / 0.4 - np.log(0.8),
    lambda r: r.laplace(0, 0.4),
    box=(-12, 12),
    num=6000,
)
_noise_case(
    "exponential",
    lambda xp, r: xp.where(r >= 0, -r / 0.5 - np.log(0.5), -np.inf),
    lambda r: r.exponential(0.5),
    box=(-8, 15),
    num=6000,
    cdf=lambda r: np.where(r > 0, -np.expm1(-np.maximum(r, 0) / 0.5), 0.0),
)
_noise_case(
    "uniform",
    lambda xp, r: xp.where(xp.abs(r) <= 0.7, -np.log(1.4) + 0 * r, -np.inf),
    lambda r: r.uniform(-0.7, 0.7),
    box=(-8, 8),
    num=6000,
    cdf=lambda r: np.clip((r + 0.7) / 1.4, 0.0, 1.0),
)
_noise_case(
    "skew_normal",
    lambda xp, r: (
        np.log(2)
        + _ng(0.6)(xp, r)
        + (stats.norm.logcdf(4 * r / 0.6) if xp is np else _jlogcdf(4 * r / 0.6))
    ),
    lambda r: stats.skewnorm.rvs(4, scale=0.6, random_state=r),
    box=(-12, 12),
)
_noise_case(
    "two_humped",
    lambda xp, r: xp.logaddexp(_ng(0.1)(xp, r - 1.0), _ng(0.1)(xp, r + 1.0)) - np.log(2.0),
    lambda r: r.choice([-1, 1]) + 0.1 * r.standard_normal(),
    box=(-12, 12),
)


def _jlogcdf(z):
    from jax.scipy.stats import norm

    return norm.logcdf(z)


@register
def state_dependent():
    sd = lambda xp, u: 0.1 + 0.4 * xp.abs(xp.sin(u))  # noqa: E731
    q = lambda xp, u, x: (  # noqa: E731
        -0.5 * ((x - 0.9 * u) / sd(xp, u)) ** 2 - xp.log(sd(xp, u)) - 0.5 * np.log(2 * np.pi)
    )
    rng = np.random.default_rng(7)
    x, ys = 0.0, []
    for _ in range(50):
        x = 0.9 * x + sd(np, x) * rng.standard_normal()
        ys.append(x + 0.3 * rng.standard_normal())
    g = _gs(0.3)
    return _case(
        lambda x: normal(x, 1.0),
        lambda u, x, t: q(np, u, x),
        lambda x, y, t: g(np, x, y),
        ys,
        (-8, 8),
        lambda x: jnormal(x[0], 1.0),
        lambda u, x: q(jnp, u[0], x[0]),
        lambda x, y: g(jnp, x[0], y[0]),
    )


@register
def lognormal_multiplicative():
    s = 0.2

    def q(xp, u, x):
        safe = xp.where(x > 0, x, 1.0)
        old = xp.where(u > 0, u, 1.0)
        r = xp.log(safe) - xp.log(old)
        return xp.where(
            (x > 0) & (u > 0),
            -0.5 * (r / s) ** 2 - xp.log(safe) - np.log(s) - 0.5 * np.log(2 * np.pi),
            -np.inf,
        )

    def p0(xp, x):
        safe = xp.where(x > 0, x, 1.0)
        return xp.where(x > 0, -0.5 * (xp.log(safe) / 0.5) ** 2 - xp.log(safe), -np.inf)

    rng = np.random.default_rng(8)
    x, ys = 1.0, []
    for _ in range(50):
        x = x * np.exp(s * rng.standard_normal())
        ys.append(x + 0.2 * rng.standard_normal())
    g = _gs(0.2)
    return _case(
        lambda x: p0(np, x),
        lambda u, x, t: q(np, u, x),
        lambda x, y, t: g(np, x, y),
        ys,
        (0, 12),
        lambda x: p0(jnp, x[0]),
        lambda u, x: q(jnp, u[0], x[0]),
        lambda x, y: g(jnp, x[0], y[0]),
        num=6000,
    )


def _prior_case(share):
    def build():
        f = lambda xp, u: 0.9 * u  # noqa: E731
        ys = _sim(50, 9, f, lambda r: 0.3 * r.standard_normal(), lambda xp, x: xp.sin(x), 0.3)
        return _both(
            f,
            _ng(0.3),
            _gs(0.3, lambda xp, x: xp.sin(x)),
            None,
            ys,
            (-6, 6),
            prior=(0.3, share * 12),
            num=12000 if share < 0.005 else 3000,
        )

    return build


for _share in (0.1, 0.01):
    REGISTRY[f"prior_{_share}"] = _prior_case(_share)


@register
def narrowing():
    def s(xp, t):
        return xp.where(t < 25, 0.5, 0.05)

    f = lambda xp, u: 0.9 * u  # noqa: E731
    rng = np.random.default_rng(10)
    x, ys = 0.0, []
    for t in range(1, 51):
        x = 0.9 * x + s(np, t) * rng.standard_normal()
        ys.append(x + 0.3 * rng.standard_normal())
    g = _gs(0.3)
    return _case(
        lambda x: normal(x, 1.0),
        lambda u, x, t: normal(x - f(np, u), s(np, t)),
        lambda x, y, t: g(np, x, y),
        ys,
        (-6, 6),
        lambda x: jnormal(x[0], 1.0),
        lambda u, x, *, t: jnormal(x[0] - f(jnp, u[0]), s(jnp, t)),
        lambda x, y: g(jnp, x[0], y[0]),
        num=2000,
        varies=True,
    )


def _simple(name, f, h, q, s, box, seed=11, T=50, num=3000, change=None, prior=(0.0, 1.0)):
    def build():
        ys = _sim(T, seed, f, lambda r: q * r.standard_normal(), h, s)
        if change is not None:
            ys = change(ys)
        return _both(f, _ng(q), _gs(s, h), None, ys, box, num=num, prior=prior)

    REGISTRY[name] = build


def _shift(ys):
    ys = ys.copy()
    ys[25:] += 7.5
    return ys


_simple("level_shift", lambda xp, u: u, lambda xp, x: x, 0.3, 0.4, (-15, 25), change=_shift)
_simple("comb", lambda xp, u: 0.95 * u, lambda xp, x: xp.sin(8 * x), 0.3, 0.1, (-6, 6))
_simple("saturating", lambda xp, u: 0.95 * u, lambda xp, x: xp.tanh(3 * x), 0.4, 0.05, (-7, 7))
_simple(
    "threshold_f",
    lambda xp, u: xp.where(u > 0, 0.8 * u - 1.0, 0.6 * u + 1.5),
    lambda xp, x: x,
    0.2,
    0.4,
    (-6, 6),
)
_simple(
    "dip",
    lambda xp, u: 0.9 * u,
    lambda xp, x: x - 2 * xp.exp(-0.5 * ((x - 0.5) / 0.05) ** 2),
    0.3,
    0.2,
    (-5, 5),
)
_simple("precise", lambda xp, u: 0.9 * u, lambda xp, x: x, 0.5, 0.012, (-6, 6), num=8000)
_simple(
    "two_modes",
    lambda xp, u: 0.98 * u,
    lambda xp, x: x**2,
    0.1,
    0.05,
    (-6, 6),
    num=4000,
    prior=(0.0, 1.5),
)
_simple(
    "ungm",
    lambda xp, u: u / 2 + 25 * u / (1 + u**2),
    lambda xp, x: x**2 / 20,
    3.0,
    1.0,
    (-50, 50),
    num=4000,
)
_simple("abs_kink", lambda xp, u: 2 - 1.5 * xp.abs(u), lambda xp, x: x, 0.1, 0.3, (-6, 6))
_simple(
    "all_missing",
    lambda xp, u: 0.9 * u + 1.0,
    lambda xp, x: x,
    0.5,
    0.5,
    (-10, 25),
    change=lambda ys: ys * np.nan,
)
_simple("one_step", lambda xp, u: 0.9 * u, lambda xp, x: x, 0.5, 0.5, (-8, 8), T=1)
