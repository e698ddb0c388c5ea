"""The exact filter on the line, by adaptive panels of Gauss-Legendre nodes.

One step: the predicted density is computed, point by point, as the sum over the nodes of the last
posterior, on panels that are bisected until their Legendre series end; kinks of Q(., x) split the
panel of u in which they lie. Its interpolant times the likelihood is then resolved on panels of its
own, which costs nothing per point, so that narrow likelihoods may take all the levels they need.
All is done in logs and relative to the largest value.
"""

from dataclasses import dataclass

import numpy as np

from .quadrature import (
    Pieces,
    bisect,
    interpolate,
    lagrange,
    log_tails,
    merge,
    nodes,
    rule,
    split_edges,
)

CHUNK = 4_000_000  # entries of one table of log Q
BAND = 400  # rows of one table with a band


@dataclass(frozen=True)
class Setting:
    """order: nodes per panel; tail: size of the last Legendre coefficients against all mass;
    move: how many widths of Q a panel may be moved across; deeper: factor of `deep`."""

    order: int
    tail: float
    move: float
    deeper: float


COARSE = Setting(order=20, tail=1e-10, move=6.0, deeper=1.0)
FINE = Setting(order=24, tail=1e-11, move=4.5, deeper=1.3)


def width_of(truth, u, t):
    return truth.width(u, t) if callable(truth.width) else np.full(np.shape(u), truth.width)


def build(edges, log_fn, setting, deep, relative=False, too_wide=None):
    """Panels on which exp(log_fn) is resolved where it is above exp(-deep) of its maximum.

    A panel on which the log varies a lot may hide a peak higher than all its nodes: it is split as
    long as it could. `relative`: resolved against its own maximum as well, as tails must be that a
    later outlier will reach. `too_wide`: edges, nodes -> panels that must be split in any case.
    """
    _, _, _, coefficients = rule(setting.order)
    done_edges, done_logs, floor = [], [], -np.inf
    pending = edges
    for _ in range(60):
        x, w = nodes(pending, setting.order)
        logs = log_fn(x)
        if np.isnan(logs).any():
            raise ValueError("the truth of this case has NaN values")
        top, low = logs.max(axis=1), logs.min(axis=1)
        peak = max(floor, top.max())
        if not np.isfinite(peak):
            raise ValueError("the likelihood is zero everywhere")
        with np.errstate(invalid="ignore"):
            vary = np.where(np.isfinite(top), top - low, 0.0)
        values = np.exp(logs - peak)
        mass = np.sum(values * w) + sum(np.sum(np.exp(g - peak) * v) for g, v in done_logs)
        series = np.abs(values @ coefficients.T)[:, -3:].sum(axis=1)
        span = pending[:, 1] - pending[:, 0]
        bad = series * span > setting.tail * mass
        # a log whose own series ends hides no more than a step between neighbouring nodes; forty
        # nats are what the rule integrates
        finite = np.isfinite(logs).all(axis=1)
        known = log_tails(logs) < 1e-9 * (1 + 1e-3 * vary)
        step = np.abs(np.diff(np.where(finite[:, None], logs, 0.0), axis=1)).max(axis=1)
        hidden = np.where(known, 5 + step, vary)
        alive = np.where(np.isfinite(vary), top + hidden, np.inf) > peak - deep
        alive &= np.isfinite(top)
        bad |= np.isfinite(vary) & (vary > np.where(known, 40, 12))
        if relative:
            bad |= finite & ~known
        if too_wide is not None:
            bad |= too_wide(pending, x)
        scale = np.maximum(np.abs(pending).max(axis=1), 1e-3)
        split = alive & bad & (span > 1e-13 * scale)
        keep = alive & ~split
        done_edges.append(pending[keep])
        done_logs.append((logs[keep], w[keep]))
        floor = peak
        pending = bisect(pending[split])
        if len(pending) == 0:
            break
    else:
        raise ValueError("60 levels of panels were not enough")
    all_edges = np.concatenate(done_edges)
    all_logs = np.concatenate([g for g, _ in done_logs])
    near = all_logs.max(axis=1) > floor - deep
    order = np.argsort(all_edges[near, 0])
    return Pieces(all_edges[near][order], all_logs[near][order])


