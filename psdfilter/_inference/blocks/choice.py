"""Whether a model is one of blocks, and why."""

from typing import Any

from ..._checks import is_traced
from ..._statespace.model import AdditiveGaussian, LinearGaussian, StateSpaceModel
from .compressed import learn_compressed
from .exact import learn_exact
from .model import AbstractBlocksModel
from .noise_share import RESOLVED, choose_linearized, noise_share


def learn_blocks(
    ssm: StateSpaceModel,
    engine: str,
    tol: float,
    *,
    order: int | None = None,
    measured: Any = None,
) -> AbstractBlocksModel | None:
    """The model learned by this engine; None if "auto" leaves it to another one."""
    structure = ssm.structure
    if structure is None:
        if engine == "auto":
            return None
        raise ValueError(
            'engine="blocks" needs linear-Gaussian dynamics, as linear_gaussian(...) makes them, '
            "or additive Gaussian noise, as additive_gaussian(...)"
        )
    if isinstance(structure, AdditiveGaussian):
        return choose_linearized(ssm, structure, engine, tol, order)
    if structure.H is None:
        return _choose_compressed(ssm, structure, engine, tol, order, measured)
    if engine == "auto":
        # A box in one or two dimensions is a statement about the model, and nodes can honour it.
        confined = structure.boxed and ssm.dim <= 2
        if confined or structure.prior_is_function:
            return None
    return learn_exact(ssm, "linear-Gaussian dynamics and sensor, on all of R^d")


def _choose_compressed(
    ssm: StateSpaceModel,
    structure: LinearGaussian,
    engine: str,
    tol: float,
    order: int | None,
    measured: Any,
) -> AbstractBlocksModel | None:
    """The mixture engine; in one or two dimensions a grid that resolves the noise is better."""
    reason = "asked for"
    if engine == "auto":
        reason = "linear-Gaussian dynamics with a log_observation, on all of R^d"
        if structure.prior_is_function:
            return None
        if ssm.dim <= 2 and not is_traced((structure, ssm.state_box)):
            share, least = noise_share(ssm, structure), RESOLVED[ssm.dim]
            if share >= least:
                return None
            reason = (
                f"the noise is {share:.1e} of the box's half-width; a grid in {ssm.dim}-d needs "
                f"{least:.1e}"
            )
    return learn_compressed(ssm, tol, reason, order=order, measured=measured)
