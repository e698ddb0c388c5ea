"""What every ready-made system offers: a model, a seeded simulator, a dense reference."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import Numbers, as_count, as_key, require_x64
from .._statespace.model import StateSpaceModel
from ._reference import Densities, Reference, reference_filter


@dataclass(frozen=True)
class Sampler:
    """How to simulate a system: unbatched JAX functions."""

    prior: Callable[[Array], Array]  # key -> x_0 (d,)
    transition: Callable[[Array, Array, Array], Array]  # key, u, t -> x (d,)
    observation: Callable[[Array, Array, Array], Array]  # key, x, t -> y (p,)


@dataclass(frozen=True)
class System:
    """A ready-made system; `system(**parameters)` is its state-space model.

    Attributes:
        name: how it is called in `psdfilter.systems`.
        summary: what it is, in a line.
        dim: number of coordinates of the state.
        model: parameters -> StateSpaceModel, differentiable in them.
        sampler: parameters -> how to simulate.
        densities: parameters -> the densities once more, in NumPy, for `reference`.
        num_nodes: nodes per axis at which the reference has converged to about 1e-10 (1-d) or
            1e-8 (2-d).
    """

    name: str
    summary: str
    dim: int
    model: Callable[..., StateSpaceModel]
    sampler: Callable[..., Sampler]
    densities: Callable[..., Densities] | None = None
    num_nodes: int | None = None

    def __call__(self, **parameters: Numbers) -> StateSpaceModel:
        """The state-space model."""
        return self.model(**parameters)

    def __repr__(self) -> str:
        return f"<psdfilter.systems.{self.name}: {self.summary}>"

    def simulate(
        self,
        key_or_seed: PRNGKeyArray | int,
        num_steps: int,
        *,
        first: str = "predict",
        **parameters: Numbers,
    ) -> tuple[Float[Array, "t d"], Float[Array, "t p"]]:
        """States x_1 ... x_T and observations y_1 ... y_T.

        Args:
            key_or_seed: a JAX random key, or a whole number to make one from.
            num_steps: T.
            first: "predict": the first state shown is one transition after the prior's;
                "observe": it is the prior's own, at time 0.
            **parameters: as for the model.
        """
        require_x64()
        length = as_count("num_steps", num_steps)
        if first not in ("predict", "observe"):
            raise ValueError(f'first must be "predict" or "observe", got {first!r}')
        if isinstance(key_or_seed, int):
            key = jax.random.key(key_or_seed)
        else:
            key = as_key("key_or_seed", key_or_seed)
        try:
            path = _compiled(self, tuple(sorted(parameters.items())))
        except TypeError:  # parameters that are arrays cannot be looked up
            path = _path_of(self.sampler(**parameters))
        xs, ys, start, seen = path(key, length)
        if first == "observe":
            xs = jnp.concatenate([start[None], xs[:-1]])
            ys = jnp.concatenate([seen[None], ys[:-1]])
        return xs, ys

    def reference(
        self,
        ys: Numbers,
        *,
        num_nodes: int | None = None,
        first: str = "predict",
        check: bool = False,
        **parameters: Numbers,
    ) -> Reference:
        """The filter on a dense grid, in NumPy, with the true densities.

        Args:
            ys: observations (T, p); rows of NaN are missing.
            num_nodes: Gauss-Legendre nodes per axis; by default enough to have converged.
            first: as in `run_filter`.
            check: filter with twice as many nodes too, and keep the distances in
                `reference.distance` and `reference.log_likelihood_gap`.
            **parameters: as for the model.
        """
        if self.densities is None or self.num_nodes is None:
            raise ValueError(f"{self.name} has no dense reference: {self.dim} dimensions are many")
        densities = self.densities(**parameters)
        return reference_filter(densities, ys, num_nodes or self.num_nodes, first, check)


Path = Callable[[PRNGKeyArray, int], tuple[Array, ...]]


def _path_of(sampler: Sampler) -> Path:
    """key, T -> x_1 ... x_T, y_1 ... y_T, x_0, y_0."""

    def path(key: Array, length: int) -> tuple[Array, ...]:
        start_key, see_key, path_key = jax.random.split(key, 3)
        start = sampler.prior(start_key)

        def step(u: Array, at: tuple[Array, Array]) -> tuple[Array, tuple[Array, Array]]:
            row, t = at
            move, see = jax.random.split(row)
            x = sampler.transition(move, u, t)
            return x, (x, sampler.observation(see, x, t))

        keys = jax.random.split(path_key, length)
        _, (xs, ys) = jax.lax.scan(step, start, (keys, jnp.arange(1, length + 1)))
        return xs, ys, start, sampler.observation(see_key, start, jnp.asarray(0))

    return jax.jit(path, static_argnums=1)


@lru_cache(maxsize=64)
def _compiled(system: System, parameters: tuple[tuple[str, Numbers], ...]) -> Path:
    """The simulator of a system, kept so that a second series of the same length is at once."""
    return _path_of(system.sampler(**dict(parameters)))
