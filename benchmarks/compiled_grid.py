"""The limit: a windowed grid for one system, compiled to machine code, with nothing around it.

Equispaced nodes; f at the nodes and the kernel around it tabulated before the clock starts;
only nodes that hold mass spread, each over a band; the likelihood written out. No error is
estimated, no density is kept, no model but these four can be filtered.
"""

import numba
import numpy as np


@numba.njit(inline="always")
def _volatility(x, y):
    return -0.5 * (x + y * y * np.exp(-x))


@numba.njit(inline="always")
def _population(x, y):
    return -0.5 * ((y - x) / 0.2) ** 2


@numba.njit(inline="always")
def _range(x0, x1, y):
    seen = np.sqrt((x0 - 0.4) ** 2 + (x1 + 0.2) ** 2 + 0.16)
    return -0.5 * ((y - seen) / 0.15) ** 2


@numba.njit(inline="always")
def _swing(x0, x1, y):
    return -0.5 * ((y - np.sin(x0)) / 0.15) ** 2


def _line(log_g):
    @numba.njit(fastmath=True)
    def run(ys, x, v, first, band, least, out, means):
        n, width = len(x), band.shape[1]
        p, a, b = np.zeros(n), 0, n - 1
        for t in range(len(ys)):
            low, high = n, -1
            for m in range(a, b + 1):
                low, high = min(low, first[m]), max(high, first[m] + width - 1)
            p[low : high + 1] = 0.0
            for m in range(a, b + 1):
                at = first[m]
                for j in range(width):
                    p[at + j] += v[m] * band[m, j]
            top = -np.inf
            for k in range(low, high + 1):
                top = max(top, log_g(x[k], ys[t]))
            norm = 0.0
            for k in range(low, high + 1):
                v[k] = p[k] * np.exp(log_g(x[k], ys[t]) - top)
                norm += v[k]
            mean = 0.0
            for k in range(low, high + 1):
                v[k] /= norm
                mean += v[k] * x[k]
            means[t, 0] = mean
            while v[low] < least:
                low += 1
            while v[high] < least:
                high -= 1
            a, b = low, high
            if out.size > 0:
                out[t, a : b + 1] = v[a : b + 1]

    return run


def _plane(log_g):
    @numba.njit(fastmath=True)
    def run(ys, x0, x1, v, first, bands, least, out, means):
        n0, n1, width = len(x0), len(x1), bands.shape[2]
        p = np.zeros((n0, n1))
        a, b, c, d = 0, n0 - 1, 0, n1 - 1
        for t in range(len(ys)):
            low0, high0, low1, high1 = n0, -1, n1, -1
            for i in range(a, b + 1):
                for j in range(c, d + 1):
                    if v[i, j] < least:
                        continue
                    m = i * n1 + j
                    low0, high0 = min(low0, first[0, m]), max(high0, first[0, m] + width - 1)
                    low1, high1 = min(low1, first[1, m]), max(high1, first[1, m] + width - 1)
            p[low0 : high0 + 1, low1 : high1 + 1] = 0.0
            for i in range(a, b + 1):
                for j in range(c, d + 1):
                    if v[i, j] < least:
                        continue
                    m = i * n1 + j
                    for k in range(width):
                        w = v[i, j] * bands[0, m, k]
                        row = p[first[0, m] + k, first[1, m] : first[1, m] + width]
                        for l in range(width):
                            row[l] += w * bands[1, m, l]
            top, norm = -np.inf, 0.0
            for i in range(low0, high0 + 1):
                for j in range(low1, high1 + 1):
                    v[i, j] = log_g(x0[i], x1[j], ys[t])
                    if p[i, j] > 0:
                        top = max(top, v[i, j])
            for i in range(low0, high0 + 1):
                for j in range(low1, high1 + 1):
                    v[i, j] = p[i, j] * np.exp(v[i, j] - top)
                    norm += v[i, j]
            one, two = 0.0, 0.0
            for i in range(low0, high0 + 1):
                for j in range(low1, high1 + 1):
                    v[i, j] /= norm
                    one += v[i, j] * x0[i]
                    two += v[i, j] * x1[j]
            means[t, 0], means[t, 1] = one, two
            a, b, c, d = low0, high0, low1, high1
            if out.size > 0:
                out[t] = 0.0
                out[t, a : b + 1, c : d + 1] = v[a : b + 1, c : d + 1]

    return run


