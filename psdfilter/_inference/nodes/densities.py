"""A filtered density as it is known: a PSD model times squares, never multiplied out."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._density.anchors import TensorGrid
from ..._density.box import Box
from ..._density.conversions import change_units
from ..._density.operations import product
from ..._density.psd import AbstractDensity, GaussianPSD
from ..._gaussian.linalg import shrink_factor
from ..._statespace.functions import Inputs, Time
from ..numerics.grids import apply_last_axes
from ..sizing.contraction import Structure
from ..sizing.plan import AxisRegression, TransitionPlan
from ..sizing.tables import learn_coefficients
from .filled import Filled


class RootSquare(eqx.Module):
    """|c' chi(z)|^2 on a tensor grid of anchors, in unit coordinates.

    c has one column, or several along a last axis.
    """

    axes: tuple[Float[Array, " _"], ...]
    precision: Float[Array, " d"]
    coefficients: Float[Array, "..."]

    @staticmethod
    def make(
        regressions: Sequence[AxisRegression], coefficients: Float[Array, "..."]
    ) -> "RootSquare":
        """From the regressions of a plan."""
        return RootSquare(
            tuple(r.anchors for r in regressions),
            jnp.stack([r.precision for r in regressions]),
            coefficients,
        )

    def columns(self) -> Float[Array, "m r"]:
        """c as a factor of weights."""
        num = int(np.prod([axis.shape[0] for axis in self.axes]))
        return self.coefficients.reshape(num, -1)

    def __call__(self, z: Float[Array, " d"]) -> Float[Array, ""]:
        """The value at one point."""
        columns = contract_kernels(self.coefficients, self.axes, self.precision, z)
        return jnp.sum(jnp.square(columns))


def contract_kernels(
    tensor: Float[Array, "..."],
    axes: tuple[Float[Array, " _"], ...],
    precision: Float[Array, " k"],
    z: Float[Array, " k"],
) -> Float[Array, "..."]:
    """sum over the leading axes of a tensor against kernels k(z_l, anchors_l)."""
    for axis, anchors in enumerate(axes):
        kernel = jnp.exp(-precision[axis] * jnp.square(z[axis] - anchors))
        tensor = jnp.tensordot(kernel, tensor, axes=1)
    return tensor


class PredictedFactor(eqx.Module):
    """(C[m] . psi(x_group))^2 over the nodes m of the given axes."""

    rows: Float[Array, "..."]  # x anchors of the group ..., nodes of the given axes ...
    axes: tuple[Float[Array, " _"], ...]
    precision: Float[Array, " g"]
    given: tuple[int, ...] = eqx.field(static=True)
    group: tuple[int, ...] = eqx.field(static=True)

    @staticmethod
    def make(part: TransitionPlan, rows: Float[Array, "..."]) -> "PredictedFactor":
        """From a factor of the plan and its rows C."""
        num = len(part.given)
        back = (*range(num, rows.ndim), *range(num))
        return PredictedFactor(
            rows.transpose(back),
            tuple(r.anchors for r in part.group_regressions),
            jnp.stack([r.precision for r in part.group_regressions]),
            part.given,
            part.group,
        )

    def __call__(self, z: Float[Array, " d"], shape: tuple[int, ...]) -> Float[Array, "..."]:
        """Values at one point, with one axis for each old coordinate (of size one if idle)."""
        inner = z[np.asarray(self.group)]
        values = jnp.square(contract_kernels(self.rows, self.axes, self.precision, inner))
        return values.reshape(tuple(n if a in self.given else 1 for a, n in enumerate(shape)))


class ProductDensity(AbstractDensity):
    """f(x) = exp(log_scale) sum_m v_m prod_g (C_g[m] . psi_g(x))^2 prod_i (chi(x) . c_i)^2.

    A PSD model with factor L = C' diag(sqrt v) times squares, x in user units, kept in factors so
    that evaluation costs a few small products. `expand()` multiplies out to a `GaussianPSD`.
    """

    box: Box
    source: Float[Array, "..."] | None  # v, one axis for each coordinate; None before any step
    factors: tuple[PredictedFactor, ...]
    squares: tuple[RootSquare, ...]
    log_scale: Float[Array, ""]

    @staticmethod
    def predicted(
        model: Filled,
        rows: Sequence[Float[Array, "..."]],
        source: Float[Array, " n"],
        roots: Sequence[Float[Array, "..."]],
        log_scale: Float[Array, ""],
    ) -> "ProductDensity":
        """After a transition: weights `source` at the nodes, rows C_g, roots of G^."""
        plan = model.plan
        return ProductDensity(
            plan.box,
            source.reshape(plan.shape),
            tuple(PredictedFactor.make(p, r) for p, r in zip(plan.transitions, rows, strict=True)),
            tuple(RootSquare.make(plan.observation, c) for c in roots),
            log_scale - jnp.sum(jnp.log(plan.box.half_width)),
        )

    @staticmethod
    def of_prior(
        model: Filled, roots: Sequence[Float[Array, "..."]], log_scale: Float[Array, ""]
    ) -> "ProductDensity":
        """Before any transition: the square of the prior's root, times squares."""
        plan = model.plan
        squares = [RootSquare.make(plan.prior, model.prior_root)]
        squares += [RootSquare.make(plan.observation, c) for c in roots]
        scale = log_scale - jnp.sum(jnp.log(plan.box.half_width))
        return ProductDensity(plan.box, None, (), tuple(squares), scale)

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.box.dim

    def _scaled_value(self, x: Float[Array, " d"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        z = (x - self.box.center) / self.box.half_width
        value = jnp.ones(())
        if self.source is not None:
            terms = self.source
            for factor in self.factors:
                terms = terms * factor(z, self.source.shape)
            value = jnp.sum(terms)
        for square in self.squares:
            value = value * square(z)
        return value, self.log_scale

    def expand(self) -> GaussianPSD:
        """The same density as one `GaussianPSD` in user units, all products multiplied out."""
        models = [] if self.source is None else [self._expand_prediction()]
        models += [GaussianPSD(TensorGrid(s.axes), s.columns(), s.precision) for s in self.squares]
        whole = models[0]
        for model in models[1:]:
            whole = product(whole, model)
        # change_units divides by the half-widths, which log_scale has done already.
        log_scale = whole.log_scale + self.log_scale + jnp.sum(jnp.log(self.box.half_width))
        whole = eqx.tree_at(lambda m: m.log_scale, whole, log_scale)
        return change_units(whole, self.box.center, self.box.half_width)

    def _expand_prediction(self) -> GaussianPSD:
        """A = C' diag(v) C on the tensor grid of the x anchors of all factors."""
        assert self.source is not None
        shape = self.source.shape
        factor = jnp.sqrt(self.source)[None]
        for part in self.factors:
            anchors = tuple(a.shape[0] for a in part.axes)
            size = tuple(n if a in part.given else 1 for a, n in enumerate(shape))
            rows = part.rows.reshape(1, int(np.prod(anchors)), *size)
            factor = (factor[:, None] * rows).reshape(-1, *shape)
        order = [axis for part in self.factors for axis in part.group]
        axes = [a for part in self.factors for a in part.axes]
        precision = jnp.concatenate([part.precision for part in self.factors])
        back = tuple(int(i) for i in np.argsort(order))
        tensor = factor.reshape(*(a.shape[0] for a in axes), -1)
        tensor = tensor.transpose(*back, len(axes))
        grid = TensorGrid([axes[i] for i in back])
        wide = tensor.reshape(-1, tensor.shape[-1])
        return GaussianPSD(grid, shrink_factor(wide), precision[np.asarray(back)])


class SmoothedDensity(AbstractDensity):
    """f(x) = filtered(x) beta(x),  beta(x) = sum_j b_j prod_g (phi(x)'R_g[:, j])^2.

    In user units.
    """

    filtered: ProductDensity
    columns: tuple[Float[Array, "..."], ...]  # R_g: u anchors of the given axes ..., nodes of x_g
    axes: tuple[tuple[Float[Array, " _"], ...], ...]
    precisions: tuple[Float[Array, " _"], ...]
    sink: Float[Array, "..."]  # b, one axis for each new coordinate
    log_scale: Float[Array, ""]
    structure: Structure = eqx.field(static=True)

    @staticmethod
    def make(
        filtered: ProductDensity,
        model: Filled,
        transition: tuple[Time, Inputs],
        sink: Float[Array, " n"],
        log_scale: Float[Array, ""],
    ) -> "SmoothedDensity":
        """From a filtered density and what is known after its next transition (step, inputs)."""
        plan, columns = model.plan, []
        for part in plan.transitions:
            coefficients, scale = learn_coefficients(plan, part, model.ssm, *transition)
            at_x = tuple(
                r.kernel(plan.nodes[a])
                for r, a in zip(part.group_regressions, part.group, strict=True)
            )
            columns.append(apply_last_axes(coefficients, at_x))
            log_scale = log_scale + scale
        parts = plan.transitions
        return SmoothedDensity(
            filtered,
            tuple(columns),
            tuple(tuple(r.anchors for r in p.given_regressions) for p in parts),
            tuple(
                jnp.stack([r.precision for r in p.given_regressions]) if p.given else jnp.zeros(0)
                for p in parts
            ),
            sink.reshape(plan.shape),
            log_scale,
            plan.structure,
        )

    @property
    def dim(self) -> int:
        """Number of coordinates."""
        return self.filtered.dim

    def _scaled_value(self, x: Float[Array, " d"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
        value, log_scale = self.filtered._scaled_value(x)
        box = self.filtered.box
        z = (x - box.center) / box.half_width
        rows = []
        for (given, group), axes, precision, columns in zip(
            self.structure, self.axes, self.precisions, self.columns, strict=True
        ):
            inner = z[np.asarray(given, dtype=int)]
            values = jnp.square(contract_kernels(columns, axes, precision, inner))
            shape = tuple(n if a in group else 1 for a, n in enumerate(self.sink.shape))
            rows.append(values.reshape(shape))
        beta = self.sink
        for row in rows:
            beta = beta * row
        return value * jnp.sum(beta), log_scale + self.log_scale
