"""Models by name: `path.py:name`, a saved file, or a ready-made family."""

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import numpy as np

from .._inference.learn import learn
from .._inference.model import AbstractModel
from .._models.family import AbstractFamily
from .._parameters.maximize import LogPrior
from .._statespace.model import StateSpaceModel
from ..io import load
from ..systems import ALL, System
from ._errors import ModelError, place_in, told

T = TypeVar("T")
Build = Callable[[dict[str, Any]], StateSpaceModel]


@dataclass(frozen=True)
class Named:
    """What stands behind `--model`.

    Attributes:
        name: as it was written.
        build: parameters -> StateSpaceModel, for models that have parameters.
        start: their values unless others are given.
        bounds: of some of them, as `fit` takes them.
        ssm: the model itself, for one that has none.
        learned: a model that was learned before.
        text: its source, as far as it is known.
        first: as for `run_filter`, where the model knows.
        log_prior: of the parameters, if a family has one.
    """

    name: str
    build: Build | None = None
    start: Mapping[str, float] = field(default_factory=dict)
    bounds: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    ssm: StateSpaceModel | None = None
    learned: AbstractModel | None = None
    text: str | None = None
    first: str | None = None
    log_prior: LogPrior = None

    def state_space(self, values: Mapping[str, float]) -> StateSpaceModel:
        """The state-space model, with some parameters set."""
        if self.build is None:
            if values:
                raise ModelError(f"{self.name} has no parameters to set, got {', '.join(values)}")
            if self.ssm is None:
                raise ModelError(f"{self.name} was learned already: it has no functions any more")
            return self.ssm
        self.check_names(values)
        made = _guarded(self.name, lambda: self.build({**self.start, **values}))  # pyright: ignore[reportOptionalCall]
        if not isinstance(made, StateSpaceModel):
            raise ModelError(
                f"{self.name} must return a StateSpaceModel, got {type(made).__name__}"
            )
        return made

    def check_names(self, given: Iterable[str]) -> None:
        """Refuse names that are no parameters."""
        for name in sorted(set(given) - set(self.start)):
            near = get_close_matches(name, self.start, 1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            known = ", ".join(self.start)
            raise ModelError(f"{self.name} has no parameter {name!r}{hint}: it has {known}")

    def learn(
        self,
        values: Mapping[str, float],
        tol: float,
        engine: str,
        inputs: np.ndarray | None = None,
    ) -> AbstractModel:
        """The learned model, sized by rows of inputs if it takes them."""
        if self.learned is not None:
            if values:
                raise ModelError(f"{self.name} was learned already: its parameters are fixed")
            return self.learned
        ssm = self.state_space(values)
        try:
            return learn(ssm, tol, engine=engine, inputs=inputs)
        except ValueError as error:
            raise ModelError(f"{self.name}: {error}") from error


# Names on the command line of the classes in `psdfilter.models`.
_FAMILIES = {
    "volatility": "StochasticVolatility",
    "level": "LocalLevel",
    "population": "PopulationGrowth",
    "ornstein_uhlenbeck": "OrnsteinUhlenbeck",
}


def families() -> dict[str, tuple[str, AbstractFamily | System]]:
    """Ready-made models by name, with a line about each: families if there are any, and systems."""
    found: dict[str, tuple[str, AbstractFamily | System]] = {}
    try:
        models = import_module("psdfilter.models")
    except ModuleNotFoundError:
        models = None
    for name, kind in _FAMILIES.items():
        family = getattr(models, kind, None)
        if family is not None:
            found[name] = ((inspect.getdoc(family) or kind).splitlines()[0], family())
    return {**found, **{name: (system.summary, system) for name, system in ALL.items()}}


def find_model(text: str, functions: str | None = None, ys: np.ndarray | None = None) -> Named:
    """The model that `--model` speaks of.

    Args:
        text: `path.py:name`, a saved file, or the name of a family.
        functions: likewise, for a saved model that still needs its functions.
        ys: the data, from which families take where to start.
    """
    path, colon, name = text.rpartition(":")
    if colon and path.endswith(".py"):
        return _from_file(Path(path), name, text)
    if text.endswith(".py"):
        raise ModelError(f"{text} is a file: say which of its names is the model, {text}:ssm")
    if Path(text).is_file():
        return _from_saved(text, functions)
    known = families()
    if text not in known:
        near = get_close_matches(text, known, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ModelError(
            f"there is no model {text!r}{hint}: write path.py:name, the name of a saved file, or "
            "one of those that `psdfilter models` lists"
        )
    family = known[text][1]
    if isinstance(family, System):
        return _of_function(family.model, text, inspect.getsource(family.model))
    return _of_family(text, family, ys)


def _of_family(name: str, family: AbstractFamily, ys: np.ndarray | None) -> Named:
    """A family of `psdfilter.models`, which looks at the data before it starts."""
    if ys is None:
        raise ModelError(f"{name} starts from data: use it with fit, filter, smooth or forecast")
    data = ys[:, 0] if ys.shape[1] == 1 else ys
    start = {key: float(value) for key, value in family.start(data).items()}
    known = family.known(data)
    return Named(
        name,
        lambda theta: family.build(theta, known),
        start,
        {key: value for key, value in family.bounds.items() if key in start},
        text=inspect.getsource(type(family)),
        first=family.first,
        log_prior=None if _has_flat_prior(family) else family.log_prior,
    )


def _has_flat_prior(family: AbstractFamily) -> bool:
    """Whether the prior is that of the base of all families."""
    owner = next(kind for kind in type(family).__mro__ if "log_prior" in vars(kind))
    return owner.__name__ == "AbstractFamily"


def _from_saved(text: str, functions: str | None) -> Named:
    ssm = None if functions is None else find_model(functions).state_space({})
    try:
        loaded = load(text, ssm=ssm)
    except ValueError as error:
        message = str(error)
        if "still needs its functions" in message:
            message = "this model still needs its functions: pass --functions path.py:name"
        raise ModelError(f"{text}: {message}") from None
    if not isinstance(loaded, AbstractModel):
        raise ModelError(f"{text} holds a {type(loaded).__name__}, not a learned model")
    return Named(text, learned=loaded)


def _from_file(path: Path, name: str, text: str) -> Named:
    module = _imported(path)
    if not hasattr(module, name):
        names = [key for key in vars(module) if not key.startswith("_")]
        near = get_close_matches(name, names, 1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ModelError(f"{path} has no {name!r}{hint}")
    found, source = getattr(module, name), path.read_text("utf-8", errors="replace")
    if isinstance(found, StateSpaceModel):
        return Named(text, ssm=found, text=source)
    if isinstance(found, AbstractModel):
        return Named(text, learned=found, text=source)
    if isinstance(found, System):
        found = found.model
    if not callable(found):
        raise ModelError(
            f"{text} must be a StateSpaceModel, a learned model or a function that returns a "
            f"StateSpaceModel, got {type(found).__name__}"
        )
    return _of_function(found, text, source, module)


def _of_function(
    function: Callable[..., Any], name: str, text: str, module: ModuleType | None = None
) -> Named:
    """A family: its parameters are the keywords of a function, or one dict."""
    given = inspect.signature(function).parameters.values()
    parameters = [p for p in given if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    bounds = dict(getattr(module, "bounds", {}))
    required = [p.name for p in parameters if p.default is p.empty]
    if not required:
        start = {p.name: p.default for p in parameters if _is_number(p.default)}
        bounds = {key: value for key, value in bounds.items() if key in start}
        return Named(name, lambda theta: function(**theta), start, bounds, text=text)
    start = getattr(module, "theta0", None)
    if len(parameters) == 1 and isinstance(start, dict):
        return Named(name, function, start, bounds, text=text)
    raise ModelError(
        f"{name} must be a function of keywords with values to start from, def {function.__name__}"
        f"(q=0.1, r=1.0), or of one dict called theta0 in the same file; {', '.join(required)} "
        "have no values"
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _imported(path: Path) -> ModuleType:
    if not path.is_file():
        raise ModelError(f"{path}: there is no such file")
    spec = spec_from_file_location(f"psdfilter_model_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module, folder = module_from_spec(spec), str(path.resolve().parent)
    sys.modules[spec.name] = module
    sys.path.insert(0, folder)  # so that it may import what lies beside it
    try:
        _guarded(str(path), lambda: spec.loader.exec_module(module), path)  # pyright: ignore[reportOptionalMemberAccess]
    finally:
        sys.path.remove(folder)
    return module


def _guarded(name: str, call: Callable[[], T], path: Path | None = None) -> T:
    """What a function of the user returns; an error of it is one of the model, with its line."""
    try:
        return call()
    except SyntaxError as error:
        raise ModelError(f"{error.filename}:{error.lineno}:{error.offset}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        place = place_in(error, str(path)) or name
        raise ModelError(f"{place}: {told(error)}") from error
