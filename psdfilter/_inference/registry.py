"""All engines. A new one is a folder beside these and a line here."""

from .ability import Ability, NotOffered
from .adaptive.engine import Adaptive
from .branches.engine import Branches
from .closed.engine import Closed, Reference
from .engine import AbstractEngine
from .exact.engine import Exact
from .free.engine import Free
from .given.engine import Given
from .lattice.engine import Lattice
from .mixture.engine import Mixture
from .model import AbstractModel
from .nodes.engine import Nodes

# In the order in which "auto" asks them whether they should be chosen.
ENGINES: dict[str, type[AbstractEngine]] = {
    kind.name: kind
    for kind in (
        Exact,
        Adaptive,
        Mixture,
        Nodes,
        Closed,
        Reference,
        Free,
        Given,
        Branches,
        Lattice,
    )
}


def engine_of(model: AbstractModel) -> AbstractEngine:
    """The engine that a model was learned by, with its default options."""
    return ENGINES[model.engine]()


def as_engine(engine: "str | AbstractEngine") -> AbstractEngine | None:
    """The engine of a word or of an object; None for "auto"."""
    if isinstance(engine, AbstractEngine):
        return engine
    if engine == "auto":
        return None
    if engine not in ENGINES:
        words = ", ".join(f'"{word}"' for word in ("auto", *ENGINES))
        raise ValueError(
            f"engine must be one of {words}, or an object such as psdfilter.engines.Nodes(), got "
            f"{engine!r}"
        )
    return ENGINES[engine]()


def as_model(model: object) -> AbstractModel:
    """A learned model, or an error that says where to get one."""
    if not isinstance(model, AbstractModel):
        raise ValueError(
            f"model must come from psdfilter.learn or psdfilter.learned, got {type(model).__name__}"
        )
    return model


def require(model: AbstractModel, ability: Ability) -> None:
    """Stop if a model does not offer something; say why, and which engines do."""
    if ability in model.abilities:
        return
    cause = model.why_not(ability)
    if cause is not None:
        raise ValueError(cause)
    others = [f'"{name}"' for name, kind in ENGINES.items() if ability in kind.abilities]
    raise NotOffered(model.engine, ability, f"; {', '.join(others)} can: learn(..., engine=)")
