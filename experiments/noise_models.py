"""A sine map with noise of chosen smoothness, a dense reference for it, and a bootstrap filter.

    x' = 0.6 sin 2.2 u + s v  kept in (-1, 1),      y = x + s w,

v and w of unit variance with a density that is Gaussian, or exp(-r) times a polynomial in r: the
Matern covariances of order 5/2 and 3/2, and Laplace. Of these the Fourier transform falls like
|k|^-6, |k|^-4 and |k|^-2, so that the root of the density is in W_2^beta for beta < 5.5, 3.5, 1.5.
Everything but `model` is NumPy.
"""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from scipy import stats

import psdfilter as psd

SD, STATE, SEEN = 0.25, (-1.0, 1.0), (-2.6, 2.6)
# Order of the Sobolev space, and c_j of the density proportional to sum_j c_j (a r)^j exp(-a r).
FAMILIES = {
    "gaussian": (np.inf, None),
    "matern52": (5.5, (1.0, 1.0, 1.0 / 3.0)),
    "matern32": (3.5, (1.0, 1.0)),
    "laplace": (1.5, (1.0,)),
}


@dataclass(frozen=True)
class Noise:
    """One family of unit variance times `SD`."""

    name: str

    @property
    def smoothness(self) -> float:
        """beta."""
        return FAMILIES[self.name][0]

    def _gammas(self):
        """Shares of Gamma(j + 1) in r = |v|, and the rate a that gives variance SD^2."""
        coefficients = np.asarray(FAMILIES[self.name][1])
        orders = np.arange(len(coefficients))
        shares = coefficients * np.array([1.0, 1.0, 2.0])[: len(coefficients)]  # times j!
        shares = shares / shares.sum()
        return shares, orders, np.sqrt(shares @ ((orders + 1) * (orders + 2))) / SD

    def log_density(self, r, xp=np):
        """log of the density at r."""
        if FAMILIES[self.name][1] is None:
            return -0.5 * xp.square(r / SD) - np.log(SD * np.sqrt(2 * np.pi))
        shares, orders, rate = self._gammas()
        size = xp.abs(r) * rate
        factorial = np.array([1.0, 1.0, 2.0])
        terms = sum(s / factorial[j] * size**j for s, j in zip(shares, orders, strict=True))
        return xp.log(terms) - size + np.log(rate / 2)

    def mass_below(self, t, xp=np):
        """P(v <= t): gamma distribution functions of whole order, written out."""
        if FAMILIES[self.name][1] is None:
            return stats.norm.cdf(t, scale=SD) if xp is np else _jax_cdf(t / SD)
        shares, orders, rate = self._gammas()
        size = xp.abs(t) * rate
        tail = 0.0
        for share, j in zip(shares, orders, strict=True):
            tail = tail + share * sum(size**i / [1.0, 1.0, 2.0][i] for i in range(j + 1))
        tail = 0.5 * xp.exp(-size) * tail
        return xp.where(t < 0, tail, 1 - tail)

    def draw(self, rng, num):
        """`num` values of v."""
        if FAMILIES[self.name][1] is None:
            return SD * rng.normal(size=num)
        shares, orders, rate = self._gammas()
        j = rng.choice(orders, size=num, p=shares)
        return rng.gamma(j + 1.0) / rate * rng.choice([-1.0, 1.0], size=num)

    def log_transition(self, u, x, xp=np):
        """log Q(u, x), of mass one on (-1, 1)."""
        mean = 0.6 * xp.sin(2.2 * u)
        mass = self.mass_below(1 - mean, xp) - self.mass_below(-1 - mean, xp)
        return self.log_density(x - mean, xp) - xp.log(mass)

    def move(self, rng, u):
        """New states: drawn again until they are in (-1, 1)."""
        x = np.full(len(u), 2.0)
        left = np.arange(len(u))
        while len(left):
            x[left] = 0.6 * np.sin(2.2 * u[left]) + self.draw(rng, len(left))
            left = left[np.abs(x[left]) >= 1]
        return x

    def simulate(self, seed, num_steps):
        """Observations (T,)."""
        rng = np.random.default_rng(seed)
        x, ys = rng.uniform(-1, 1, 1), []
        for _ in range(num_steps):
            x = self.move(rng, x)
            ys.append(float((x + self.draw(rng, 1))[0]))
        return np.clip(ys, -2.59, 2.59)

    def model(self, log_prior=None) -> psd.StateSpaceModel:
        """For `psd.learn`."""
        return psd.StateSpaceModel(
            log_prior=log_prior or (lambda x: jnp.zeros(())),
            log_transition=lambda u, x: self.log_transition(u[0], x[0], jnp),
            log_observation=lambda x, y: self.log_density(y[0] - x[0], jnp),
            state_box=psd.Box(*STATE),
            observation_box=psd.Box(*SEEN),
        )


def _jax_cdf(t):
    from jax.scipy.special import ndtr

    return ndtr(t)


class Dense:
    """The true filter on `num` Gauss-Legendre nodes; kinks leave an error of 1 / num^2."""

    def __init__(self, noise: Noise, num: int):
        self.noise = noise
        self.nodes, self.weights = np.polynomial.legendre.leggauss(num)
        self.table = np.exp(noise.log_transition(self.nodes[:, None], self.nodes[None, :]))

    def run(self, ys, prior=None):
        """Predictions and filtered densities (T, num)."""
        p = np.full(len(self.nodes), 0.5) if prior is None else prior
        predicted, filtered = [], []
        for y in ys:
            predicted.append((self.weights * p) @ self.table)
            p = predicted[-1] * np.exp(self.noise.log_density(y - self.nodes))
            p = p / (self.weights @ p)
            filtered.append(p)
        return np.array(predicted), np.array(filtered)

    def distance(self, p, q):
        """int |p - q|."""
        return np.abs(p - q) @ self.weights


def bootstrap(noise: Noise, ys, num, seed, seen=None):
    """A bootstrap filter with systematic resampling; `seen(k, x, w)` looks at each step's end."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, num)
    w = np.full(num, 1 / num)
    for k, y in enumerate(ys):
        places = (rng.uniform() + np.arange(num)) / num
        cumulated = np.cumsum(w)
        x = x[np.searchsorted(cumulated / cumulated[-1], places).clip(max=num - 1)]
        x = noise.move(rng, x)
        logs = noise.log_density(y - x)
        w = np.exp(logs - logs.max())
        w = w / w.sum()
        if seen is not None:
            seen(k, x, w)


def smoothed_particles(dense: Dense, y, x, w):
    """G(., y) sum_i w_i Q(x_i, .) / Z: the density that particles of the step before stand for.

    Their masses are first shared between the two nearest of 4000 points.
    """
    if not hasattr(dense, "fine"):
        dense.fine = np.linspace(-1, 1, 4000)
        dense.rows = np.exp(
            dense.noise.log_transition(dense.fine[:, None], dense.nodes[None, :])
        ).astype(np.float32)
    at = (x + 1) / 2 * 3999
    low = np.minimum(at.astype(int), 3998)
    share = at - low
    masses = np.bincount(low, w * (1 - share), 4000) + np.bincount(low + 1, w * share, 4000)
    p = (masses @ dense.rows) * np.exp(dense.noise.log_density(y - dense.nodes))
    return p / (dense.weights @ p)
