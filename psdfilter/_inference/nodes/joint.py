"""G learned once, jointly over (x, y), instead of anew for every observation.

    G^(x, y) = exp(log_scale) (chi(x)' b omega(y))^2,      b on tensor grids of anchors of x and y,
    G^(x, y_t) = exp(log_scale) (chi(x)' c)^2,             c = b omega(y_t)

Being a PSD model in (x, y) it can be integrated over coordinates of y in closed form. With
Gamma = int omega omega' over the box of y, R R' = Gamma, the marginal over missing coordinates is
|R' b' chi(x)|^2, of as many columns as they have anchors; over all of y it is g(x), by which the
likelihood is normalised; and the law of y given the past is omega(y)' [b' X b] omega(y) with
X = int chi chi' p. Everything but X, a sum over the nodes of the filter, is a closed form.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._density.anchors import TensorGrid
from ..._density.box import Box
from ..._density.conversions import change_units
from ..._density.pairs import joint_matrices, pair_integrals
from ..._density.psd import GaussianPSD
from ..._gaussian.integrals import scaled_interval_mass
from ..._gaussian.linalg import psd_root, shrink_factor
from ..._statespace.model import StateSpaceModel, keywords_of, log_observation_grid
from ..numerics.grids import AxisNodes, apply_axes, finite_peak, grid_points
from ..sizing.plan import AxisRegression, Plan
from ..sizing.tables import fit_axes


class JointObservation(eqx.Module):
    """The learned G^ and what the filter needs of it at its nodes.

    Attributes:
        box: where y lives.
        regressions: along each coordinate of y.
        root: b, x anchors ..., y anchors ...
        log_scale: of the square; G^ is a density in the user's y.
        table: b' chi at the nodes of the filter, (n, y anchors ...).
        gram_roots: R for each coordinate of y, unit coordinates.
        mass: int G^(x, y) dy over the box of y, at the nodes.
    """

    box: Box
    regressions: tuple[AxisRegression, ...]
    root: Float[Array, "..."]
    log_scale: Float[Array, ""]
    table: Float[Array, "n ..."]
    gram_roots: tuple[Float[Array, "_ _"], ...]
    mass: Float[Array, " n"]

    @staticmethod
    def make(
        plan: Plan, ssm: StateSpaceModel, box: Box, regressions: tuple[AxisRegression, ...]
    ) -> "JointObservation":
        """Learn sqrt G on the tensor grid of the training nodes of x and y."""
        logs = _training_logs(ssm, plan, box, regressions)
        fill = eqx.filter_jit(_fill)
        return JointObservation(box, regressions, *fill(plan, box, regressions, logs))

    @property
    def num_coordinates(self) -> int:
        """How many coordinates y has."""
        return len(self.regressions)

    def contains(self, y: Float[Array, " p"]) -> Array:
        """Whether the coordinates of y that are not missing lie in the box."""
        inside = (y >= self.box.lower) & (y <= self.box.upper)
        return jnp.all(inside | jnp.isnan(y))

    def factors(self, y: Float[Array, " p"], partly: bool) -> tuple[Float[Array, "_ _"], ...]:
        """For each coordinate omega(y_l), or R_l if it is missing, as a matrix (m_l, r_l).

        Unless `partly`, r_l = 1. Otherwise the columns past the first of omega are zero: shapes do
        not depend on what is missing.
        """
        gaps = jnp.isnan(y)
        unit = (jnp.where(gaps, self.box.center, y) - self.box.center) / self.box.half_width
        out = []
        for axis, (regression, root) in enumerate(
            zip(self.regressions, self.gram_roots, strict=True)
        ):
            column = regression.kernel(unit[axis][None])[0][:, None]
            if partly:
                seen = jnp.pad(column, ((0, 0), (0, root.shape[1] - 1)))
                missing = root * jnp.sqrt(self.box.half_width[axis])
                column = jnp.where(gaps[axis], missing, seen)
            out.append(column)
        return tuple(out)

    def coefficients(self, y: Float[Array, " p"], partly: bool = False) -> Float[Array, "..."]:
        """c (x anchors ...), or (x anchors ..., r) for a marginal: G^ = e^log_scale |c' chi|^2."""
        return _contract(self.root, self.factors(y, partly), partly)

    def at_nodes(self, y: Float[Array, " p"], partly: bool = False) -> Float[Array, " n"]:
        """G^(z, y) exp(-log_scale) at the nodes of the filter."""
        return self.squares(self.table, y, partly)

    def squares(
        self, table: Float[Array, "n ..."], y: Float[Array, " p"], partly: bool = False
    ) -> Float[Array, " n"]:
        """G^(x, y) exp(-log_scale), for x where `table` was made."""
        roots = _contract(table, self.factors(y, partly), partly)
        return jnp.sum(jnp.square(roots), axis=1) if partly else jnp.square(roots)

    def likelihoods(
        self, ys: Float[Array, "t p"], missing: Array, partly: bool
    ) -> tuple[Float[Array, "t n"], Float[Array, " t"]]:
        """G^ at the nodes for several times, one where nothing is seen; and its log-scales."""
        # A place in the box for what is not used keeps NaN out of derivatives.
        safe = jnp.where(missing[:, None], self.box.center[None, :], ys)
        values = jax.vmap(lambda y: self.at_nodes(y, partly))(safe)
        scale = jnp.where(missing, 0.0, self.log_scale)
        return jnp.where(missing[:, None], 1.0, values), scale

    def log_normalizers(self, shares: Float[Array, "t n"]) -> Float[Array, " t"]:
        """log D = log int g p of predictions with masses `shares` at the nodes."""
        totals = shares @ self.mass
        return jnp.log(jnp.where(totals > 0, totals, 1.0))

    def logs(self, plan: Plan, y: Float[Array, " p"], partly: bool = False) -> Float[Array, " k"]:
        """log G^(., y) at the training points of sqrt G."""
        nodes = tuple(r.nodes for r in plan.observation)
        return jnp.log(self.squares(self.tabulate(plan, nodes), y, partly)) + self.log_scale

    def tabulate(self, plan: Plan, nodes: tuple[Float[Array, " _"], ...]) -> Float[Array, "n ..."]:
        """b' chi on a tensor grid of other nodes of x."""
        return _table(plan, self.root, nodes)

    def values(self, table: Float[Array, "n ..."], y: Float[Array, "k p"]) -> Float[Array, "n k"]:
        """G^(x_i, y_j), for x where `table` was made."""
        values = jax.vmap(lambda point: self.squares(table, point), out_axes=1)(y)
        return jnp.exp(self.log_scale) * values

    def law(self, shares: Float[Array, " n"]) -> GaussianPSD:
        """The density of y for x of masses `shares` at the nodes, of mass one on the box of y."""
        table = self.table.reshape(self.table.shape[0], -1)
        factor = shrink_factor(table.T * jnp.sqrt(shares)[None, :])
        grid = TensorGrid([r.anchors for r in self.regressions])
        precision = jnp.stack([r.precision for r in self.regressions])
        log_scale = self.log_scale + jnp.sum(jnp.log(self.box.half_width))
        log_scale = log_scale - jnp.log(shares @ self.mass)
        unit = GaussianPSD(grid, factor, precision, log_scale)
        return change_units(unit, self.box.center, self.box.half_width)

    def cdf(self, shares: Float[Array, "t n"], y: Float[Array, " t"]) -> Float[Array, " t"]:
        """P(Y <= y) of a scalar y, in error functions, for x of masses `shares` at the nodes."""
        anchors, eta = self.regressions[0].anchors, self.regressions[0].precision
        middle = 0.5 * (anchors[:, None] + anchors[None, :])
        cross = jnp.exp(-0.5 * eta * jnp.square(anchors[:, None] - anchors[None, :]))
        unit = jnp.clip((y - self.box.center[0]) / self.box.half_width[0], -1.0, 1.0)

        def one(share: Float[Array, " n"], end: Float[Array, ""]) -> Float[Array, ""]:
            weights = cross * (self.table.T @ (share[:, None] * self.table))
            ends = jnp.stack([-jnp.ones(()), end, jnp.ones(())])

            def mass(low: Array, high: Array) -> Array:
                part, tail = scaled_interval_mass(low, high, middle, 2 * eta)
                return jnp.sum(weights * part * jnp.exp(-tail))

            below, above = mass(ends[0], ends[1]), mass(ends[1], ends[2])
            return jnp.clip(below / (below + above), 0.0, 1.0)

        return jax.lax.map(lambda a: one(*a), (shares, unit))


