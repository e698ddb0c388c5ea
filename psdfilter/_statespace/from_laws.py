"""The parts of a state-space model that is given by distributions."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from .._checks import require_x64
from .._density.box import Box
from .coordinates import Coordinates, Real, as_support
from .distributions import (
    Distribution,
    LawObservation,
    LawPrior,
    LawPriorSampler,
    LawSampler,
    LawTransition,
    LawTransitionAxis,
    as_leaves,
    check_distribution,
    draw,
    is_product,
    joined,
    size_of_law,
    support_of,
)
from .functions import AbstractFunction, Parts, Row, as_function, call
from .gaussian_laws import additive_parts, gaussian_of
from .simulation import typical_boxes
from .state_before import refuse_state_before
from .tails import Densities


class Given(NamedTuple):
    """What the user gave: laws, and what belongs to a typical step."""

    prior: Distribution
    transition: Callable[..., Distribution]
    observation: Callable[..., Distribution]
    row: Row


class Made(NamedTuple):
    """What a model is made of."""

    functions: Parts
    coordinates: Coordinates | None
    box: Box
    reach: Box | None
    dim: int
    num_observed: int
    gaussian: "Gaussian | None"


class Gaussian(NamedTuple):
    """f, h, Q, R, m0 and P0 of normal laws around functions; h and R perhaps None."""

    f: AbstractFunction
    h: AbstractFunction | None
    Q: Array
    R: Array | None
    m0: Array
    P0: Array


def parts_of(given: Given, support: object) -> Made:
    """Functions, coordinates and the box of simulated states."""
    require_x64()
    check_distribution("prior", given.prior)
    for name in ("transition", "observation"):
        fn = getattr(given, name)
        if not callable(fn) or hasattr(fn, "log_prob"):
            raise ValueError(
                f"{name} must be a function of the state that returns a distribution, got "
                f"{type(fn).__name__}"
            )
    refuse_state_before("observation", given.observation)
    prior = as_leaves(given.prior)
    move, see = as_function(given.transition), as_function(given.observation)
    dim = size_of_law("prior", prior)
    start = draw(prior, jax.random.key(0))
    moved = _law_at("transition", move, start, given.row)
    if size_of_law("transition", moved) != dim:
        raise ValueError(
            f"transition must return a distribution of {dim} coordinates, as prior has, got "
            f"{size_of_law('transition', moved)}"
        )
    seen = _law_at("observation", see, start, given.row)
    coordinates = _coordinates(support, prior, moved, dim)
    lives = support_of("observation", seen)
    functions: Parts = {
        "log_prior": LawPrior(prior),
        "log_transition": LawTransition(move),
        "log_observation": LawObservation(see),
        "sample_prior": LawPriorSampler(prior),
        "sample_transition": LawSampler(move),
        "sample_observation": LawSampler(see),
        "marginalizes_missing": is_product(seen),
        "counts": lives.discrete,
        "seen_axis": lives.axes[0] if len(lives.axes) == 1 and not lives.discrete else None,
    }
    if dim > 1 and is_product(moved):
        functions["log_transition_axis"] = LawTransitionAxis(move, dim)
    samplers = LawPriorSampler(prior), LawSampler(move), LawSampler(see)
    own = Coordinates((Real(),) * dim) if coordinates is None else coordinates
    first, row = _first(given, seen), given.row._replace(last_y=None)
    densities = Densities(
        functions["log_prior"], functions["log_transition"], own, row._replace(last_y=first)
    )
    box, reach = typical_boxes(samplers, densities, row, first)
    gaussian = None if coordinates is not None else _gaussian(prior, move, see, start, given.row)
    return Made(functions, coordinates, box, reach, dim, size_of_law("observation", seen), gaussian)


def _gaussian(
    prior: Distribution, move: AbstractFunction, see: AbstractFunction, x: Array, row: Row
) -> Gaussian | None:
    """The structure of a model whose transition is additive Gaussian noise."""
    start, moved = gaussian_of(prior), additive_parts(move, x, row)
    if start is None or moved is None:
        return None
    f, Q = moved
    h, R = additive_parts(see, x, row) or (None, None)
    return Gaussian(f, h, Q, R, *start)


def _first(given: Given, seen: Distribution) -> Array:
    """What is taken for the observation before the first where paths are simulated."""
    if given.row.last_y is not None:
        return jnp.asarray(given.row.last_y)
    return jnp.zeros(size_of_law("observation", seen))


def _law_at(name: str, fn: AbstractFunction, x: Array, row: Row) -> Distribution:
    if "inputs" in fn.keywords.required and row.inputs is None:
        raise ValueError(f"inputs must be given, one typical row: {name} takes them")
    try:
        law = call(fn, x, t=1, inputs=row)
    except TypeError as error:
        raise ValueError(
            f"{name} must be a JAX function of one state of shape {x.shape}, but it failed on one: "
            f"{error}"
        ) from error
    check_distribution(f"{name}(x)", law)
    return law


def _coordinates(
    support: object, prior: Distribution, moved: Distribution, dim: int
) -> Coordinates | None:
    """Those that were asked for, or the supports of both laws joined."""
    if support is not None:
        given = as_support(support)
        assert given is not None
        return given.of_dim(dim)
    both = support_of("prior", prior), support_of("transition", moved)
    for name, law, one in zip(("prior", "transition"), (prior, moved), both, strict=True):
        if one.discrete:
            raise ValueError(
                f"{name} must be a distribution of real numbers, got {_name(law)}, whose values "
                "are whole: the state of these filters is continuous"
            )
    found = joined(*both)
    return None if found.is_identity else found


def _name(law: Distribution) -> str:
    return type(law).__name__
