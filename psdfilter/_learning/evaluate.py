"""The user's function, behind one face: roots at points of the unit cube, checked, in float64.

A JAX function is compiled once for a few block sizes; a NumPy black box that cannot be traced is
called on the host. Roots are exp(log f / 2) for a log-density, never sqrt(exp(log f)).
"""

import inspect
from collections.abc import Callable, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .._density.box import Box

# Blocks a JAX function is compiled for; points are padded up to the next one. Four programs serve
# every size, and the largest keeps memory flat.
_BLOCKS = (1024, 8192, 65536)


@eqx.filter_jit
def _map_points(f: Callable, points: Float[Array, "n d"], vectorized: bool) -> Array:
    return f(points) if vectorized else jax.vmap(f)(points)


class RootFunction:
    """g = sqrt(f / peak) on (-1, 1)^d, or several signed roots g_i with f = sum_i g_i^2.

    Attributes:
        log_peak: log of the largest value of f seen so far; roots are relative to it.
        num_calls: points evaluated.
    """

    def __init__(
        self,
        functions: Sequence[Callable],
        box: Box,
        *,
        kind: str = "value",
        vectorized: bool = False,
    ):
        """Wrap functions that return f ("value"), log f ("log") or signed roots ("root")."""
        self.functions, self.kind, self.vectorized = tuple(functions), kind, vectorized
        self.dim, self.num_roots = box.dim, len(self.functions)
        self._center, self._half = np.asarray(box.center), np.asarray(box.half_width)
        self._names = ["f"] if kind != "root" else [f"roots[{i}]" for i in range(self.num_roots)]
        self.log_peak, self.num_calls = -np.inf, 0
        self._traceable = [self._inspect(f, n) for f, n in zip(functions, self._names, strict=True)]

    def user_point(self, z: Float[np.ndarray, " d"]) -> Float[np.ndarray, " d"]:
        """A point of the unit cube in the user's units."""
        return self._center + self._half * z

    def __call__(self, z: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n r"]:
        """Roots relative to the peak."""
        raw = self._raw(z)
        if self.kind == "log":
            return np.exp(raw - 0.5 * self.log_peak)
        return raw * np.exp(-0.5 * self.log_peak)

    def set_peak(self, z: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n r"]:
        """Take the largest value at the points as peak, if it is higher; roots relative to it."""
        raw = self._raw(z)
        with np.errstate(divide="ignore"):
            if self.kind == "log":
                highest = 2.0 * float(np.max(raw))
            else:
                top = np.max(np.abs(raw))
                scaled = raw / top if top > 0 else raw
                highest = float(2 * np.log(top) + np.log(np.max(np.sum(scaled**2, axis=1))))
        self.log_peak = max(self.log_peak, highest)
        if self.log_peak == -np.inf:
            return np.zeros_like(raw)
        if self.kind == "log":
            return np.exp(raw - 0.5 * self.log_peak)
        return raw * np.exp(-0.5 * self.log_peak)

    def _raw(self, z: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n r"]:
        x = self._center + self._half * z
        self.num_calls += len(z)
        columns = [
            self._column(f, traceable, name, x)
            for f, traceable, name in zip(self.functions, self._traceable, self._names, strict=True)
        ]
        return np.stack(columns, axis=1)

    def _column(
        self, f: Callable, traceable: bool, name: str, x: Float[np.ndarray, "n d"]
    ) -> Float[np.ndarray, " n"]:
        values = self._compiled(f, x) if traceable else self._on_host(f, name, x)
        self._check(values, name, x)
        if self.kind == "log":
            return 0.5 * values
        return np.sqrt(values) if self.kind == "value" else values

    def _compiled(self, f: Callable, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, " n"]:
        out = np.empty(len(x))
        for start in range(0, len(x), _BLOCKS[-1]):
            part = x[start : start + _BLOCKS[-1]]
            size = next(b for b in _BLOCKS if b >= len(part))
            padded = np.concatenate(
                [part, np.broadcast_to(part[-1:], (size - len(part), self.dim))]
            )
            values = _map_points(f, jnp.asarray(padded), self.vectorized)
            out[start : start + len(part)] = np.asarray(values, dtype=np.float64)[: len(part)]
        return out

    def _on_host(
        self, f: Callable, name: str, x: Float[np.ndarray, "n d"]
    ) -> Float[np.ndarray, " n"]:
        if not self.vectorized:
            return np.array([self._host_scalar(f, name, point) for point in x], dtype=np.float64)
        values = np.asarray(f(x), dtype=np.float64)
        if values.shape != (len(x),):
            raise ValueError(_shape_message(name, f"({len(x)},)", values.shape, True, self.dim))
        return values

    def _host_scalar(self, f: Callable, name: str, point: Float[np.ndarray, " d"]) -> float:
        value = np.asarray(f(point), dtype=np.float64)
        if value.shape != ():
            raise ValueError(_shape_message(name, "()", value.shape, False, self.dim))
        return float(value)

    def _check(
        self, values: Float[np.ndarray, " n"], name: str, x: Float[np.ndarray, "n d"]
    ) -> None:
        bad = np.isnan(values) | (values == np.inf)
        what = "a log-density below infinity" if self.kind == "log" else "a finite value"
        if self.kind == "value":
            bad |= values < 0
            what = "a finite value >= 0"
        elif self.kind == "root":
            bad |= values == -np.inf
        if bad.any():
            i = int(np.argmax(bad))
            remedy = "; for a log-density pass log=True" if values[i] < 0 else ""
            raise ValueError(
                f"{name} must return {what} everywhere on the box, got {values[i]} at "
                f"x = {_show(x[i])} ({int(bad.sum())} of {len(x)} points){remedy}"
            )

    def _inspect(self, f: Callable[..., object], name: str) -> bool:
        """Whether JAX can trace f; its arity and the shape of its value are checked on the way."""
        if not callable(f):
            raise ValueError(f"{name} must be a function, got {type(f).__name__}")
        _check_arity(f, name, self.vectorized)
        shape, expected = ((3, self.dim), (3,)) if self.vectorized else ((self.dim,), ())
        out = None
        try:
            out = jax.eval_shape(f, jax.ShapeDtypeStruct(shape, jnp.float64))
            got, traceable = getattr(out, "shape", None), True
            numeric = got is not None and not jnp.issubdtype(out.dtype, jnp.complexfloating)
        except Exception:
            probe = np.broadcast_to(self._center, shape).copy()
            try:
                value = np.asarray(f(probe), dtype=np.float64)
            except Exception as error:
                raise ValueError(
                    f"{name} failed at x = {_show(self._center)}: {type(error).__name__}: {error}"
                ) from error
            got, traceable, numeric = value.shape, False, True
        if not numeric:
            raise ValueError(f"{name} must return a real number, got {out}")
        if got != expected:
            raise ValueError(_shape_message(name, str(expected), got, self.vectorized, self.dim))
        return traceable


def _check_arity(f: Callable, name: str, vectorized: bool) -> None:
    try:
        _ = inspect.signature(f).bind(None)
    except TypeError as error:
        what = "points of shape (n, d)" if vectorized else "a point of shape (d,)"
        raise ValueError(f"{name} must take one argument, {what}: {error}") from None
    except ValueError:
        pass  # some built-in functions have no signature; the call itself will tell


def _shape_message(name: str, expected: str, got: object, vectorized: bool, dim: int) -> str:
    call = f"(n, {dim}) -> (n,)" if vectorized else f"({dim},) -> scalar"
    remedy = "" if vectorized else "; pass vectorized=True if it takes many points at once"
    return f"{name} must map {call}, so to shape {expected} here, got shape {got}{remedy}"


def _show(x: Float[np.ndarray, " d"]) -> str:
    return "(" + ", ".join(f"{v:.6g}" for v in x) + ")"
