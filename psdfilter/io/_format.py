"""Objects as a tree of JSON and a list of arrays, and back."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .._checks import is_concrete
from .._statespace.model import StateSpaceModel
from ._schemas import Parts, rebuilt, schema_of, upgraded
from ._values import Values, different, values_of

# Numbers that JSON has no words for.
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def encode(obj: Any, arrays: list[np.ndarray], where: str) -> object:
    """`obj` as JSON; arrays go to the list and are named by their number."""
    if obj is None or isinstance(obj, bool | str):
        return obj
    if isinstance(obj, np.bool_):
        return bool(obj)
    if isinstance(obj, int | np.integer):
        return int(obj)
    if isinstance(obj, float | np.floating):
        # JSON has no infinity; finite floats survive it exactly.
        return float(obj) if math.isfinite(obj) else {"float": str(float(obj))}
    if isinstance(obj, jax.Array | np.ndarray):
        return _encode_array(obj, arrays, where)
    if isinstance(obj, StateSpaceModel):
        return {"ssm": {**_describe(obj), "values": encode(values_of(obj), arrays, where)}}
    schema = schema_of(obj)
    if schema is not None:
        parts = {
            name: encode(getattr(obj, attribute), arrays, f"{where}.{name}")
            for name, attribute in schema.parts.items()
        }
        return {"kind": schema.kind, "version": schema.version, "parts": parts}
    if type(obj) in (tuple, list):
        items = [encode(item, arrays, f"{where}[{i}]") for i, item in enumerate(obj)]
        return {type(obj).__name__: items}
    if type(obj) is dict and all(isinstance(key, str) for key in obj):
        items = {key: encode(value, arrays, f"{where}[{key!r}]") for key, value in obj.items()}
        return {"dict": items}
    raise ValueError(f"{where} is a {type(obj).__name__}, which cannot be saved")


def _encode_array(obj: object, arrays: list[np.ndarray], where: str) -> dict[str, object]:
    if not is_concrete(obj):
        raise ValueError(f"{where} is being traced by JAX: save outside jit, grad and vmap")
    values = np.asarray(obj)
    if values.dtype.kind not in "biuf":
        raise ValueError(f"{where} has dtype {values.dtype}, which cannot be saved")
    arrays.append(values)
    shape = list(values.shape)
    return {"array": len(arrays) - 1, "jax": isinstance(obj, jax.Array), "shape": shape}


def _describe(ssm: StateSpaceModel) -> Parts:
    return {
        "lower": np.asarray(ssm.state_box.lower).tolist(),
        "upper": np.asarray(ssm.state_box.upper).tolist(),
        "time_varying": ssm.is_time_varying,
        "vectorized": ssm.vectorized,
    }


def decode(node: Any, arrays: list[np.ndarray], ssm: StateSpaceModel | None) -> Any:
    """The object that `encode` was given; its state-space model is `ssm`.

    Entries that are no such object raise whatever Python raises: the reader names the file.
    """
    if node is None or isinstance(node, bool | str | int | float):
        return node
    if not isinstance(node, dict):
        raise ValueError("the file's header is not one that psdfilter writes")
    if "float" in node:
        return _NOT_FINITE[node["float"]]
    if "array" in node:
        values = _array(node, arrays)
        return jnp.asarray(values) if node["jax"] else values
    if "ssm" in node:
        return ssm
    if "kind" in node:
        parts = {name: decode(value, arrays, ssm) for name, value in node["parts"].items()}
        return rebuilt(*upgraded(node["kind"], node.get("version", 0), parts))
    if "tuple" in node:
        return tuple(decode(item, arrays, ssm) for item in node["tuple"])
    if "list" in node:
        return [decode(item, arrays, ssm) for item in node["list"]]
    if "dict" in node:
        return {key: decode(value, arrays, ssm) for key, value in node["dict"].items()}
    raise ValueError(f"the file's header has an entry {sorted(node)} that is not known")


def _array(node: Parts, arrays: list[np.ndarray]) -> np.ndarray:
    """The array that an entry names; files of earlier versions do not say its shape."""
    index = node["array"]
    if not isinstance(index, int) or not 0 <= index < len(arrays):
        raise IndexError(f"there is no array {index!r}")
    shape = list(arrays[index].shape)
    if node.get("shape", shape) != shape:
        raise TypeError(f"array {index} has shape {shape}, the header says {node['shape']}")
    return arrays[index]


class Described(NamedTuple):
    """What a file says of a state-space model; files of earlier versions have no values."""

    lower: list[float]
    upper: list[float]
    time_varying: bool
    vectorized: bool
    values: Values | None


def described_in(node: Any) -> list[Described]:
    """What an entry says of state-space models, in all of its parts."""
    if not isinstance(node, dict):
        return []
    if "ssm" in node:
        return [_described(node["ssm"])]
    inner = [each.values() for name in ("parts", "dict") if (each := node.get(name))]
    inner += [each for name in ("tuple", "list") if (each := node.get(name))]
    return [found for items in inner for item in items for found in described_in(item)]


def _described(saved: Parts) -> Described:
    """Read from the file, as numbers."""
    lower, upper = ([float(end) for end in saved[name]] for name in ("lower", "upper"))
    values = decode(saved.get("values"), [], None)
    if values is not None:
        values = {str(name): [float(value) for value in each] for name, each in values.items()}
    return Described(lower, upper, saved["time_varying"], saved["vectorized"], values)


def check_model(ssm: StateSpaceModel | None, saved: Described) -> None:
    """Refuse a model of the user that cannot be the one that was learned."""
    if ssm is None:
        raise ValueError(
            "this model still needs its functions, which are not in the file: pass the "
            "StateSpaceModel it was learned from, load(path, ssm=...)"
        )
    if not isinstance(ssm, StateSpaceModel):
        raise ValueError(f"ssm must be a StateSpaceModel, got {type(ssm).__name__}")
    given = _describe(ssm)
    for name in ("time_varying", "vectorized"):
        if given[name] != getattr(saved, name):
            raise ValueError(
                f"ssm is not the model that was learned: {name} is {given[name]}, in the file "
                f"{getattr(saved, name)}"
            )
    for name in ("lower", "upper"):
        own, kept = given[name], getattr(saved, name)
        if len(own) != len(kept) or not np.allclose(own, kept, rtol=1e-12, atol=0.0):
            raise ValueError(
                f"ssm is not the model that was learned: its state_box has {name} bounds {own}, in "
                f"the file {kept}"
            )
    found = None if saved.values is None else different(values_of(ssm), saved.values)
    if found is not None:
        raise ValueError(
            f"ssm is not the model that was learned: {found}; pass the StateSpaceModel it was "
            "learned from, or learn again"
        )
