"""Fingerprints by content: of models, data and options, the same in another process."""

import hashlib
import sys
import types
from collections.abc import Mapping
from functools import partial

import equinox as eqx
import jax
import numpy as np

from .._inference.report import Report


def fingerprint(*parts: object) -> str:
    """A digest of values: arrays by their numbers, functions by their code and closures."""
    digest = hashlib.sha256()
    _feed(digest, parts, set())
    return digest.hexdigest()


def _feed(digest: "hashlib._Hash", value: object, above: set[int]) -> None:
    """Into the digest, with a tag for each kind; `above` are the objects that lead here."""
    if isinstance(value, Report):
        # Times and words about how a model was learned say nothing about it.
        _tag(digest, "report", value.engine, value.tol)
    elif isinstance(value, np.ndarray | jax.Array | np.generic):
        array = np.asarray(value)
        _tag(digest, "array", array.dtype.str, array.shape)
        digest.update(np.ascontiguousarray(array).tobytes())
    elif value is None or isinstance(value, bool | int | float | complex | str | bytes):
        _tag(digest, "value", type(value).__name__, value)
    elif id(value) in above:
        _tag(digest, "again")
    else:
        _feed_parts(digest, value, above | {id(value)})


def _feed_parts(digest: "hashlib._Hash", value: object, above: set[int]) -> None:
    if isinstance(value, types.FunctionType):
        closed = [cell.cell_contents for cell in value.__closure__ or ()]
        used = {}
        if not _is_installed(value):
            # What a user's function uses of its module; libraries go by their names.
            names = [n for n in value.__code__.co_names if n in value.__globals__]
            used = {n: value.__globals__[n] for n in names}
        _tag(digest, "function", value.__qualname__)
        _feed(digest, value.__code__, above)
        for part in (closed, value.__defaults__, value.__kwdefaults__, used):
            _feed(digest, part, above)
    elif isinstance(value, types.CodeType):
        _tag(digest, "code", value.co_code, value.co_names, value.co_varnames)
        _feed(digest, value.co_consts, above)
    elif isinstance(value, types.MethodType):
        _feed(digest, (value.__func__, value.__self__), above)
    elif isinstance(value, eqx.Module):
        _tag(digest, "module", type(value).__qualname__)
        for name in sorted(value.__dataclass_fields__):
            _tag(digest, name)
            _feed(digest, getattr(value, name), above)
    elif isinstance(value, Mapping):
        _tag(digest, "mapping", len(value))
        for key in sorted(value, key=str):
            _feed(digest, (str(key), value[key]), above)
    elif isinstance(value, list | tuple):
        _tag(digest, "row", len(value))
        for part in value:
            _feed(digest, part, above)
    elif (wrapped := getattr(value, "__wrapped__", None)) is not None:
        _feed(digest, wrapped, above)
    elif isinstance(value, partial):
        _feed(digest, (value.func, value.args, value.keywords), above)
    else:
        named = value if hasattr(value, "__qualname__") else type(value)
        place = getattr(value, "__module__", ""), getattr(named, "__qualname__", "")
        _tag(digest, "named", *place, getattr(value, "__name__", ""))


def _is_installed(function: types.FunctionType) -> bool:
    """Whether a function comes with a library, so that its name and closure say it all."""
    place = function.__code__.co_filename
    own = (function.__module__ or "").split(".")[0] == "psdfilter"
    return own or "site-packages" in place or place.startswith(sys.base_prefix)


def _tag(digest: "hashlib._Hash", *words: object) -> None:
    digest.update(repr(words).encode())
