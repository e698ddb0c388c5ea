"""A dense grid in the plane, in NumPy: what lattices are compared with."""

import numpy as np


class Grid:
    """Filter and smoother of x' = f(u) + N(0, diag sds^2) on a fixed rectangle, by the midpoint
    rule."""

    def __init__(self, low, high, num=160):
        low, high = np.asarray(low, float), np.asarray(high, float)
        step = (high - low) / num
        self.axes = [low[k] + step[k] * (np.arange(num) + 0.5) for k in range(2)]
        mesh = np.meshgrid(*self.axes, indexing="ij")
        self.points = np.stack([m.ravel() for m in mesh], axis=1)
        self.cell = float(np.prod(step))
        self.shape = (num, num)

    def tables(self, f, sds):
        mean = f(self.points)
        out = []
        for k in range(2):
            gap = (self.axes[k][None, :] - mean[:, k, None]) / sds[k]
            out.append(np.exp(-0.5 * gap**2) / (np.sqrt(2 * np.pi) * sds[k]))
        return out

    def run(self, prior, f, sds, likelihoods):
        """Filtered densities, log Z and smoothed densities; a likelihood may be None."""
        left, right = self.tables(f, sds)
        p = prior(self.points)
        p, ahead, filtered, logs = p / (p.sum() * self.cell), [], [], []
        for g in likelihoods:
            q = (left.T @ (p[:, None] * right)).ravel() * self.cell
            ahead.append(q)
            p = q if g is None else q * g(self.points)
            z = p.sum() * self.cell
            logs.append(0.0 if g is None else np.log(z))
            p = p / z
            filtered.append(p)
        smoothed = [filtered[-1]]
        for k in range(len(filtered) - 2, -1, -1):
            ratio = np.divide(
                smoothed[0], ahead[k + 1], out=np.zeros_like(p), where=ahead[k + 1] > 1e-290
            )
            back = np.einsum("ni,ij,nj->n", left, ratio.reshape(self.shape), right) * self.cell
            smoothed.insert(0, filtered[k] * back)
        return filtered, np.array(logs), smoothed

    def distance(self, density, p):
        """int |q - p|, and the mass of q elsewhere."""
        q = np.asarray(density(self.points))
        return float(np.sum(np.abs(q - p)) * self.cell + max(0.0, 1 - q.sum() * self.cell))

    def marginal_cdf(self, p, coordinate):
        line = p.reshape(self.shape).sum(axis=1 - coordinate)
        step = self.axes[coordinate][1] - self.axes[coordinate][0]
        return self.axes[coordinate] + 0.5 * step, np.cumsum(line) / line.sum()
