"""The numbers that a user's functions close over, as leaves of a pytree.

`build(theta)` makes functions of the same code that differ in the numbers they close over. With the
numbers taken out they are one program, which is compiled once for all theta.
"""

import types
from collections.abc import Hashable, Iterator
from functools import partial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from .._checks import Numbers, is_traced
from .functions import AbstractFunction, Inputs, Keywords, Plain, Time, call, signature_keywords
from .model import StateSpaceModel
from .sameness import NotTheSame, key_of, surroundings_of

# How deep functions that close over functions are looked into.
_DEEP = 8
# Coordinates of observations that are tried where nothing tells how many there are.
_WIDEST = 4


class _Numbers(NamedTuple):
    """Stands for some of the numbers, and how they were put together."""

    place: slice
    tree: PyTree


class Template:
    """A function with holes for numbers; equal to others of the same code and surroundings."""

    def __init__(self, fn: types.FunctionType, numbers: list[Array], above: tuple[object, ...]):
        """Take the numbers out of a function, and append them to `numbers`."""
        if len(above) > _DEEP or fn in above or fn.__dict__:
            raise NotTheSame
        self.fn, inside = fn, (*above, fn)
        self.cells = [_take(c.cell_contents, numbers, inside) for c in fn.__closure__ or ()]
        self.defaults = [_take(value, numbers, inside) for value in fn.__defaults__ or ()]
        named = (fn.__kwdefaults__ or {}).items()
        self.named = {name: _take(value, numbers, inside) for name, value in named}
        parts = [*self.cells, *self.defaults, *self.named.values()]
        keys = tuple(_key(part, inside) for part in parts)
        self.key: Hashable = fn.__code__, tuple(self.named), surroundings_of(fn, inside), keys
        self._hash = hash(self.key)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Template) and self.key == other.key

    def filled(self, numbers: tuple[Array, ...]) -> types.FunctionType:
        """The function with these numbers in it."""
        fn = self.fn
        cells = tuple(types.CellType(_fill(part, numbers)) for part in self.cells)
        defaults = tuple(_fill(part, numbers) for part in self.defaults) or None
        made = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, defaults, cells)
        made.__kwdefaults__ = {n: _fill(p, numbers) for n, p in self.named.items()} or None
        return made


def _take(value: PyTree, numbers: list[Array], above: tuple[object, ...]) -> PyTree:
    if _is_number(value):
        leaves, tree = jax.tree.flatten(value)
        numbers += [jnp.asarray(leaf) for leaf in leaves]
        return _Numbers(slice(len(numbers) - len(leaves), len(numbers)), tree)
    if isinstance(value, types.FunctionType) and value.__closure__:
        return Template(value, numbers, above)
    return value


def _is_number(value: object) -> bool:
    """Real numbers, arrays of them, and containers of nothing else; whole numbers may be sizes."""
    if isinstance(value, tuple | list | dict):
        parts = list(value.values() if isinstance(value, dict) else value)
        return type(value) in (tuple, list, dict) and len(parts) > 0 and all(map(_is_number, parts))
    if isinstance(value, np.ndarray | np.generic | jax.Array):
        return not is_traced(value) and bool(np.issubdtype(value.dtype, np.floating))
    return type(value) is float


def _key(part: PyTree, above: tuple[object, ...]) -> Hashable:
    if isinstance(part, _Numbers):
        return "numbers", part.tree
    return part if isinstance(part, Template) else key_of(part, above)


def _fill(part: PyTree, numbers: tuple[Array, ...]) -> PyTree:
    if isinstance(part, _Numbers):
        return jax.tree.unflatten(part.tree, numbers[part.place])
    return part.filled(numbers) if isinstance(part, Template) else part


class Hoisted(AbstractFunction):
    """A Python function whose numbers are leaves."""

    numbers: tuple[Array, ...]
    template: Template = eqx.field(static=True)

    @property
    def keywords(self) -> Keywords:
        """Read off its signature."""
        return signature_keywords(self.template.fn)

    @property
    def takes_rows(self) -> bool:
        """It gets what its signature names."""
        return False

    def __call__(self, *args: PyTree, **keywords: PyTree) -> Numbers:
        """fn(...)."""
        return self.template.filled(self.numbers)(*args, **keywords)


def _hoisted(function: Plain) -> AbstractFunction:
    fn, numbers = function.fn, []
    if not isinstance(fn, types.FunctionType):
        return function
    try:
        template = Template(fn, numbers, ())
    except (NotTheSame, ValueError):  # ValueError: a cell that is still empty
        return function
    return Hoisted(tuple(numbers), template) if numbers else function


def hoisted_function(
    function: AbstractFunction, *args: PyTree, t: Time = None, inputs: Inputs = None
) -> AbstractFunction:
    """A function whose numbers are leaves, if it works without them at these arguments."""
    if not isinstance(function, Plain) or is_traced(args):
        return function
    out = _hoisted(function)
    if isinstance(out, Hoisted):
        try:
            _ = jax.eval_shape(lambda fn: call(fn, *args, t=t, inputs=inputs), out)
        except Exception:  # whatever a user's function raises about tracers
            return function
    return out


def _is_plain(value: object) -> bool:
    return isinstance(value, Plain)


def hoisted(ssm: StateSpaceModel, inputs: Inputs = None) -> StateSpaceModel:
    """The model whose Python functions have given their numbers up, if they work without them.

    A function may ask whether a number is positive, or hand it to NumPy: then it needs it as it is,
    and the model stays as it was.

    Args:
        ssm: the model.
        inputs: a row of inputs, for functions that take them.
    """
    if ssm.vectorized or ssm.regimes is not None or is_traced(ssm):
        return ssm

    def one(part: PyTree) -> PyTree:
        return _hoisted(part) if isinstance(part, Plain) else part

    out = jax.tree.map(one, ssm, is_leaf=_is_plain)
    arrays, rest = eqx.partition(out, eqx.is_array)
    x = jax.ShapeDtypeStruct((ssm.dim,), jnp.float64)
    try:
        for fn, others in _functions(ssm, x, inputs):
            shapes = arrays, x, *others
            _ = jax.eval_shape(partial(_called, rest, fn, inputs), *shapes)
    except Exception:  # whatever a user's function raises about tracers
        return ssm
    return out


def _called(rest: PyTree, name: str, inputs: Inputs, arrays: PyTree, *args: Array) -> Numbers:
    return call(getattr(eqx.combine(arrays, rest), name), *args, t=1, inputs=inputs)


def _functions(
    ssm: StateSpaceModel, x: jax.ShapeDtypeStruct, inputs: Inputs
) -> Iterator[tuple[str, tuple[jax.ShapeDtypeStruct, ...]]]:
    """Names of functions, and the arguments that they take after the state."""
    yield "log_prior", ()
    yield "log_transition", (x,)
    widths = (ssm.num_observed,) if ssm.num_observed is not None else range(1, _WIDEST + 1)
    for width in widths:
        y = jax.ShapeDtypeStruct((width,), jnp.float64)
        try:
            _ = jax.eval_shape(partial(call, ssm.log_observation, t=1, inputs=inputs), x, y)
        except Exception:  # an observation of another width
            continue
        yield "log_observation", (y,)
        return
    raise ValueError("nobody knows how wide observations are")
