"""Questions to the law of one time: moments, distribution functions, quantiles, draws.

Between equispaced nodes a density is taken for the sum of sinc functions through them, whose
integral is known: as accurate as the rule of the nodes itself.
"""

import numpy as np
from jaxtyping import Float
from scipy import special

from .axes import Axis, children
from .law import Law, look
from .values import PlaneValues

# Halvings that find a quantile to the last digits.
_HALVINGS = 60
# Doublings of the nodes between which draws are uniform: they add 1/12 (h/4)^2 to a variance.
_DOUBLINGS = 2


def states(values: PlaneValues, law: Law) -> Float[np.ndarray, "n 2"]:
    """The nodes in user units."""
    return values.space.x_of(law.nodes)


def moments(
    values: PlaneValues, law: Law, masses: np.ndarray | None = None
) -> tuple[Float[np.ndarray, " 2"], Float[np.ndarray, "2 2"]]:
    """Mean and covariance in user units, with other masses at the nodes if they are given."""
    x = states(values, law)
    shares = law.masses if masses is None else masses
    mean = shares @ x
    gap = x - mean[None, :]
    return mean, gap.T @ (shares[:, None] * gap)


def _place(axis: Axis, z: np.ndarray) -> np.ndarray:
    """Where points lie on an axis, in intervals from its lower end."""
    part = np.clip((z - axis.low) / (axis.high - axis.low), -1.0, 2.0)
    if not axis.drawn:
        return part * axis.num
    grid = np.linspace(0.0, 1.0, 4097)
    fine = axis._replace(num=4096).nodes
    return np.interp(axis.low + part * (axis.high - axis.low), fine, grid) * axis.num


def _step(t: np.ndarray) -> np.ndarray:
    """int_{-inf}^t sin(pi s) / (pi s) ds."""
    return 0.5 + special.sici(np.pi * t)[0] / np.pi


def cdf(values: PlaneValues, law: Law, coordinate: int, x: np.ndarray) -> Float[np.ndarray, " k"]:
    """P(x_l <= x_k): along lines of one axis in closed form, over them by the rule of the nodes."""
    steep = (values.space.frame @ law.turn)[coordinate]  # x_l = steep . w
    widths = np.array([axis.high - axis.low for axis in law.axes])
    along = int(np.argmax(np.abs(steep) * np.where(widths > 0, widths, 1e-300)))
    axis, other = law.axes[along], law.axes[1 - along].nodes
    dense = np.zeros((law.axes[0].num + 1, law.axes[1].num + 1))
    dense[law.place[:, 0], law.place[:, 1]] = law.masses
    lines = np.moveaxis(dense, along, 0)
    scale, mixed = steep[along], steep[1 - along]
    used = np.flatnonzero(lines.sum(0) > 0)
    if mixed == 0:
        lines, other, used = lines.sum(1, keepdims=True), np.zeros(1), np.zeros(1, int)
    below = np.zeros(len(x))  # P(w_along <= threshold)
    for line in used:
        w = (x - mixed * other[line]) / scale
        if axis.num == 0:
            below += lines[0, line] * (w >= axis.low)
            continue
        gap = _place(axis, w)[:, None] - np.arange(axis.num + 1)[None, :]
        below += _step(gap) @ lines[:, line]
    return np.clip(below if scale > 0 else 1 - below, 0.0, 1.0)


def quantile(
    values: PlaneValues, law: Law, coordinate: int, levels: np.ndarray
) -> Float[np.ndarray, " k"]:
    """By bisection of the distribution function."""
    corners = np.array([[a, b] for a in _ends(law.axes[0]) for b in _ends(law.axes[1])])
    span = values.space.x_of(corners @ law.turn.T)[:, coordinate]
    low, high = np.full(len(levels), span.min()), np.full(len(levels), span.max())
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        below = cdf(values, law, coordinate, middle) < levels
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return 0.5 * (low + high)


def _ends(axis: Axis) -> tuple[float, float]:
    return axis.low, axis.high


def draw(
    values: PlaneValues, law: Law, rng: np.random.Generator, num: int, exact: bool
) -> Float[np.ndarray, "num 2"]:
    """Independent draws: a node, and a place in its cell.

    `exact`: of a finer lattice, on which the law is evaluated anew.
    """
    axes, index, masses = law.axes, law.place, law.masses
    if exact:
        mask = law.kept
        for _ in range(_DOUBLINGS):
            axes, mask = children(axes, mask, np.array([a.num > 0 for a in axes]))
        looked = look(values, law.source, law.seen, axes, law.turn, mask)
        index = looked.place
        weights = axes[0].weights[index[:, 0]] * axes[1].weights[index[:, 1]]
        masses = np.exp(looked.logs - np.max(looked.logs)) * weights
    picked = index[rng.choice(len(masses), size=num, p=masses / np.sum(masses))]
    w = np.zeros((num, 2))
    for k in range(2):
        grid, moves = axes[k].nodes, axes[k].num > 0
        place = picked[:, k] + rng.uniform(-0.5, 0.5, size=num) * moves
        w[:, k] = np.interp(np.clip(place, 0, axes[k].num), np.arange(len(grid)), grid)
    return values.space.x_of(w @ law.turn.T)
