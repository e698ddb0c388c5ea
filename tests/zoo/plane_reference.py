"""The exact filter on the plane: predicted densities on tensor panels, posteriors on a tree.

Q(u, .) is a mixture of products over the two axes of z, so that a prediction is one matrix product
over the nodes u that hold mass. Its interpolant times the likelihood is resolved on rectangles that
are bisected, axis by axis, until their Legendre series end.
"""

from dataclasses import dataclass

import numpy as np

from .quadrature import lagrange, merge, nodes, rule, split_edges

CHUNK = 4_000_000
FLOOR = -690.0  # logs of predicted densities, against their maximum


@dataclass(frozen=True)
class Setting:
    """order: nodes per axis of a rectangle; wide: the same of a predicted panel, of `step` widths
    of Q; tail: last Legendre coefficients of a rectangle against all mass; move: how many widths
    of Q a rectangle may be moved across; deeper: factor of `deep`."""

    order: int
    wide: int
    step: float
    tail: float
    move: float
    deeper: float


COARSE = Setting(order=10, wide=12, step=2.8, tail=3e-8, move=4.0, deeper=1.0)
FINE = Setting(order=12, wide=14, step=2.7, tail=3e-9, move=3.5, deeper=1.25)
STEEP_LEVELS = 18  # how often a rectangle is halved because a narrow peak may hide in it


@dataclass(frozen=True)
class Tensor:
    """Logs (k1, n, k2, n) at the nodes of products of panels (k1, 2), (k2, 2); zero elsewhere."""

    edges: tuple
    logs: np.ndarray


@dataclass(frozen=True)
class Tree:
    """Logs (k, n, n) at the nodes of rectangles (k, 2, 2): [axis, side]."""

    edges: np.ndarray
    logs: np.ndarray


def frame_of(truth):
    return np.eye(2) if truth.frame is None else np.asarray(truth.frame)


def to_state(truth, z):
    return z if truth.frame is None else z @ frame_of(truth).T


def jacobian(truth):
    return abs(np.linalg.det(frame_of(truth)))


def points(truth, edges, setting):
    """Nodes (n, 2) in z and weights (n,)."""
    del truth
    (x1, w1), (x2, w2) = (nodes(edges[:, i], setting.order) for i in (0, 1))
    n = setting.order
    x = np.stack(
        [np.repeat(x1, n, axis=1).reshape(-1, n, n), np.tile(x2[:, None, :], (1, n, 1))], axis=-1
    )
    return x.reshape(-1, 2), (w1[:, :, None] * w2[:, None, :]).ravel()


def log_values(pre, edges, x, setting):
    """Log of a predicted density (or of an earlier posterior) at points x (n, 2)."""
    del edges
    out = np.full(len(x), -np.inf)
    step = 20_000
    for i in range(0, len(x), step):
        fn = _log_tensor if isinstance(pre, Tensor) else _log_tree
        out[i : i + step] = fn(pre, x[i : i + step], setting)
    return out


def slim(pre, edges):
    """Zeros, which take no space in a file, in the blocks that hold no rectangle of a posterior."""
    if isinstance(pre, Tree):
        return pre
    middle = edges.mean(axis=2)
    i, j = (_local(pre.edges[k], middle[:, k])[0] for k in (0, 1))
    logs = np.zeros_like(pre.logs)
    logs[i, :, j, :] = pre.logs[i, :, j, :]
    return Tensor(pre.edges, logs)


def _local(edges, x):
    index = np.clip(np.searchsorted(edges[:, 0], x, side="right") - 1, 0, None)
    low, high = edges[index, 0], edges[index, 1]
    inside = (x >= low) & (x <= high)
    return index, np.clip((2 * x - low - high) / (high - low), -1, 1), inside


def in_logs(blocks):
    """Which blocks (k, n, n) of logs are interpolated in logs: those whose series end sooner so."""
    last = rule(blocks.shape[1])[3][-2:]
    top = blocks.max(axis=(1, 2), keepdims=True)

    def tails(values):
        return np.maximum(
            np.abs(np.einsum("ca,kab->kcb", last, values)).max(axis=(1, 2)),
            np.abs(np.einsum("cb,kab->kca", last, values)).max(axis=(1, 2)),
        )

    logs = tails(np.maximum(blocks - top, FLOOR))
    return (logs < 1e-9) | (logs < tails(np.exp(blocks - top)))


