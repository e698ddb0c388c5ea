"""`learned`: PSD models that were made elsewhere become a filter."""

import time
import warnings
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from ..._checks import is_traced, require_x64, verified
from ..._density.blocks import GaussianBlocks
from ..._density.box import Box, as_box
from ..._density.conversions import Model, PSDModel, generalize
from ..._density.mass import BoxLike, positive_mass
from ..._density.psd import AbstractDensity, GaussianPSD
from ..closed.reference import ReferenceModel
from ..model import AbstractModel
from ..notices import NO_DENSITY
from ..report import Report
from .masses import Masses, masses_of
from .model import GivenModel
from .reference import GivenParts
from .table import tabulate
from .triple import Triple

# A relative error of every integral that filters of a thousand steps do not notice; ladders of
# nodes end a factor 1.3 above what it asks for, where the error is far smaller still.
_TOL = 1e-10
# Share of mass that is missing, or too much, in a typical step and calls for a word.
_LARGE_GAP = 0.05


def learned(
    *,
    prior: AbstractDensity,
    transition: AbstractDensity,
    observation: AbstractDensity,
    box: BoxLike | None,
    engine: str = "nodes",
    observation_box: BoxLike | None = None,
    tol: float = _TOL,
) -> AbstractModel:
    """The filter of three PSD models: Algorithm 2 on (prior, Q^, G^) of any origin.

    The models may come from `learn_rank_one`, `learn_full_rank`, `learn_generalized`, from
    trajectories by `learn_conditional`, or be written by hand. They are used as they are and never
    normalised, but for the prior: where Q^(u, .) or G^(x, .) have another mass than one, log Z_t is
    off by as much, and `post.log_predictive` is the likelihood that is normalised.

    Args:
        prior: of x_0, d coordinates; its mass on the box is divided out.
        transition: Q^(u, x), the d coordinates of the old state, then the d of the new one.
        observation: G^(x, y), the d coordinates of the state, then those of y.
        box: where the state lives, in the units of the models. None for all of space, with
            engine="reference".
        engine: "nodes", quadrature nodes of the box and positive sums, any models, d <= 3;
            "reference", Algorithm 2 by the operations of the calculus and nothing else;
            "closed", the same in error functions only, which refuses what cancels.
        observation_box: where y lives. Laws of y need it, and observations outside are refused.
        tol: relative error of the integrals at the nodes.
    """
    started = time.perf_counter()
    require_x64()
    if engine not in _BUILDERS:
        words = ", ".join(f'"{word}"' for word in _BUILDERS)
        raise ValueError(f"engine must be one of {words} for given PSD models, got {engine!r}")
    if not (isinstance(tol, int | float) and 1e-14 <= tol < 1):
        raise ValueError(f"tol must lie in [1e-14, 1), got {tol!r}")
    triple = checked_triple((prior, transition, observation), box, observation_box)
    return _BUILDERS[engine](triple, engine, float(tol), started)


def checked_triple(
    models: tuple[AbstractDensity, AbstractDensity, AbstractDensity],
    box: BoxLike | None,
    observation_box: BoxLike | None,
) -> Triple:
    """The models, if their coordinates fit together and their numbers are good."""
    names = ("prior", "transition", "observation")
    prior, Q, G = (_as_psd(name, f) for name, f in zip(names, models, strict=True))
    dim = prior.dim
    if Q.dim != 2 * dim:
        raise ValueError(
            f"transition must have {2 * dim} coordinates (u, x), twice those of the prior, got "
            f"{Q.dim}"
        )
    if G.dim <= dim:
        raise ValueError(
            f"observation must have more coordinates than the state, (x, y) with {dim} of x, got "
            f"{G.dim}"
        )
    room = None if box is None else _finite_box("box", box, dim)
    seen = None
    if observation_box is not None:
        seen = _finite_box("observation_box", observation_box, G.dim - dim)
    if is_traced((prior, Q, G, room, seen)):
        raise ValueError(
            "prior, transition, observation and box must be concrete: learned chooses nodes by "
            "their numbers and cannot be traced. Call it outside of jit, grad and vmap"
        )
    prior, Q, G = verified(prior=prior, transition=Q, observation=G)
    return Triple(prior, Q, G, room, seen)