def _pendulum(u):
    new = u[:, 1] - 0.4 * (np.sin(u[:, 0]) + 0.6 * u[:, 1])
    return np.stack([u[:, 0] + 0.4 * new, new], axis=1)


def _growth(u):
    return u + 1.2 * (1.0 - np.exp(u))


# f, deviations of the noise, mean and deviations of the prior, ends, the compiled loop
SYSTEMS = {
    "stochastic_volatility": (
        lambda u: -1.0 + 0.95 * (u + 1.0),
        (0.2,),
        ((-1.0,), (0.2 / np.sqrt(1 - 0.95**2),)),
        ((-4.5,), (2.5,)),
        _line(_volatility),
    ),
    "theta_logistic": (_growth, (0.25,), ((-1.0,), (0.5,)), ((-4.5,), (2.2,)), _line(_population)),
    "range_only": (
        lambda u: 0.9 * u,
        (0.25, 0.25),
        ((0.0, 0.0), (0.25 / np.sqrt(1 - 0.81),) * 2),
        ((-3.3, -3.3), (3.3, 3.3)),
        _plane(_range),
    ),
    "pendulum": (
        _pendulum,
        (0.2, 0.3),
        ((0.8, 0.0), (0.4, 0.4)),
        ((-3.3, -3.1), (3.3, 3.1)),
        _plane(_swing),
    ),
}


class CompiledGrid:
    """Nodes `spacing` deviations of the noise apart, for errors of about `target`."""

    def __init__(self, name: str, spacing: float, target: float):
        """Tabulate everything that does not depend on the data."""
        f, sds, (mean, start), ends, self._loop = SYSTEMS[name]
        dim = len(sds)
        reach = np.sqrt(-2 * np.log(0.01 * target))
        width = int(np.ceil(2 * reach / spacing)) + 1
        self.axes = [
            np.linspace(low, high, int(np.ceil((high - low) / (spacing * sd))) + 1)
            for low, high, sd in zip(*ends, sds, strict=True)
        ]
        width = min(width, *(len(axis) for axis in self.axes))
        points = np.stack([m.ravel() for m in np.meshgrid(*self.axes, indexing="ij")], axis=-1)
        centre, first, bands = f(points), [], []
        for i, axis in enumerate(self.axes):
            h = axis[1] - axis[0]
            at = np.rint((centre[:, i] - axis[0]) / h).astype(int) - width // 2
            first.append(np.clip(at, 0, len(axis) - width))
            x = axis[first[-1][:, None] + np.arange(width)[None, :]]
            bands.append(np.exp(-0.5 * ((x - centre[:, i, None]) / sds[i]) ** 2))
        self._tables = (first[0], bands[0]) if dim == 1 else (np.stack(first), np.stack(bands))
        prior = np.exp(-0.5 * np.sum(((points - mean) / start) ** 2, axis=1))
        self._prior = (prior / prior.sum()).reshape([len(axis) for axis in self.axes])
        self._least = 1e-3 * target / np.sqrt(len(points))

    def run(self, ys: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """Means; masses at the nodes into `out`, if there is one."""
        means = np.zeros((len(ys), len(self.axes)))
        out = np.zeros((0,) * (1 + len(self.axes))) if out is None else out
        first, bands = self._tables
        seen = np.ascontiguousarray(ys[:, 0])
        self._loop(seen, *self.axes, self._prior.copy(), first, bands, self._least, out, means)
        return means

    def distance(self, reference, ys: np.ndarray, times) -> float:
        """Largest total variation distance to a converged reference."""
        out = np.zeros((len(ys), *self._prior.shape))
        self.run(ys, out)
        cell = np.prod([axis[1] - axis[0] for axis in self.axes])
        return max(
            float(np.sum(np.abs(out[t].ravel() - cell * reference.on_axes(t, self.axes).ravel())))
            for t in times
        )


def grid_at(name: str, ys: np.ndarray, reference, target: float, times):
    """The widest grid with a distance below the target."""
    for spacing in 2.0 * 0.9 ** np.arange(24):
        grid = CompiledGrid(name, spacing, target)
        error = grid.distance(reference, ys, times)
        if error <= target:
            return grid, error
    raise AssertionError(f"no grid of {name} reaches {target}")
