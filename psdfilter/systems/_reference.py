"""A filter on a dense grid, written apart from the rest of the package, to compare with.

With Gauss-Legendre nodes z_m and weights w_m on the box,

    p_t(x) = sum_m w_m pi_{t-1}(z_m) Q(z_m, x),    pi_t(x) = p_t(x) G(x, y_t) / Z_t,

where Q(u, x) = prod_i Q_i(u, x_i). The first formula also gives the density between the nodes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import roots_legendre

from .._checks import Numbers


@dataclass(frozen=True)
class Densities:
    """A model in NumPy.

    Attributes:
        lower: lower bounds of the box, one for each axis.
        upper: upper bounds.
        log_prior: points (n, d) -> (n,), not necessarily normalised.
        log_axis: i, u (n, d), x_i (k,), t -> (n, k), log Q_i(u, x_i).
        log_observation: points (n, d), y (p,), t -> (n,).
        time_varying: whether log_axis depends on t.
    """

    lower: Sequence[float]
    upper: Sequence[float]
    log_prior: Callable[[np.ndarray], np.ndarray]
    log_axis: Callable[[int, np.ndarray, np.ndarray, int], np.ndarray]
    log_observation: Callable[[np.ndarray, np.ndarray, int], np.ndarray]
    time_varying: bool = False


@dataclass(frozen=True)
class Reference:
    """Filtered densities at nodes.

    Attributes:
        nodes: (N, d).
        weights: (N,), for integrals over the box.
        densities: (T, N), mass one each.
        log_likelihoods: log Z_t, (T,).
        kept: mass that stayed in the box at each step, (T,).
        distance: largest total variation distance to the filter with twice the nodes.
        log_likelihood_gap: largest difference of log Z_t to that filter.
    """

    nodes: np.ndarray
    weights: np.ndarray
    densities: np.ndarray
    log_likelihoods: np.ndarray
    kept: np.ndarray
    distance: float | None = None
    log_likelihood_gap: float | None = None
    _recursion: Any = field(default=None, repr=False)

    @property
    def log_likelihood(self) -> float:
        """sum_t log Z_t."""
        return float(np.sum(self.log_likelihoods))

    @property
    def mean(self) -> np.ndarray:
        """(T, d)."""
        return (self.densities * self.weights) @ self.nodes

    @property
    def covariance(self) -> np.ndarray:
        """(T, d, d)."""
        mean = self.mean
        second = np.einsum(
            "tn,ni,nj->tij", self.densities * self.weights, self.nodes, self.nodes, optimize=True
        )
        return second - mean[:, :, None] * mean[:, None, :]

    def distance_to(self, values: np.ndarray) -> np.ndarray:
        """int |p_t - q_t| for each t, from other densities (T, N) at the same nodes."""
        return np.abs(np.asarray(values) - self.densities) @ self.weights

    def on_axes(self, t: int, axes: Sequence[np.ndarray]) -> np.ndarray:
        """The density of step t at the points axes[0] x axes[1] x ..., first axis slowest."""
        return self._recursion.between_nodes(self, t, axes)


def log_normal(residual: np.ndarray, sd: float | np.ndarray) -> np.ndarray:
    """log N(residual; 0, sd^2)."""
    return -0.5 * np.square(residual / sd) - np.log(sd) - 0.5 * np.log(2 * np.pi)


def grid(axes: Sequence[np.ndarray]) -> np.ndarray:
    """The points axes[0] x axes[1] x ..., first axis slowest."""
    return np.stack([m.ravel() for m in np.meshgrid(*axes, indexing="ij")], axis=-1)


class _Recursion:
    """Nodes, tables and data of one filter."""

    def __init__(self, model: Densities, ys: np.ndarray, num_nodes: int, first: str):
        self.model, self.ys = model, ys
        self.observe_first = first == "observe"
        z, w = roots_legendre(num_nodes)
        self.axes, weights = [], np.ones(1)
        for low, high in zip(model.lower, model.upper, strict=True):
            self.axes.append(0.5 * (low + high) + 0.5 * (high - low) * z)
            weights = np.multiply.outer(weights, 0.5 * (high - low) * w).ravel()
        self.nodes, self.weights = grid(self.axes), weights
        self._tables: list[np.ndarray] | None = None

    def time_of(self, index: int) -> int:
        return index if self.observe_first else index + 1

    def tables(self, t: int, axes: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [np.exp(self.model.log_axis(i, self.nodes, x, t)) for i, x in enumerate(axes)]

    def predict(self, density: np.ndarray, t: int) -> np.ndarray:
        if self.model.time_varying or self._tables is None:
            self._tables = self.tables(t, self.axes)
        return _push(self._tables, self.weights * density)

    def log_likelihood_of(self, points: np.ndarray, index: int) -> np.ndarray:
        y = self.ys[index]
        if np.isnan(y).all():
            return np.zeros(len(points))
        return self.model.log_observation(points, y, self.time_of(index))

    def prior(self) -> np.ndarray:
        logs = self.model.log_prior(self.nodes)
        values = np.exp(logs - logs.max())
        return values / (self.weights @ values)

    def run(self) -> Reference:
        density, kept, densities, logs = self.prior(), [], [], []
        for index in range(len(self.ys)):
            if index > 0 or not self.observe_first:
                density = self.predict(density, self.time_of(index))
            kept.append(self.weights @ density)
            log_g = self.log_likelihood_of(self.nodes, index)
            peak = log_g.max()
            density = density * np.exp(log_g - peak)
            mass = self.weights @ density
            density = density / mass
            densities.append(density)
            logs.append(np.log(mass) + peak)
        return Reference(
            self.nodes,
            self.weights,
            np.stack(densities),
            np.asarray(logs),
            np.asarray(kept),
            _recursion=self,
        )

    def between_nodes(self, filtered: Reference, t: int, axes: Sequence[np.ndarray]) -> np.ndarray:
        points = grid(axes)
        if t == 0 and self.observe_first:
            logs = self.model.log_prior(self.nodes)
            mass = self.weights @ np.exp(logs - logs.max())
            predicted = np.exp(self.model.log_prior(points) - logs.max()) / mass
        else:
            before = filtered.densities[t - 1] if t > 0 else self.prior()
            predicted = _push(self.tables(self.time_of(t), axes), self.weights * before)
        log_z = filtered.log_likelihoods[t]
        return predicted * np.exp(self.log_likelihood_of(points, t) - log_z)


def _push(tables: list[np.ndarray], v: np.ndarray) -> np.ndarray:
    """sum_m v_m E_1[m] x E_2[m] x ...."""
    if len(tables) == 1:
        return v @ tables[0]
    if len(tables) == 2:
        return ((tables[0] * v[:, None]).T @ tables[1]).ravel()
    return np.concatenate([_push(tables[1:], v * column) for column in tables[0].T])


def reference_filter(
    model: Densities, ys: Numbers, num_nodes: int, first: str, check: bool
) -> Reference:
    """The filter on `num_nodes` nodes per axis; with `check`, compared with twice as many."""
    if first not in ("predict", "observe"):
        raise ValueError(f'first must be "predict" or "observe", got {first!r}')
    series = np.asarray(ys, dtype=float)
    series = series[:, None] if series.ndim == 1 else series
    coarse = _Recursion(model, series, num_nodes, first).run()
    if not check:
        return coarse
    recursion = _Recursion(model, series, 2 * num_nodes, first)
    fine = recursion.run()
    gaps = [
        fine.weights @ np.abs(coarse.on_axes(t, recursion.axes) - fine.densities[t])
        for t in range(len(series))
    ]
    return Reference(
        coarse.nodes,
        coarse.weights,
        coarse.densities,
        coarse.log_likelihoods,
        coarse.kept,
        float(np.max(gaps)),
        float(np.max(np.abs(coarse.log_likelihoods - fine.log_likelihoods))),
        coarse._recursion,
    )