def _contract(
    tensor: Float[Array, "..."], factors: tuple[Float[Array, "_ _"], ...], partly: bool
) -> Float[Array, "..."]:
    """The last axes of a tensor against one matrix each; their columns make one last axis."""
    first = tensor.ndim - len(factors)
    for axis, factor in enumerate(factors, start=first):
        tensor = jnp.moveaxis(jnp.tensordot(tensor, factor, axes=(axis, 0)), -1, axis)
    lead = tensor.shape[:first]
    return tensor.reshape(*lead, -1) if partly else tensor.reshape(lead)


def _table(plan: Plan, root: Float[Array, "..."], nodes: AxisNodes) -> Float[Array, "n ..."]:
    kernels = tuple(r.kernel(z) for r, z in zip(plan.observation, nodes, strict=True))
    values = apply_axes(root, kernels)
    return values.reshape(-1, *root.shape[len(kernels) :])


def _training_logs(
    ssm: StateSpaceModel, plan: Plan, box: Box, regressions: tuple[AxisRegression, ...]
) -> Float[Array, "n k"]:
    x = plan.training_points()
    y = grid_points(box, tuple(r.nodes for r in regressions))
    t = 1 if "t" in keywords_of(ssm.log_observation) else None
    if ssm.vectorized:
        return log_observation_grid(ssm, x, y, t, None)
    return eqx.filter_jit(log_observation_grid)(ssm, x, y, t, None)


def _fill(
    plan: Plan, box: Box, regressions: tuple[AxisRegression, ...], logs: Float[Array, "n k"]
) -> tuple[Array, Array, Array, tuple[Array, ...], Array]:
    """b, its log-scale, the table at the nodes, R, and the mass in y at the nodes."""
    logs = jnp.where(jnp.isnan(logs), -jnp.inf, logs)
    peak = jax.lax.stop_gradient(finite_peak(logs))
    both = (*plan.observation, *regressions)
    roots = jnp.exp(0.5 * (logs - peak)).reshape(tuple(r.nodes.shape[0] for r in both))
    root = fit_axes(roots, both)
    gram_roots = []
    unit = Box(-np.ones(1), np.ones(1))
    for r in regressions:
        pairs = pair_integrals(r.anchors[:, None], r.precision[None], unit)
        (gram,) = joint_matrices(pairs, pairs.masses)
        gram_roots.append(psd_root(gram * jnp.exp(pairs.log_scale)))
    table = _table(plan, root, plan.nodes)
    columns = _contract(table, tuple(gram_roots), True)
    log_volume = jnp.sum(jnp.log(box.half_width))
    mass = jnp.exp(peak + log_volume) * jnp.sum(jnp.square(columns), axis=1)
    return root, peak, table, tuple(gram_roots), mass
