"""Models at several thetas on one box that holds all of theirs."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp

from .._density.box import Box
from .._statespace.boxes import box_along
from .._statespace.functions import GaussianSampler, GaussianStart, Inputs, Row, keywords_of
from .._statespace.hoisting import hoisted_function
from .._statespace.model import StateSpaceModel
from .._statespace.noise import as_noise
from .._statespace.structure import AdditiveGaussian
from .core import Build
from .settings import Settings
from .theta import Theta


def covering_ssm(build: Build, thetas: Sequence[Theta]) -> list[StateSpaceModel]:
    """The models at all thetas, on one box that holds all of theirs.

    A model is sized as it will be traced: where `build` gives the noise as a matrix, whose zeros
    cannot be seen under tracing, its transition counts as one factor.
    """
    ssms = []
    for theta in thetas:
        ssm = build(theta)
        if not isinstance(ssm, StateSpaceModel):
            raise ValueError(f"build must return a StateSpaceModel, got {type(ssm).__name__}")
        ssms.append(ssm)
    traced = eqx.filter_eval_shape(build, thetas[0])
    if traced.log_transition_axis is None:
        ssms = [_whole(ssm) for ssm in ssms]
    if len(ssms) == 1:
        return ssms
    lower = jnp.min(jnp.stack([s.state_box.lower for s in ssms]), axis=0)
    upper = jnp.max(jnp.stack([s.state_box.upper for s in ssms]), axis=0)
    box = Box(lower, upper, ssms[0].state_box.periodic)
    return [eqx.tree_at(lambda s: s.state_box, ssm, box) for ssm in ssms]


def along_inputs(ssms: Sequence[StateSpaceModel], settings: Settings) -> list[StateSpaceModel]:
    """The models on a box that also holds states driven by the inputs of the data."""
    return [_along_inputs(ssm, settings) for ssm in ssms]


def _along_inputs(ssm: StateSpaceModel, settings: Settings) -> StateSpaceModel:
    form = ssm.structure
    if not isinstance(form, AdditiveGaussian) or form.boxed or form.noise is not None:
        return ssm
    if not keywords_of(form.f):
        return ssm
    start = GaussianStart(form.m0, as_noise("P0", form.P0, ssm.dim, singular=True))
    noise, box = as_noise("Q", form.Q, ssm.dim, singular=True), ssm.state_box
    for part in settings.parts(ssm.num_observed):
        move = hoisted_function(form.f, form.m0, t=1, inputs=part.row(0))
        rows = without_feedback(part.rows)
        box = box_along(box, start, GaussianSampler(move, noise), part.steps, rows)
    return eqx.tree_at(lambda s: s.state_box, ssm, box)


def without_feedback(rows: Inputs) -> Inputs:
    """Rows in which nothing was seen before: simulated states have not caused what was seen.

    A state that is low on its own and is then given a large return of the data would be thrown far
    away by its leverage.
    """
    if isinstance(rows, Row) and rows.last_y is not None:
        return rows._replace(last_y=jnp.zeros_like(jnp.asarray(rows.last_y)))
    return rows


def _whole(ssm: StateSpaceModel) -> StateSpaceModel:
    """The model without the factors of its transition."""
    fields = {name: getattr(ssm, name) for name in ssm.__dataclass_fields__}
    return StateSpaceModel(**{**fields, "log_transition_axis": None})
