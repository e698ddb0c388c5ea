"""Exact values of the densities of a model of two coordinates, in logs.

Laws live in coordinates z with x = frame z. Additive Gaussian noise is isotropic there, so that
sums over old nodes are matrix products.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ...._statespace.functions import as_vector, call
from ...._statespace.model import (
    AdditiveGaussian,
    Inputs,
    LinearGaussian,
    StateSpaceModel,
    log_observation_table,
    log_prior_table,
    log_transition_rows,
    log_transition_table,
)
from ...numerics.compiled import call_compiled
from ..rules import no_nan
from ..tables import Seen

# Points are filled up to powers of two times this: few sizes, few programs.
_LEAST = 256
# Pairs of points whose transition is evaluated at once.
_PAIRS = 2**21


class Start(NamedTuple):
    """A Gaussian prior in z."""

    mean: Float[np.ndarray, " 2"]
    covariance: Float[np.ndarray, "2 2"]

    @property
    def sd(self) -> Float[np.ndarray, " 2"]:
        """Standard deviations."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0))


class Space(NamedTuple):
    """Coordinates and bounds.

    Attributes:
        frame: x = frame z.
        low, high: walls in z; infinite where there are none.
        start: the prior, if it is a Gaussian; its support is the box otherwise.
        gaussian: the transition is f(u) plus isotropic unit noise in z.
        separable: the transition is a product over the axes.
    """

    frame: Float[np.ndarray, "2 2"]
    low: Float[np.ndarray, " 2"]
    high: Float[np.ndarray, " 2"]
    start: Start | None
    gaussian: bool
    separable: bool

    @property
    def turns(self) -> bool:
        """Whether lattices may lie at any angle: no product over the axes of z is in use."""
        return self.gaussian or not self.separable

    @property
    def walled(self) -> bool:
        """Whether the state is confined."""
        return bool(np.any(np.isfinite(np.concatenate([self.low, self.high]))))

    def open(self) -> "Space":
        """Without walls."""
        return self._replace(low=np.full(2, -np.inf), high=np.full(2, np.inf))

    @property
    def log_det(self) -> float:
        """log |det frame|."""
        return float(np.linalg.slogdet(self.frame)[1])

    def x_of(self, z: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2"]:
        """User units."""
        return z @ self.frame.T

    def z_of(self, x: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n 2"]:
        """Coordinates of the lattice."""
        return np.linalg.solve(self.frame, np.asarray(x).T).T


def space_of(ssm: StateSpaceModel) -> Space:
    """A box that was given is honoured; one that was only simulated cuts nothing."""
    low, high = np.asarray(ssm.state_box.lower), np.asarray(ssm.state_box.upper)
    form = ssm.structure
    if form is None:
        scale = high - low
        frame = np.diag(scale)
        separable = ssm.log_transition_axis is not None
        return Space(frame, low / scale, high / scale, None, False, separable)
    noise = np.asarray(form.Q)
    diagonal = noise[0, 1] == 0
    if form.boxed and not diagonal:
        # Walls along the axes of x, noise along others: no product.
        frame, gaussian = np.diag(np.sqrt(np.diag(noise))), False
    else:
        frame, gaussian = np.linalg.cholesky(noise), True
    walls = np.full(2, -np.inf), np.full(2, np.inf)
    if form.boxed:
        walls = low / np.diag(frame), high / np.diag(frame)
    return Space(frame, *walls, _start_of(form, frame), gaussian, gaussian)


def _start_of(form: AdditiveGaussian | LinearGaussian, frame: np.ndarray) -> Start | None:
    known = isinstance(form, AdditiveGaussian) or (
        form.prior is None and not form.prior_is_function
    )
    if form.m0 is None or form.P0 is None or not (known or not form.boxed):
        return None
    inverse = np.linalg.inv(frame)
    spread = inverse @ np.asarray(form.P0) @ inverse.T
    return Start(inverse @ np.asarray(form.m0), spread)


def _prior(ssm: StateSpaceModel, x: Array) -> Array:
    return log_prior_table(ssm, x)


def _likelihood(ssm: StateSpaceModel, x: Array, y: Array, t: Array, row: Inputs) -> Array:
    return log_observation_table(ssm, x, y, t, row)


def _means(ssm: StateSpaceModel, u: Array, t: Array, row: Inputs) -> Array:
    form = ssm.structure
    if isinstance(form, LinearGaussian):
        return u @ form.F.T + form.b[None, :]
    assert form is not None
    return jax.vmap(lambda old: as_vector(call(form.f, old, t=t, inputs=row)))(u)


def _pairs(ssm: StateSpaceModel, u: Array, x: Array, t: Array, row: Inputs) -> Array:
    return log_transition_table(ssm, (0, 1), u, x, t, row)


def _sums(
    ssm: StateSpaceModel, u: Array, log_v: Array, ratios: Array, x: Array, t: Array, row: Inputs
) -> tuple[Array, Array, Array]:
    log_q = log_transition_table(ssm, (0, 1), u, x, t, row)
    log_q = jnp.where(jnp.isnan(log_q) | jnp.isposinf(log_q), -jnp.inf, log_q)
    logs = log_q + log_v[:, None]
    peak = jnp.max(logs, axis=0)
    safe = jnp.where(jnp.isfinite(peak), peak, 0.0)
    terms = jnp.exp(logs - safe[None, :])
    total = jnp.sum(terms, axis=0)
    sums = ratios @ terms / jnp.where(total > 0, total, 1.0)[None, :]
    return safe + jnp.log(total), sums, jnp.max(log_q)


def _axis_pairs(
    ssm: StateSpaceModel, u: Array, x: Array, t: Array, row: Inputs, axis: int
) -> Array:
    return log_transition_table(ssm, (axis,), u, x, t, row)


def filled(x: np.ndarray) -> np.ndarray:
    """Points filled up to one of few sizes."""
    size = _LEAST
    while size < len(x):
        size *= 2
    return np.concatenate([x, np.repeat(x[-1:], size - len(x), axis=0)])


class PlaneValues:
    """Values of a model, JAX or NumPy."""

    def __init__(self, ssm: StateSpaceModel):
        self.ssm = ssm
        self.space = space_of(ssm)

    def log_prior(self, z: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, " n"]:
        """log p_0, as a density of z."""
        x = self.space.x_of(z)
        if self.ssm.vectorized:
            out = log_prior_table(self.ssm, jnp.asarray(x))
        else:
            out = call_compiled(_prior, self.ssm, filled(x))
        return no_nan(np.asarray(out)[: len(z)]) + self.space.log_det

    def log_likelihood(self, z: Float[np.ndarray, "n 2"], seen: Seen) -> Float[np.ndarray, " n"]:
        """log G(x_j, y)."""
        x = self.space.x_of(z)
        if self.ssm.vectorized:
            ys = np.broadcast_to(seen.y, (len(x), len(seen.y)))
            with np.errstate(all="ignore"):
                out = call(self.ssm.log_observation, x, ys, t=seen.t, inputs=seen.row)
        else:
            out = call_compiled(_likelihood, self.ssm, filled(x), seen.y, seen.t, seen.row)
        return no_nan(np.asarray(out, dtype=float)[: len(z)])

    def means(self, z: Float[np.ndarray, "n 2"], t: int, row: Inputs) -> Float[np.ndarray, "n 2"]:
        """f(u_m) in z, for Gaussian noise."""
        out = call_compiled(_means, self.ssm, filled(self.space.x_of(z)), t, row)
        return self.space.z_of(np.asarray(out)[: len(z)])

    def axis_logs(
        self, axis: int, z: np.ndarray, new: Float[np.ndarray, " k"], t: int, row: Inputs
    ) -> Float[np.ndarray, "n k"]:
        """log Q_i(u_m, x_j), as a density of z_i, of a separable transition."""
        scale = self.space.frame[axis, axis]
        u, x = self.space.x_of(z), new[:, None] * scale
        if self.ssm.vectorized:
            rows, columns = np.repeat(u, len(x), axis=0), np.tile(x, (len(u), 1))
            with np.errstate(all="ignore"):
                out = log_transition_rows(self.ssm, (axis,), rows, columns, t)
            out = np.asarray(out, dtype=float).reshape(len(u), len(x))
        else:
            args = (filled(u), filled(x), t, row)
            out = np.asarray(call_compiled(_axis_pairs, self.ssm, *args, options=(axis,)))
        return no_nan(out[: len(z), : len(new)]) + np.log(scale)

    def log_pairs(
        self, z: np.ndarray, new: Float[np.ndarray, "k 2"], t: int, row: Inputs
    ) -> Float[np.ndarray, "n k"]:
        """log Q(u_m, x_j), as a density of z."""
        u, x = self.space.x_of(z), self.space.x_of(new)
        if self.ssm.vectorized:
            rows, columns = np.repeat(u, len(x), axis=0), np.tile(x, (len(u), 1))
            with np.errstate(all="ignore"):
                out = log_transition_rows(self.ssm, (0, 1), rows, columns, t)
            out = np.asarray(out, dtype=float).reshape(len(u), len(x))
        else:
            out = np.asarray(call_compiled(_pairs, self.ssm, filled(u), filled(x), t, row))
        return no_nan(out[: len(z), : len(new)]) + self.space.log_det

    def sums(
        self, old: tuple[np.ndarray, np.ndarray, np.ndarray], new: np.ndarray, t: int, row: Inputs
    ) -> tuple[Float[np.ndarray, " k"], Float[np.ndarray, "r k"], float]:
        """log p(x_j), as a density of z, sums with ratios over p, and the highest log Q."""
        z, log_masses, ratios = old
        u, x = filled(self.space.x_of(z)), filled(self.space.x_of(new))
        more = len(u) - len(z)
        masses = np.concatenate([log_masses, np.full(more, -np.inf)])
        wide = np.concatenate([ratios, np.zeros((len(ratios), more))], axis=1)
        log_p, out, peak = call_compiled(_sums, self.ssm, u, masses, wide, x, t, row)
        num, more = len(new), self.space.log_det
        return np.asarray(log_p)[:num] + more, np.asarray(out)[:, :num], float(peak) + more

    def blocks(self, old: int, new: int) -> int:
        """How many new points are evaluated at once."""
        size = _LEAST
        while 2 * size * old <= _PAIRS and size < new:
            size *= 2
        return size