class Filter:
    """The recursion; `pre` and `post` are Pieces, `post` of the normalised posterior."""

    def __init__(self, truth, setting):
        self.truth, self.setting = truth, setting
        self.deep = truth.deep * setting.deeper
        self.relative = truth.deep > 50
        self.post = None

    def start(self):
        truth = self.truth
        if truth.start is not None:
            return
        low, high = self._reach_out(*truth.prior)
        edges = split_edges(low, high, (truth.prior[1] - truth.prior[0]) / 40, truth.breaks)
        prior = build(edges, truth.log_prior, self.setting, self.deep, self.relative)
        self.update(prior, [], 0)

    def _reach_out(self, low, high):
        # a deeper run looks further than the interval that was said to hold the prior
        more = 0.3 * (self.setting.deeper - 1) * (high - low)
        box = self.truth.box
        return (low - more, high + more) if box is None else (max(low, box[0]), min(high, box[1]))

    def predict(self, t):
        """Panels of the predicted density."""
        truth, setting = self.truth, self.setting
        if self.post is None:
            u, own = np.array([[truth.start]]), None
        else:
            u, own = nodes(self.post.edges, setting.order)[0], self.post
        self._u, self._own = u, own
        widths = width_of(truth, u, t)
        finest = widths.min()
        if truth.reach == "box":
            spans = [list(truth.box)]
        else:
            reach = np.sqrt(2 * self.deep) if truth.reach == "gauss" else self.deep
            far = truth.spread + reach * widths.max(axis=1)
            centre = np.asarray(truth.centre(u, t))
            centre = centre.reshape(-1, *u.shape)
            low = (centre.min(axis=2) - far).ravel()
            high = (centre.max(axis=2) + far).ravel()
            if truth.box is not None:
                low, high = np.clip(low, *truth.box), np.clip(high, *truth.box)
            inside = high > low
            spans = merge(np.stack([low[inside], high[inside]], axis=1))
        edges = [split_edges(a, b, 1.6 * setting.move * finest, truth.breaks) for a, b in spans]
        return build(
            np.concatenate(edges),
            lambda x: self.log_predicted(x, t),
            setting,
            self.deep,
            self.relative,
        )

    def log_predicted(self, x, t):
        shape = np.shape(x)
        x = np.ravel(x)
        truth = self.truth
        if self._own is None:
            return np.asarray(truth.log_transition(truth.start, x, t), dtype=float).reshape(shape)
        u, w = nodes(self._own.edges, self.setting.order)
        with np.errstate(divide="ignore"):
            mass = (self._own.logs + np.log(w)).ravel()
        u = u.ravel()
        if truth.reach != "gauss" or truth.kinks is not None:
            step = max(1, CHUNK // u.size)
            parts = [self._sum(x[i : i + step], u, mass, t) for i in range(0, len(x), step)]
            return np.concatenate(parts).reshape(shape)
        # a Gaussian that is further away than this is less than anything that is looked at
        far = truth.spread + np.sqrt(5 * self.deep) * width_of(truth, u, t).max()
        centre = np.asarray(truth.centre(u, t)).reshape(-1, u.size)
        out, order = np.full(len(x), -np.inf), np.argsort(x)
        for i in range(0, len(x), BAND):
            rows = order[i : i + BAND]
            near = (centre > x[rows[0]] - far) & (centre < x[rows[-1]] + far)
            near = near.any(axis=0)
            if near.any():
                out[rows] = self._sum(x[rows], u[near], mass[near], t)
        return out.reshape(shape)

    def _sum(self, x, u, mass, t):
        table = self.truth.log_transition(u[None, :], x[:, None], t) + mass
        if self.truth.kinks is not None:
            table = np.concatenate([table, self._split(x, table, t)], axis=1)
        top = table.max(axis=1)
        shift = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(divide="ignore"):
            return np.log(np.exp(table - shift[:, None]).sum(axis=1)) + shift

    def _split(self, x, table, t):
        """Panels of u with a kink leave the table; their parts on both sides of it come instead."""
        edges, order = self._own.edges, self.setting.order
        kinks = np.asarray(self.truth.kinks(x, t), dtype=float).reshape(len(x), -1)
        index = np.clip(np.searchsorted(edges[:, 0], kinks, side="right") - 1, 0, None)
        hit = (kinks > edges[index, 0]) & (kinks < edges[index, 1])
        at, column = np.nonzero(hit)
        table.reshape(len(x), len(edges), order)[at, index[at, column]] = -np.inf
        none = np.inf
        marks = np.concatenate(
            [np.where(hit, kinks, none)]
            + [np.where(hit, edges[index, side], none) for side in (0, 1)],
            axis=1,
        )
        marks = np.sort(marks, axis=1)
        low, high = marks[:, :-1], marks[:, 1:]
        with np.errstate(invalid="ignore"):
            mid = np.where(np.isfinite(high), 0.5 * (low + high), np.nan)
        # an interval between two marks counts if it lies in a panel that was taken out
        panel = np.clip(np.searchsorted(edges[:, 0], mid, side="right") - 1, 0, None)
        used = (high > low) & np.isfinite(high)
        used &= ((panel[:, :, None] == index[:, None, :]) & hit[:, None, :]).any(axis=2)
        row, piece = np.nonzero(used)
        extra = np.full((*used.shape, order), -np.inf)
        if len(row):
            low, high, panel = low[row, piece], high[row, piece], panel[row, piece]
            v, w = nodes(np.stack([low, high], axis=1), order)
            a, b = edges[panel, 0], edges[panel, 1]
            z = (2 * v - (a + b)[:, None]) / (b - a)[:, None]
            logs = np.repeat(self._own.logs[panel], order, axis=0)
            in_logs = np.repeat(self._own.in_logs[panel], order)
            log_p = interpolate(lagrange(z.ravel(), order), logs, in_logs).reshape(v.shape)
            log_q = self.truth.log_transition(v, x[row][:, None], t)
            extra[row, piece] = log_p + np.log(w) + log_q
        return extra.reshape(len(x), -1)

    def update(self, pre, ys, t):
        """Bayes' rule with rows of time t, none of them missing; returns the log of the mass."""
        truth, setting = self.truth, self.setting
        marks = truth.breaks
        if truth.sensor_breaks is not None:
            marks = (*marks, *(m for y in ys for m in truth.sensor_breaks(y, t)))
        fresh = 0.6 if ys else 1.1
        edges = np.concatenate([split_edges(a, b, (b - a) * fresh, marks) for a, b in pre.edges])

        def log_fn(x):
            return pre(x) + sum(truth.log_observation(x, y, t) for y in ys)

        def too_wide(_, x):
            centre = np.asarray(truth.centre(x, t + 1)).reshape(-1, *x.shape)
            moved = (centre.max(axis=2) - centre.min(axis=2)).max(axis=0)
            return moved > setting.move * width_of(truth, x, t + 1).min(axis=1)

        post = build(edges, log_fn, setting, self.deep, self.relative, too_wide)
        _, w = nodes(post.edges, setting.order)
        top = post.logs.max()
        log_z = np.log(np.sum(np.exp(post.logs - top) * w)) + top
        self.post = Pieces(post.edges, post.logs - log_z)
        return log_z


def points(truth, edges, setting):
    """Nodes (n,) and weights (n,) of the posterior's panels."""
    del truth
    x, w = nodes(edges, setting.order)
    return x.ravel(), w.ravel()


def log_values(pre, edges, x, setting):
    """Log of the predicted density at x."""
    del edges, setting
    return pre(x)


def slim(pre, edges):
    """Only the panels on which a posterior was kept."""
    hit = (pre.edges[:, 1] > edges[:, 0].min()) & (pre.edges[:, 0] < edges[:, 1].max())
    return Pieces(pre.edges[hit], pre.logs[hit])
