"""Random models on the line: `draw(seed)` is a case, the same one for a seed for ever.

Transitions are mixtures of one to three kernels (Gaussian, Student, skew-normal, narrow Gaussian)
around random maps, sensors are of seven kinds, data are simulated and then spoiled by outliers,
gaps and level shifts. Everything is drawn as a table of numbers, `Recipe`, from which the
JAX model and the NumPy truth are written apart.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import special, stats

import psdfilter as psd

from . import densities as nd
from .case import Case, Line

KERNELS = ("gauss", "student", "skew", "narrow")
MAPS = ("linear", "sine", "tanh", "cubic", "kink")
SENSORS = ("identity", "square", "sine", "tanh", "volatility", "poisson", "cauchy")


@dataclass(frozen=True)
class Recipe:
    """What was drawn. `parts`: (weight, kernel, map, rate, offset, width, shape) of components."""

    parts: tuple
    sensor: str
    gain: float
    seen: float
    prior: tuple[float, float]
    box: tuple[float, float]


def recipe(seed):
    rng = np.random.default_rng([2024, seed])
    count = int(rng.choice([1, 1, 2, 3]))
    weights = rng.dirichlet(np.full(count, 3.0))
    parts = []
    for k in range(count):
        kernel = str(rng.choice(KERNELS))
        width = np.exp(rng.uniform(np.log(0.1), np.log(0.8)))
        width = 0.35 * width if kernel == "narrow" else width
        shape = {"student": rng.uniform(2.5, 8), "skew": rng.uniform(-6, 6)}.get(kernel, 0.0)
        parts.append(
            (
                float(weights[k]),
                kernel,
                str(rng.choice(MAPS)),
                float(rng.uniform(0.6, 1.0)),
                float(rng.normal(0, 0.4)),
                float(width),
                float(shape),
            )
        )
    prior = (float(rng.normal(0, 1)), float(np.exp(rng.uniform(np.log(0.02), np.log(1.5)))))
    sensor = str(rng.choice(SENSORS))
    seen = float(np.exp(rng.uniform(np.log(0.03), np.log(1.0))))
    half = float(rng.uniform(8, 14))
    return Recipe(tuple(parts), sensor, float(rng.uniform(0.5, 2)), seen, prior, (-half, half))


def _map(kind, rate, offset, u):
    return {
        "linear": lambda: rate * u + offset,
        "sine": lambda: rate * u + np.sin(2 * u) + offset,
        "tanh": lambda: 2.5 * rate * np.tanh(u) + offset,
        "cubic": lambda: rate * u - 0.02 * u**3 * np.exp(-0.02 * u**2) + offset,
        "kink": lambda: rate * np.abs(u) - 1 + offset,
    }[kind]()


def _kernel(kind, e, width, shape):
    if kind == "student":
        return nd.student(e, 0.0, width, shape)
    if kind == "skew":
        return nd.skew_normal(e, 0.0, width, shape)
    return nd.normal(e, 0.0, width)


def truth(r, size):
    """`size`: of the largest outlier, in standard deviations of the sensor."""

    def log_transition(u, x, t):
        logs = [_kernel(k, x - _map(m, a, b, u), w, s) for _, k, m, a, b, w, s in r.parts]
        return nd.mixture([p[0] for p in r.parts], logs)

    def see(x, y, t):
        g = r.gain * x
        return {
            "identity": lambda: nd.normal(y[0], g, r.seen),
            "square": lambda: nd.normal(y[0], g**2 / 4, r.seen),
            "sine": lambda: nd.normal(y[0], np.sin(2 * g), r.seen),
            "tanh": lambda: nd.normal(y[0], np.tanh(g), r.seen),
            "volatility": lambda: nd.normal(y[0], 0.0, np.exp(g / 4)),
            "poisson": lambda: nd.poisson(y[0], g / 3),
            "cauchy": lambda: nd.cauchy(y[0], g, r.seen),
        }[r.sensor]()

    # a skewed kernel turns from tail to body within width / |shape|
    scales = [
        w / (1 + 0.4 * abs(s)) if k == "skew" else 0.6 * w if k == "student" else w
        for _, k, _, _, _, w, s in r.parts
    ]
    mean, sd = r.prior
    deep = 45 + 0.6 * size**2
    heavy = any(part[1] == "student" for part in r.parts)
    far = np.sqrt(2.6 * deep) * max(part[5] for part in r.parts)
    return Line(
        log_prior=lambda x: nd.normal(x, mean, sd),
        log_transition=log_transition,
        log_observation=see,
        centre=lambda u, t: np.stack([_map(m, a, b, u) for _, _, m, a, b, _, _ in r.parts]),
        width=min(scales),
        prior=(max(mean - 10 * sd, r.box[0]), min(mean + 10 * sd, r.box[1])),
        box=r.box,
        reach="box" if heavy else "gauss",
        spread=0.0 if heavy else far,
        breaks=(0.0,),
        deep=deep,
    )


MOST = 3  # components


def build(r):
    """The same model, in JAX: what was drawn are numbers, so that all models are one program."""
    none = (0.0, "gauss", "linear", 0.0, 0.0, 1.0, 0.0)
    parts = (*r.parts, *(none,) * (MOST - len(r.parts)))
    with np.errstate(divide="ignore"):
        logs = np.log([p[0] / p[5] for p in parts])
    names = [(KERNELS.index(p[1]), MAPS.index(p[2])) for p in parts]
    table = np.array([(a, *b, *p[3:]) for a, b, p in zip(logs, names, parts, strict=True)])
    sensor, (mean, sd) = float(SENSORS.index(r.sensor)), r.prior
    gain, noise = r.gain, r.seen

    def pick(names, index, values):
        return jnp.select(
            [index == float(k) for k in range(len(names))], [values[n] for n in names]
        )

    def one(part, u, x):
        log_weight, kernel, name, rate, offset, width, shape = part
        maps = {
            "linear": rate * u + offset,
            "sine": rate * u + jnp.sin(2 * u) + offset,
            "tanh": 2.5 * rate * jnp.tanh(u) + offset,
            "cubic": rate * u - 0.02 * u**3 * jnp.exp(-0.02 * u**2) + offset,
            "kink": rate * jnp.abs(u) - 1 + offset,
        }
        z = (x - pick(MAPS, name, maps)) / width
        gauss = stats.norm.logpdf(z)
        nu = jnp.where(kernel == 1.0, shape, 5.0)
        constant = special.gammaln(0.5 * nu + 0.5) - special.gammaln(0.5 * nu)
        student = constant - 0.5 * jnp.log(nu * np.pi) - 0.5 * (nu + 1) * jnp.log1p(z * z / nu)
        shapes = {
            "gauss": gauss,
            "narrow": gauss,
            "student": student,
            "skew": gauss + jnp.log(2.0) + special.log_ndtr(shape * z),
        }
        return log_weight + pick(KERNELS, kernel, shapes)

    def log_transition(u, x):
        return special.logsumexp(jax.vmap(lambda part: one(part, u[0], x[0]))(jnp.asarray(table)))

    def log_observation(x, y):
        g, seen = gain * x[0], y[0]
        logs = {
            "identity": stats.norm.logpdf(seen, g, noise),
            "square": stats.norm.logpdf(seen, g**2 / 4, noise),
            "sine": stats.norm.logpdf(seen, jnp.sin(2 * g), noise),
            "tanh": stats.norm.logpdf(seen, jnp.tanh(g), noise),
            "volatility": stats.norm.logpdf(seen, 0.0, jnp.exp(g / 4)),
            "poisson": seen * g / 3 - jnp.exp(g / 3) - special.gammaln(jnp.abs(seen) + 1),
            "cauchy": stats.cauchy.logpdf(seen, g, noise),
        }
        return pick(SENSORS, sensor, logs)

    return psd.StateSpaceModel(
        log_prior=lambda x: stats.norm.logpdf(x[0], mean, sd),
        log_transition=log_transition,
        log_observation=log_observation,
        state_box=psd.Box(*r.box),
    )


def _noise(rng, kernel, width, shape):
    if kernel == "student":
        return width * rng.standard_t(shape)
    if kernel == "skew":
        d = shape / np.sqrt(1 + shape**2)
        return width * (d * abs(rng.normal()) + np.sqrt(1 - d**2) * rng.normal())
    return width * rng.normal()


def data(r, seed):
    rng = np.random.default_rng([2025, seed])
    num = int(rng.integers(1, 9))
    x, ys = rng.normal(*r.prior), []
    weights = np.array([p[0] for p in r.parts])
    for _ in range(num):
        _, kernel, name, rate, offset, width, shape = r.parts[rng.choice(len(weights), p=weights)]
        x = np.clip(_map(name, rate, offset, x) + _noise(rng, kernel, width, shape), *r.box)
        g = r.gain * x
        ys.append(
            {
                "identity": lambda g=g: g + r.seen * rng.normal(),
                "square": lambda g=g: g**2 / 4 + r.seen * rng.normal(),
                "sine": lambda g=g: np.sin(2 * g) + r.seen * rng.normal(),
                "tanh": lambda g=g: np.tanh(g) + r.seen * rng.normal(),
                "volatility": lambda g=g: np.exp(g / 4) * rng.normal(),
                "poisson": lambda g=g: float(rng.poisson(np.exp(g / 3))),
                "cauchy": lambda g=g: g + r.seen * rng.standard_cauchy(),
            }[r.sensor]()
        )
    ys, size = _spoil(rng, np.array(ys), r)
    return {"ys": ys}, size


def _spoil(rng, ys, r):
    """Outliers of up to 20 sd, gaps and shifts; counts stay counts, and all stay in reach."""
    size = 0
    kind = rng.choice(["none", "none", "outlier", "gap", "shift"])
    at = int(rng.integers(len(ys)))
    if kind == "gap":
        ys[at : at + 3] = np.nan
    elif r.sensor == "poisson":
        ys[at] += rng.integers(0, 30) if kind in ("outlier", "shift") else 0
        size = 10
    elif kind != "none":
        size = int(rng.choice([5, 10, 20]))
        ys[at : at + 1 if kind == "outlier" else None] += size * r.seen * rng.choice([-1, 1])
    return ys, size


def draw(seed):
    """A random case of the line."""
    r = recipe(seed)
    tags = frozenset({"random", r.sensor, *(part[1] for part in r.parts)})
    given, size = data(r, seed)
    return Case(f"random-{seed}", 1, lambda: build(r), lambda: given, truth(r, size), tags)