def _as_psd(name: str, f: object) -> PSDModel:
    if isinstance(f, GaussianBlocks):
        return generalize(f)
    if isinstance(f, PSDModel):
        return f
    remedy = ""
    if isinstance(getattr(f, "model", None), Model):
        remedy = f": pass its model, {name}=fit.model"
    elif hasattr(f, "expand"):
        remedy = f": pass {name}=f.expand()"
    raise ValueError(
        f"{name} must be a GaussianPSD, GeneralizedGaussianPSD, PairwiseGaussianPSD or "
        f"GaussianBlocks, got {type(f).__name__}{remedy}"
    )


def _finite_box(name: str, box: BoxLike, dim: int) -> Box:
    room = as_box(name, box, dim)
    bounds = np.stack([np.asarray(room.lower), np.asarray(room.upper)])
    if not np.isfinite(bounds).all():
        raise ValueError(
            f"{name} must be finite, got lower {bounds[0]} and upper {bounds[1]}; box=None is all "
            'of space, for engine="reference"'
        )
    return room


def _on_nodes(triple: Triple, engine: str, tol: float, started: float) -> GivenModel:
    if triple.box is None:
        raise ValueError(
            'box must be given for engine="nodes", whose nodes lie on it; box=None is all of '
            'space, for engine="reference"'
        )
    if triple.dim > 3:
        raise ValueError(
            f"transition must be that of 1 to 3 coordinates for nodes, got {triple.dim}: take "
            'engine="reference"'
        )
    table = tabulate(triple, triple.box, tol)
    found = masses_of(table)
    notes = [*_describe(triple), *found.notes()]
    if table.tol > tol:
        text = f"{table.tol:.1e} of every integral: coefficients are large and cancel"
        notes.append(("rounding", text))
    report = Report(
        engine="given",
        reason=f"PSD models as they were given, at {engine}",
        tol=table.tol,
        seconds=time.perf_counter() - started,
        nodes=table.shape,
        leak=max(0.0, 1.0 - found.typical),
        notes=tuple(notes),
    )
    _warn(found)
    return GivenModel(table=table, report=report)


def _in_operations(triple: Triple, engine: str, tol: float, started: float) -> ReferenceModel:
    models = triple.prior, triple.transition, triple.observation
    if triple.box is not None and not all(isinstance(f, GaussianPSD) for f in models):
        raise ValueError(
            f'engine="{engine}" integrates over a box only where precisions are diagonal, that is '
            'GaussianPSD for all three models: take engine="nodes", or box=None for all of space'
        )
    if engine == "closed" and not all(isinstance(f, GaussianPSD) for f in models):
        raise ValueError(
            'engine="closed" takes GaussianPSD for all three models, whose integrals are error '
            'functions: take engine="nodes", or "reference" with box=None'
        )
    parts = GivenParts(triple, engine == "closed")
    mass = positive_mass(triple.prior, triple.box)
    notes = [*_describe(triple), ("mass of the prior", f"{float(jnp.exp(mass)):.6g}")]
    if triple.box is not None and triple.dim <= 2:
        found = masses_of(tabulate(triple, triple.box, 1e-6))
        notes += found.notes()
        _warn(found)
    where = "on the box" if triple.box is not None else "on all of space"
    report = Report(
        engine=engine,
        reason=f"PSD models as they were given, by operations {where}",
        tol=tol,
        seconds=time.perf_counter() - started,
        notes=tuple(notes),
    )
    return ReferenceModel(learned=parts, report=report)


def _describe(triple: Triple) -> list[tuple[str, str]]:
    rows = []
    for name in ("prior", "transition", "observation"):
        f = getattr(triple, name)
        rows.append((name, f"{type(f).__name__}, order {f.order}, rank {f.rank}"))
    return rows


def _warn(found: Masses) -> None:
    if found.typical_gap <= _LARGE_GAP and found.largest <= NO_DENSITY:
        return
    warnings.warn(
        f"transition should be a density in x for every u of the box, but its mass there lies "
        f"between {found.least:.3g} and {found.largest:.3g}, and is off from one by "
        f"{found.typical_gap:.2g} where the state goes: log Z_t is off by as much in every step. "
        "Are the first coordinates those of the old state, and the box that of the models? See "
        "post.log_predictive for a likelihood that is normalised",
        stacklevel=4,
    )


Builder = Callable[[Triple, str, float, float], AbstractModel]
_BUILDERS: dict[str, Builder] = {
    "nodes": _on_nodes,
    "reference": _in_operations,
    "closed": _in_operations,
}
