"""Functions of a model, compiled once for it.

A model has dozens of arrays and functions among its static parts: handing it to a compiled function
at every call takes longer than many steps of a filter. Its arrays are therefore put in a row once,
and the compiled function is kept with the model.
"""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import equinox as eqx
import jax

from .._checks import is_traced
from .model import LearnedModel
from .workspace import Workspace

# Bytes of a model that are compiled in rather than handed over.
_SMALL = 2**19


class _Prepared:
    """The arrays of a model and its workspace, in a row, and how to put them together again."""

    def __init__(self, model: LearnedModel):
        """Tabulate the workspace of a concrete model."""
        self.space = eqx.filter_jit(Workspace.of)(model.plan)
        arrays, self.static = eqx.partition((model, self.space), eqx.is_array)
        self.leaves, self.tree = jax.tree.flatten(arrays)
        self.model = model
        self.is_small = sum(leaf.nbytes for leaf in self.leaves) <= _SMALL
        self.functions: dict[Hashable, Any] = {}

    def whole(self, leaves: Any) -> tuple[LearnedModel, Workspace]:
        return eqx.combine(jax.tree.unflatten(self.tree, leaves), self.static)


def _prepared(model: LearnedModel) -> _Prepared | None:
    """What is kept with a model; None if the model is traced.

    Models made from one another share their `sizing`: what is kept there is for one of them.
    """
    kept = model.sizing.prepared
    if kept is None or kept.model is not model:
        if is_traced(model):
            return None
        with jax.ensure_compile_time_eval():
            kept = _Prepared(model)
        model.sizing.prepared = kept
    return kept


def compiled_into(
    model: LearnedModel, name: Hashable, fn: Callable[..., Any]
) -> Callable[..., Any]:
    """args -> fn(model, workspace, *args), with the arrays of the model compiled in.

    For one small step at a time: even putting the arrays of a model in a row takes longer.
    """
    kept = _prepared(model)
    if kept is None:
        space = Workspace.of(model.plan)
        return lambda *args: fn(model, space, *args)
    if name not in kept.functions:
        kept.functions[name] = jax.jit(lambda *args: fn(model, kept.space, *args))
    return kept.functions[name]


def compiled_for(
    model: LearnedModel, name: Hashable, fn: Callable[..., Any], *static: Any
) -> Callable[..., Any]:
    """args -> fn(model, workspace, *args, *static), compiled; inlined if the model is traced."""
    kept = _prepared(model)
    if kept is None:
        space = Workspace.of(model.plan)
        return lambda *args: fn(model, space, *args, *static)
    if (name, static) not in kept.functions:

        def run(leaves: Any, *args: Any) -> Any:
            return fn(*kept.whole(leaves), *args, *static)

        if kept.is_small:
            compiled = jax.jit(lambda *args: run(kept.leaves, *args))
        else:
            compiled = partial(jax.jit(run), kept.leaves)
        kept.functions[name, static] = compiled
    return kept.functions[name, static]
