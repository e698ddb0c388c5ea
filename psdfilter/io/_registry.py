"""The classes that files may hold. Anything else is refused, on writing and on reading."""

import dataclasses
from importlib import import_module
from typing import Any

_MODULES = {
    "Box": "psdfilter._density.box",
    "TensorGrid": "psdfilter._density.anchors",
    "GaussianPSD": "psdfilter._density.psd",
    "GeneralizedGaussianPSD": "psdfilter._density.generalized",
    "PairwiseGaussianPSD": "psdfilter._density.generalized",
    "GaussianBlocks": "psdfilter._density.blocks",
    "AxisRegression": "psdfilter._inference.plan",
    "TransitionPlan": "psdfilter._inference.plan",
    "Plan": "psdfilter._inference.plan",
    "TransitionTables": "psdfilter._inference.nodes",
    "JointObservation": "psdfilter._inference.joint",
    "LearnReport": "psdfilter._inference.report",
    "Sizing": "psdfilter._inference.model",
    "LearnedModel": "psdfilter._inference.model",
    "MidpointAxis": "psdfilter._inference.midpoints",
    "Midpoints": "psdfilter._inference.midpoints",
    "ClosedReport": "psdfilter._inference.closed_plan",
    "ClosedModel": "psdfilter._inference.closed",
    "FilterState": "psdfilter._inference.online",
    "Bank": "psdfilter._inference.blocks.bank",
    "Layout": "psdfilter._inference.blocks.bank",
    "Dynamics": "psdfilter._inference.blocks.linear",
    "Sensor": "psdfilter._inference.blocks.linear",
    "BlocksReport": "psdfilter._inference.blocks.report",
    "ExactModel": "psdfilter._inference.blocks.exact",
    "Mixture": "psdfilter._inference.blocks.mixture",
    "Effort": "psdfilter._inference.blocks.nonlinear",
    "UnitSplit": "psdfilter._inference.blocks.splitting",
    "LinearizedModel": "psdfilter._inference.blocks.nonlinear_model",
    "Sizes": "psdfilter._inference.blocks.engine",
    "Found": "psdfilter._inference.blocks.compressed",
    "CompressedModel": "psdfilter._inference.blocks.compressed",
    "BlocksState": "psdfilter._inference.blocks.online",
    "Atoms": "psdfilter._inference.blocks.generalized_atoms",
    "TermKernel": "psdfilter._inference.blocks.generalized_atoms",
    "SquareSum": "psdfilter._inference.blocks.generalized_compress",
    "LearnedTransition": "psdfilter._inference.blocks.generalized_step",
    "MassSeries": "psdfilter._inference.blocks.generalized_mass",
    "EachObservation": "psdfilter._inference.blocks.generalized_observation",
    "LearnedObservation": "psdfilter._inference.blocks.generalized_observation",
    "StepSizes": "psdfilter._inference.blocks.generalized_step",
    "FitErrors": "psdfilter._inference.blocks.generalized_run",
    "GeneralizedModel": "psdfilter._inference.blocks.generalized_model",
    "GeneralizedState": "psdfilter._inference.blocks.generalized_model",
}

# What a user may pass to `save`; the other classes are parts of these.
KINDS = (
    "Box",
    "TensorGrid",
    "GaussianPSD",
    "GeneralizedGaussianPSD",
    "PairwiseGaussianPSD",
    "GaussianBlocks",
    "FilterState",
    "LearnedModel",
    "ClosedModel",
    "ExactModel",
    "LinearizedModel",
    "CompressedModel",
    "BlocksState",
    "GeneralizedModel",
    "GeneralizedState",
)

# Of a class that is no dataclass: what is written. Compiled functions it keeps are made anew.
_FIELDS = {"Sizing": ("by_observations", "resized"), "Found": ("measured",)}


def class_of(name: str) -> type:
    """The class of that name; ValueError if files may not hold it."""
    if name not in _MODULES:
        raise ValueError(
            f"the file holds a {name!r}, which this version of psdfilter does not know"
        )
    return getattr(import_module(_MODULES[name]), name)


def name_of(obj: Any) -> str | None:
    """The name under which `obj` is written; None if it cannot be."""
    name = type(obj).__name__
    known = _MODULES.get(name) == type(obj).__module__
    return name if known else None


def field_names(cls: type) -> tuple[str, ...]:
    """The fields that are written; Equinox modules are dataclasses."""
    if issubclass(cls, tuple):
        return cls._fields  # pyright: ignore[reportAttributeAccessIssue]
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    return _FIELDS[cls.__name__]


def build(cls: type, values: dict[str, Any]) -> Any:
    """An instance from all its fields, as they were: constructors that transform are passed by."""
    if set(values) != set(field_names(cls)):
        raise ValueError(
            f"the file's {cls.__name__} has fields {sorted(values)}, this version of psdfilter "
            f"expects {sorted(field_names(cls))}: it was written by another version"
        )
    if cls.__name__ == "Sizing":
        sizing = cls(values["by_observations"])
        sizing.resized = values["resized"]
        return sizing
    if issubclass(cls, tuple):
        return cls(**values)
    obj = object.__new__(cls)
    for name, value in values.items():
        object.__setattr__(obj, name, value)
    return obj
