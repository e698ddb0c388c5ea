"""Compiled functions, in one place, shared by all models of equal sizes.

A model has dozens of arrays and functions among its parts: to take it apart at every call takes
longer than many steps of a filter. So a model is taken apart once, and what was found is kept for
as long as it lives. Programs are kept by JAX, for shapes and static parts and not for models: a
second model of the same sizes compiles nothing, and no data are held alive.
"""

import weakref
from collections.abc import Callable, Hashable
from functools import lru_cache, partial
from typing import Any, TypeVar

import equinox as eqx
import jax
from jaxtyping import Array, PyTree

from ..._checks import is_traced

T = TypeVar("T")

_KEPT: dict[int, tuple[weakref.ref, dict[Hashable, Any]]] = {}


def remembered(owner: object, key: Hashable, make: Callable[[], T]) -> T:
    """make(), once for each owner and key; forgotten with the owner.

    For what follows from a value alone, such as tables: `make` must not hold the owner itself.
    """
    at = id(owner)
    entry = _KEPT.get(at)
    if entry is None or entry[0]() is not owner:
        entry = weakref.ref(owner, lambda _, kept=_KEPT: kept.pop(at, None)), {}
        _KEPT[at] = entry
    kept = entry[1]
    if key not in kept:
        kept[key] = make()
    return kept[key]


class _Program:
    """A function of a value whose arrays are given in a row, with everything static in it."""

    def __init__(self, fn: Callable[..., PyTree], form: "_Form", options: tuple[Hashable, ...]):
        self.fn, self.form, self.options = fn, form, options
        self._hash = hash((fn, form.hash, options))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, _Program)
            and self.fn is other.fn
            and self.options == other.options
            and self.form == other.form
        )

    def __call__(self, leaves: tuple[Array, ...], *args: PyTree) -> PyTree:
        return self.fn(self.form.whole(leaves), *args, *self.options)


class _Form:
    """How to put the arrays of a value together again."""

    def __init__(self, tree: Hashable, static: PyTree):
        self.tree, self.static = tree, static
        self.hash = hash((tree, tuple(jax.tree.leaves(static))))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Form) and (
            self.tree == other.tree
            and jax.tree.structure(self.static) == jax.tree.structure(other.static)
            and jax.tree.leaves(self.static) == jax.tree.leaves(other.static)
        )

    def __hash__(self) -> int:
        return self.hash

    def whole(self, leaves: tuple[Array, ...]) -> PyTree:
        return eqx.combine(jax.tree.unflatten(self.tree, leaves), self.static)


@lru_cache(maxsize=256)
def _first(program: _Program) -> _Program:
    """The first program that is equal to this one: JAX compares them at every call."""
    return program


class _Apart:
    """A value taken apart: its arrays, its form, and the programs that were asked for."""

    def __init__(self, value: PyTree):
        arrays, static = eqx.partition(value, eqx.is_array)
        leaves, tree = jax.tree.flatten(arrays)
        self.leaves, self.form = tuple(leaves), _Form(tree, static)
        self.programs: dict[Hashable, _Program] = {}

    def program(self, fn: Callable[..., PyTree], options: tuple[Hashable, ...]) -> _Program:
        key = fn, options
        if key not in self.programs:
            self.programs[key] = _first(_Program(fn, self.form, options))
        return self.programs[key]


@partial(jax.jit, static_argnums=0)
def _run(program: _Program, leaves: tuple[Array, ...], *args: PyTree) -> PyTree:
    return program(leaves, *args)


def call_compiled(
    fn: Callable[..., T], value: PyTree, *args: PyTree, options: tuple[Hashable, ...] = ()
) -> T:
    """fn(value, *args, *options), compiled; inlined if the value is traced.

    `fn` is a function of a module, not made anew for each call.
    """
    known = _KEPT.get(id(value))
    is_known = known is not None and known[0]() is value
    if not is_known and is_traced(value):
        return fn(value, *args, *options)
    apart = remembered(value, _Apart, lambda: _Apart(value))
    return _run(apart.program(fn, options), apart.leaves, *args)
