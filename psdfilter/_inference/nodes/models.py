"""The densities of a filled plan as PSD models: one by one, and in the user's units."""

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike

from ..._density.anchors import TensorGrid
from ..._density.box import Box
from ..._density.conversions import PSDModel, change_units, generalize
from ..._density.generalized import GeneralizedGaussianPSD
from ..._density.mass import log_integral, scale
from ..._density.operations import marginal, product, transition
from ..._density.psd import GaussianPSD
from ..sizing.plan import AxisRegression
from .densities import ProductDensity
from .filled import Filled

# Components of a product of factors beyond which it is not multiplied out: 10^5 at 2 d coordinates
# are some megabytes, and a second for a hundred evaluations.
_MAX_ORDER = 100_000


class Kernel(NamedTuple):
    """A transition Q(u_given, x): the old coordinates it depends on, and the model."""

    given: tuple[int, ...]
    model: GaussianPSD

    def apply(self, f: GaussianPSD, box: Box) -> GaussianPSD:
        """int Q(u, x) f(u) du."""
        if not self.given:
            return scale(self.model, log_integral(f, box))
        inner = box
        if len(self.given) < f.dim:
            f = marginal(f, self.given, box)
            inner = box.keep(self.given)
        return transition(self.model, f, inner)


def join_factors(
    factors: Sequence[GaussianPSD], structure: Sequence[tuple[tuple[int, ...], tuple[int, ...]]]
) -> Kernel:
    """prod_g Q_g(u_given, x_group) as one model of (u_given of all, x_0 ... x_{d-1})."""
    given = tuple(sorted({axis for of_u, _ in structure for axis in of_u}))
    place = {axis: index for index, axis in enumerate(given)}
    named = [
        tuple(place[a] for a in of_u) + tuple(len(given) + a for a in of_x)
        for of_u, of_x in structure
    ]
    if len(factors) == 1 and named[0] == tuple(range(factors[0].dim)):
        return Kernel(given, factors[0])
    # Each product must name its variables without gaps: number those met so far.
    whole, variables = factors[0], list(named[0])
    for factor, names in zip(factors[1:], named[1:], strict=True):
        met = sorted({*variables, *names})
        whole = product(
            whole, factor, [met.index(v) for v in variables], [met.index(v) for v in names]
        )
        variables = met
    return Kernel(given, whole)


def root_square(
    regressions: tuple[AxisRegression, ...], coefficients: Array, log_scale: ArrayLike = 0.0
) -> GaussianPSD:
    """|c' k(x)|^2 exp(log_scale) on the tensor grid of the regressions."""
    grid = TensorGrid([r.anchors for r in regressions])
    precision = jnp.stack([r.precision for r in regressions])
    num = int(np.prod([r.anchors.shape[0] for r in regressions]))
    return GaussianPSD(grid, coefficients.reshape(num, -1), precision, log_scale)


def density_of(filled: Filled, what: str) -> PSDModel:
    """The "prior", the "transition" Q^(u, x) or the "observation" G^(x, y), in user units."""
    if what == "prior":
        return ProductDensity.of_prior(filled, [], jnp.zeros(())).expand()
    return _transition(filled) if what == "transition" else _observation(filled)


def _transition(filled: Filled) -> PSDModel:
    if filled.tables is None:
        raise ValueError(
            "model.transition is that of a model fixed in time, and this one varies: it is filled "
            "anew at every step. Learn a model without t and inputs for one PSD model of (u, x)"
        )
    if filled.renormalize:
        raise ValueError(
            "model.transition is no PSD model once Q(u, .) is divided by its mass: learn with "
            'engine="nodes" without renormalize'
        )
    parts = filled.plan.transitions
    order = prod(
        r.anchors.shape[0] for p in parts for r in (*p.given_regressions, *p.group_regressions)
    )
    if order > _MAX_ORDER:
        raise ValueError(
            f"model.transition is a product of {len(parts)} factors, of order {order:.1g} when it "
            f"is multiplied out, above the limit of {_MAX_ORDER:.1g}: raise tol"
        )
    kernel = join_factors(eqx.filter_jit(_factors)(filled), filled.plan.structure)
    box, dim = filled.plan.box, filled.dim
    missing = tuple(a for a in range(dim) if a not in kernel.given)
    model = kernel.model if not missing else _constant_along(kernel, dim)
    center = jnp.concatenate([box.center, box.center])
    half = jnp.concatenate([box.half_width, box.half_width])
    # A density in x only: change_units divides by the half-widths of u as well.
    return scale(change_units(model, center, half), jnp.sum(jnp.log(box.half_width)))


def _factors(filled: Filled) -> tuple[GaussianPSD, ...]:
    return filled.transition_density()


def _constant_along(kernel: Kernel, dim: int) -> GeneralizedGaussianPSD:
    """The model of all coordinates (u, x), of precision zero along the u it does not need."""
    model = generalize(kernel.model)
    places = np.asarray([*kernel.given, *(dim + a for a in range(dim))])
    matrix = jnp.zeros((2 * dim, 2 * dim)).at[np.ix_(places, places)].set(model.precision)
    linear = jnp.zeros((model.order, 2 * dim)).at[:, places].set(model.linear)
    origin = jnp.zeros(2 * dim).at[places].set(model.origin)
    return GeneralizedGaussianPSD(
        model.factor, matrix, linear, model.offset, model.log_scale, origin
    )


def _observation(filled: Filled) -> PSDModel:
    joint = filled.joint
    if joint is None:
        raise ValueError(
            "model.observation is a PSD model of (x, y) only if it was learned as one: learn with "
            'engine=psdfilter.engines.Nodes(observation="joint"); here sqrt G(., y) is fitted to '
            "each observation"
        )
    regressions = (*filled.plan.observation, *joint.regressions)
    box = filled.plan.box
    center = jnp.concatenate([box.center, joint.box.center])
    half = jnp.concatenate([box.half_width, joint.box.half_width])
    # G^ is a density in the user's y already, so nothing is to be divided by.
    log_scale = joint.log_scale + jnp.sum(jnp.log(half))
    return change_units(root_square(regressions, joint.root, log_scale), center, half)