def interpolate(a, blocks, b, logs):
    """Log of the interpolant (k, ., .) of blocks (k, n, n), by matrices (k, ., n) of both axes."""
    out = np.empty((len(blocks), a.shape[1], b.shape[1]))
    for flag in (True, False):
        here = logs == flag
        block = blocks[here]
        top = np.zeros((len(block), 1, 1)) if flag else block.max(axis=(1, 2), keepdims=True)
        values = block if flag else np.exp(block - top)
        found = a[here] @ values @ b[here].transpose(0, 2, 1)
        out[here] = found if flag else np.log(np.maximum(found, 1e-300)) + top
    return out


def _log_tensor(pre, x, setting):
    del setting
    order = pre.logs.shape[1]
    i, z1, in1 = _local(pre.edges[0], x[:, 0])
    j, z2, in2 = _local(pre.edges[1], x[:, 1])
    block = pre.logs[i, :, j, :]
    a, b = lagrange(z1, order)[:, None], lagrange(z2, order)[:, None]
    k1, _, k2, _ = pre.logs.shape
    flags = in_logs(pre.logs.transpose(0, 2, 1, 3).reshape(-1, order, order)).reshape(k1, k2)
    logs = interpolate(a, block, b, flags[i, j])[:, 0, 0]
    return np.where(in1 & in2, logs, -np.inf)


def _log_tree(pre, x, setting):
    del setting
    order = pre.logs.shape[1]
    out = np.full(len(x), -np.inf)
    flags = in_logs(pre.logs)
    for k, (edges, logs) in enumerate(zip(pre.edges, pre.logs, strict=True)):
        here = np.all((x >= edges[:, 0]) & (x <= edges[:, 1]), axis=1)
        if here.any():
            z = (2 * x[here] - edges.sum(axis=1)) / (edges[:, 1] - edges[:, 0])
            a, b = lagrange(z[:, 0], order)[:, None], lagrange(z[:, 1], order)[:, None]
            block = np.broadcast_to(logs, (len(z), *logs.shape))
            out[here] = interpolate(a, block, b, np.full(len(z), flags[k]))[:, 0, 0]
    return out


