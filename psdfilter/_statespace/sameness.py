"""When two functions of a user are the same program.

Functions that are made anew, by a second call of `build()`, are other objects for Python and would
be compiled again. They are the same program if their code is, and if all that it refers to is: then
what was compiled for one serves the other.
"""

import builtins
import dis
import types
from collections.abc import Callable, Hashable
from dataclasses import fields
from typing import Any

import equinox as eqx
import jax
import numpy as np

from .._checks import is_traced

# Libraries whose functions depend on their arguments alone.
_PURE = frozenset(
    {"jax", "jaxlib", "numpy", "math", "cmath", "operator", "scipy", "numpyro", "psdfilter"}
)
_NUMBERS = (int, float, complex, bool, str, bytes, types.NoneType, types.EllipsisType)


class NotTheSame(Exception):
    """Something that may change, or cannot be compared."""


class Same:
    """A function that is equal to others of the same code, constants and surroundings."""

    def __init__(self, fn: Callable[..., Any], *, constant: bool = False):
        """`constant`: whoever hands it over twice means the same, as functions of `jax.jit` do."""
        self.fn = fn
        try:
            self.key: Hashable = _of_function(fn, ())
        except NotTheSame:
            # Not even the same as itself at another time: an object may have changed since.
            self.key = _Itself(fn) if constant else object()
        self._hash = hash(self.key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.key == other.key

    def __repr__(self) -> str:
        return repr(self.fn)


def _of_function(fn: object, above: tuple[object, ...]) -> Hashable:
    if isinstance(fn, types.MethodType):
        return "method", key_of(fn.__func__, above), key_of(fn.__self__, above)
    if not isinstance(fn, types.FunctionType) or fn.__dict__ or len(above) > 8 or fn in above:
        raise NotTheSame
    inside = (*above, fn)
    outside = surroundings_of(fn, inside)
    cells = [key_of(cell.cell_contents, inside) for cell in fn.__closure__ or ()]
    defaults = [key_of(value, inside) for value in fn.__defaults__ or ()]
    more = [(name, key_of(value, inside)) for name, value in (fn.__kwdefaults__ or {}).items()]
    return fn.__code__, outside, tuple(cells), tuple(defaults), tuple(more)


def surroundings_of(fn: types.FunctionType, above: tuple[object, ...]) -> Hashable:
    """What the global names in a function stand for."""
    outside = []
    for name in sorted(_names(fn.__code__)):
        if name in fn.__globals__:
            outside.append((name, key_of(fn.__globals__[name], above)))
        elif not hasattr(builtins, name):
            raise NotTheSame
    return tuple(outside)


def _names(code: types.CodeType) -> set[str]:
    """Global names that code, and the functions made in it, look up."""
    out = set()
    for one in dis.get_instructions(code):
        if one.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            out.add(str(one.argval))
        elif one.opname in ("IMPORT_NAME", "STORE_GLOBAL"):
            raise NotTheSame
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            out |= _names(constant)
    return out


def key_of(value: object, above: tuple[object, ...]) -> Hashable:
    """What a value is told by; only of what cannot change without being another."""
    if isinstance(value, float | complex):
        return type(value), repr(value)
    if isinstance(value, _NUMBERS):
        return type(value), value
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        if is_traced(value) or (isinstance(value, np.ndarray) and value.dtype.hasobject):
            raise NotTheSame
        array = np.asarray(value)
        return type(value), str(array.dtype), array.shape, array.tobytes()
    if isinstance(value, tuple) and (type(value) is tuple or _is_ours(value)):
        return type(value), tuple(key_of(one, above) for one in value)
    if isinstance(value, eqx.Module) and _is_ours(value):
        parts = (getattr(value, field.name) for field in fields(value))
        return type(value), tuple(key_of(part, above) for part in parts)
    if isinstance(value, types.ModuleType) and value.__name__.split(".")[0] in _PURE:
        return value.__name__
    if isinstance(value, types.BuiltinFunctionType) or _is_pure(value):
        return _Itself(value)
    return _of_function(value, above)


class _Itself:
    """Told by identity. It holds the object, whose address would else be another's one day."""

    def __init__(self, value: object):
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.value is other.value


def _is_ours(value: object) -> bool:
    """Whether a value, such as a family, is of a class whose methods refer to nothing outside.

    Methods of a user's class may read global names, which nobody has looked at.
    """
    return type(value).__module__.split(".")[0] == "psdfilter"


def _is_pure(value: object) -> bool:
    """Whether a function or a class belongs to a library whose functions are pure."""
    module = getattr(value, "__module__", None)
    # Functions that are made anew inside of others are told by what they are made of.
    made = "<locals>" in getattr(value, "__qualname__", "")
    known = isinstance(module, str) and module.split(".")[0] in _PURE
    return callable(value) and known and not made