class Filter:
    """The recursion; `post` is a Tree of the normalised posterior in z."""

    def __init__(self, truth, setting):
        self.truth, self.setting = truth, setting
        self.deep = truth.deep * setting.deeper
        self.post = None

    def start(self):
        truth = self.truth
        low, high = (np.array(corner, dtype=float) for corner in truth.prior)
        if truth.box is None:
            more = 0.3 * (self.setting.deeper - 1) * (high - low)
            low, high = low - more, high + more
        else:
            low, high = np.maximum(low, truth.box[0]), np.minimum(high, truth.box[1])
        spans = [
            split_edges(low[i], high[i], (high[i] - low[i]) / 12, truth.breaks[i]) for i in (0, 1)
        ]
        edges = np.stack(
            [np.repeat(spans[0], len(spans[1]), axis=0), np.tile(spans[1], (len(spans[0]), 1))],
            axis=1,
        )
        log_jacobian = np.log(jacobian(truth))

        def log_fn(points, _):
            return truth.log_prior(to_state(truth, points.reshape(-1, 2))) + log_jacobian

        self._settle(edges, log_fn, 1)

    def predict(self, t):
        truth, setting = self.truth, self.setting
        x, w = points(truth, self.post.edges, setting)
        logs = self.post.logs.ravel()
        mass = np.where(logs > logs.max() - self.deep, np.exp(logs) * w, 0.0)
        u = to_state(truth, x).reshape(len(self.post.edges), -1, 2)
        mass = mass.reshape(u.shape[:2])
        centre = np.asarray(truth.centre(u.reshape(-1, 2), t)).reshape(-1, *u.shape)
        low, high = centre.min(axis=(0, 2)), centre.max(axis=(0, 2))  # of each rectangle
        reach = np.sqrt(2 * self.deep) if truth.reach == "gauss" else self.deep
        edges = []
        for i in (0, 1):
            if truth.reach == "box":
                spans = [(truth.box[0][i], truth.box[1][i])]
            else:
                far = truth.spread + reach * truth.width[i]
                branches = [
                    np.stack([c.min(axis=1) - far, c.max(axis=1) + far], axis=1)
                    for c in centre[..., i]
                ]
                both = np.concatenate(branches)
                if truth.box is not None:
                    both = np.clip(both, truth.box[0][i], truth.box[1][i])
                spans = merge(both[both[:, 1] > both[:, 0]])
            cuts = [
                split_edges(a, b, setting.step * truth.width[i], truth.breaks[i]) for a, b in spans
            ]
            edges.append(np.concatenate(cuts))
        return Tensor(tuple(edges), self._table(u, mass, low, high, edges, t))

    def _table(self, u, mass, low, high, edges, t):
        """Sum of the nodes' kernels, rectangle by rectangle, each within its own band.

        The band reaches past all windows, so that what it leaves out, exp(-2.5 deep), is less than
        anything that is looked at.
        """
        truth, order = self.truth, self.setting.wide
        z = [nodes(edge, order)[0].ravel() for edge in edges]
        total = np.zeros((len(z[0]), len(z[1])))
        far = np.inf
        if truth.reach != "box":
            far = truth.spread + np.sqrt(5 * self.deep) * np.asarray(truth.width)
        first = np.stack([np.searchsorted(z[i], (low - far)[:, i]) for i in (0, 1)])
        last = np.stack([np.searchsorted(z[i], (high + far)[:, i]) for i in (0, 1)])
        # without bands one product of many rectangles is faster than many products
        group = 1 if truth.reach != "box" else max(1, CHUNK // (max(total.shape) * u.shape[1]))
        for k in range(0, len(u), group):
            part, held = u[k : k + group].reshape(-1, 2), mass[k : k + group].ravel()
            keep = held > 0
            part, held = part[keep], held[keep]
            bands = [slice(first[i, k], last[i, k]) for i in (0, 1)]
            weights = np.zeros((1, len(part)))
            if truth.log_weight is not None:
                weights = truth.log_weight(part, t)
            for c, log_weight in enumerate(weights):
                # below exp(-600) nothing counts, and denormal numbers are slow
                tables = [
                    np.exp(np.maximum(truth.log_axis(i, part, z[i][bands[i]], t, c), -600))
                    for i in (0, 1)
                ]
                scaled = tables[0] * (held * np.exp(log_weight))[:, None]
                total[bands[0], bands[1]] += scaled.T @ tables[1]
        top = total.max()
        with np.errstate(divide="ignore"):
            logs = np.maximum(np.log(total / top), FLOOR) + np.log(top)
        return logs.reshape(len(edges[0]), order, len(edges[1]), order)

    def update(self, pre, ys, t):
        """Bayes' rule with rows of time t, none of them missing; returns the log of the mass."""
        truth = self.truth
        wide = self.setting.wide
        if isinstance(pre, Tree):  # the prior itself is observed
            edges, parents = pre.edges, pre.logs
            own, wide = pre.edges, self.setting.order
        else:
            k1, k2 = len(pre.edges[0]), len(pre.edges[1])
            edges = np.stack(
                [np.repeat(pre.edges[0], k2, axis=0), np.tile(pre.edges[1], (k1, 1))], axis=1
            )
            parents = pre.logs.transpose(0, 2, 1, 3).reshape(-1, wide, wide)
            own = edges
        # `deep` counts prediction and likelihood together, so that no observation reaches further
        keep = parents.max(axis=(1, 2)) > parents.max() - 1.1 * self.deep

        flags = in_logs(parents)

        def log_fn(x, parent):
            z = self._inside(x, own[parent])
            a = lagrange(z[:, :, 0, 0], wide)
            b = lagrange(z[:, 0, :, 1], wide)
            logs = interpolate(a, parents[parent], b, flags[parent])
            state = to_state(truth, x.reshape(-1, 2))
            return logs.reshape(-1) + sum(truth.log_observation(state, y, t) for y in ys)

        return self._settle(edges[keep], log_fn, t + 1, np.nonzero(keep)[0])

    @staticmethod
    def _inside(x, edges):
        low, high = edges[:, None, None, :, 0], edges[:, None, None, :, 1]
        return np.clip((2 * x - low - high) / (high - low), -1, 1)

    def _settle(self, edges, log_fn, t, parent=None):
        """The normalised product on a tree of its own; `t` is the time of the next transition."""
        parent = np.arange(len(edges)) if parent is None else parent
        truth, setting = self.truth, self.setting
        n = setting.order
        done, floor = [], -np.inf
        for level in range(60):
            x, w = points(truth, edges, setting)
            shaped = x.reshape(-1, n, n, 2)
            logs = np.asarray(log_fn(shaped, parent), dtype=float)
            logs, w = logs.reshape(-1, n, n), w.reshape(-1, n, n)
            if np.isnan(logs).any():
                raise ValueError("the truth of this case has NaN values")
            peak = max(floor, logs.max())
            split, keep, axis = self._judge(edges, shaped, logs, w, peak, done, t, level)
            done.append((edges[keep], logs[keep], w[keep]))
            floor = peak
            if not split.any():
                break
            edges, parent = _halves(edges[split], axis[split]), np.tile(parent[split], 2)
            if len(edges) > 60_000:
                raise ValueError("the reference of this case takes too many rectangles")
        else:
            raise ValueError("60 levels of rectangles were not enough")
        edges, logs, w = (np.concatenate(part) for part in zip(*done, strict=True))
        near = logs.max(axis=(1, 2)) > floor - self.deep
        edges, logs, w = edges[near], logs[near], w[near]
        log_z = np.log(np.sum(np.exp(logs - floor) * w)) + floor
        self.post = Tree(edges, logs - log_z)
        return log_z

    def _judge(self, edges, x, logs, w, peak, done, t, level):
        """Which rectangles are split, which are kept, and along which axis."""
        truth, setting = self.truth, self.setting
        top = logs.max(axis=(1, 2))
        # what lies between two nodes is not much more than what they differ by
        finite = np.maximum(logs, peak - 1e6)
        steps = [np.abs(np.diff(finite, axis=i)).max(axis=(1, 2)) for i in (1, 2)]
        hidden = 2 * np.maximum(*steps)
        alive = np.isfinite(top) & (top + hidden > peak - self.deep)
        values = np.exp(logs - peak)
        mass = np.sum(values * w) + sum(np.sum(np.exp(g - peak) * v) for _, g, v in done)
        _, unit, _, coefficients = rule(setting.order)
        last = coefficients[-2:]
        area = np.prod(edges[:, :, 1] - edges[:, :, 0], axis=1) / 2
        tails = (
            np.stack(
                [
                    np.einsum("kcb,b->k", np.abs(np.einsum("ca,kab->kcb", last, values)), unit),
                    np.einsum("kac,a->k", np.abs(np.einsum("cb,kab->kac", last, values)), unit),
                ]
            )
            * area
        )
        centre = np.asarray(truth.centre(to_state(truth, x.reshape(-1, 2)), t))
        centre = centre.reshape(-1, *x.shape) / np.asarray(truth.width)
        moved = np.stack(
            [(centre.max(axis=i) - centre.min(axis=i)).max(axis=(0, 2, 3)) for i in (2, 3)]
        )
        falls = np.stack(steps)
        steep = (hidden > 12) & (level < STEEP_LEVELS)
        need = np.maximum(tails / (setting.tail * mass), moved / setting.move)
        need = np.where(steep & (need.max(axis=0) <= 1), falls, need)
        span = (edges[:, :, 1] - edges[:, :, 0]).max(axis=1)
        split = alive & ((need.max(axis=0) > 1) | steep) & (span > 1e-10)
        return split, alive & ~split, np.argmax(need, axis=0)


def _halves(edges, axis):
    row = np.arange(len(edges))
    mid = edges[row, axis].mean(axis=1)
    left, right = edges.copy(), edges.copy()
    left[row, axis, 1] = mid
    right[row, axis, 0] = mid
    return np.concatenate([left, right])
