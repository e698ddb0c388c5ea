"""What every result of inference offers: laws at several times, their summaries and a table."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from .._checks import Numbers, as_count, as_key, counted, is_concrete
from .._density.moments import mode as mode_of
from .._density.psd import AbstractDensity
from .._frames.labels import Labels
from .._frames.out import (
    columns_of,
    needed,
    settled,
    state_names,
    time_coordinates,
    to_pandas,
    to_polars,
)
from .._frames.words import plain_times
from .laws import AbstractLaws, central_levels, checked_index, quantiles_of
from .numerics.gridded import marginal_densities
from .numerics.peaks import levels_of_axis, peaks
from .trace import Moments

if TYPE_CHECKING:
    import arviz
    import pandas
    import polars
    import xarray

# Fields that belong to the structure of a pytree, and are no leaves.
STATIC = {"static": True}
# Of tables, unless others are wanted.
LEVELS = (0.05, 0.5, 0.95)
# Names of facts that would be riddles in a table for people.
_WORDS = {"not_used": "rows not used", "bad_codes": "steps with a warning"}


class AbstractResult(ABC):
    """Laws at T times, in user units. `mean` (T, d) and `covariance` (T, d, d) are at hand."""

    @abstractmethod
    def moments(self) -> Moments:
        """Means and covariances of all times."""

    @property
    def mean(self) -> Float[Array, "t d"]:
        """Of every time."""
        return self.moments().mean

    @property
    def covariance(self) -> Float[Array, "t d d"]:
        """Of every time."""
        return self.moments().covariance

    @property
    @abstractmethod
    def laws(self) -> AbstractLaws:
        """The laws, in the form of the engine."""

    @property
    @abstractmethod
    def times(self) -> Array | np.ndarray:
        """When the laws are those of, in transitions from the prior or as given, (T,)."""

    @property
    @abstractmethod
    def labels(self) -> Labels | None:
        """What a data frame called rows and columns."""

    @property
    @abstractmethod
    def given_names(self) -> tuple[str, ...] | None:
        """Of the coordinates, if they are known."""

    @property
    @abstractmethod
    def row_facts(self) -> dict[str, np.ndarray]:
        """What is known of each row besides its law, for tables, (T,) each."""

    @property
    @abstractmethod
    def facts(self) -> dict[str, float | str]:
        """Numbers about all of it, for the summary and for attributes of data sets."""

    def quantile(self, q: Numbers) -> Float[Array, "*k t d"]:
        """The q-quantile of every coordinate at every time; a leading axis for several q."""
        return quantiles_of(self.laws, q)

    def interval(
        self, mass: float = 0.9, *, shortest: bool = False
    ) -> tuple[Float[Array, "t d"], Float[Array, "t d"]]:
        """Lower and upper end of the interval of the given mass, central or as short as can be.

        Those of angles are around the mean direction, and may reach past the ends of the box.
        """
        levels = central_levels(mass)
        ends = self.laws.shortest(float(mass)) if shortest else self.quantile(levels)
        return ends[0], ends[1]

    @property
    def regimes(self) -> Float[Array, "t k"]:
        """Probabilities of the regimes at every time, for models made by `switching`."""
        return self.laws.regimes()

    @property
    def resultant(self) -> Float[Array, "t d"]:
        """|E exp(2 pi i x / period)|: 1 for an angle that is known, 0 if all are alike.

        NaN for coordinates that do not wrap.
        """
        return self.laws.resultants()

    def cdf(self, x: Numbers) -> Float[Array, "t d"]:
        """P(x_t,l <= x_l) of every coordinate l at every time, for one x (d,) or x (T, d)."""
        points = jnp.asarray(x, dtype=jnp.float64)
        points = points if points.ndim == 2 else points.reshape(1, -1)
        return self.laws.cdfs(jnp.broadcast_to(points, self.mean.shape))

    def expect(self, fn: Callable[[Array], Numbers]) -> Array:
        """E[fn(x_t)] for every t; fn takes one state (d,)."""
        return self.laws.expectations(fn)

    def density(self, t: int, *, regime: int | None = None) -> AbstractDensity:
        """The law at index t, a function of x (..., d): never negative, of mass one.

        With a `regime`, the law of x given that regime; regimes[t, k] is how probable that is.
        """
        index, laws = checked_index("t", t, self.mean.shape[0]), self.laws
        if regime is None:
            return laws.density(index)
        return laws.regime_density(index, checked_index("regime", regime, laws.regimes().shape[1]))

    def modes(self, t: int, *, least: float = 1e-6) -> Float[Array, "k d"]:
        """The local maxima of the density at index t, the highest first, for d = 1 and 2.

        Args:
            t: index of the time.
            least: maxima below this share of the highest are left out.
        """
        if not 0 <= least < 1:
            raise ValueError(f"least must lie in [0, 1), got {least!r}")
        density = self.density(t)
        if density.dim > 2:
            raise ValueError(
                f"modes are found in one or two coordinates, got {density.dim}: mode(t) gives the "
                "highest, psdfilter.marginal a density of fewer"
            )
        quantiles = np.asarray(self.quantile(levels_of_axis(density.dim)))[:, t]
        return jnp.asarray(peaks(density, quantiles, least))

    def mode(self, t: int) -> Float[Array, " d"]:
        """Where the density at index t is largest."""
        density = self.density(t)
        if density.dim <= 2:
            return self.modes(t)[0]
        return mode_of(density)  # pyright: ignore[reportArgumentType]

    def sample(self, *, key: PRNGKeyArray, num: int) -> Float[Array, "n t d"]:
        """Independent draws from the law of every time, (num, T, d)."""
        return self.laws.draws(as_key("key", key), as_count("num", num))

    def to_pandas(
        self, quantiles: float | Sequence[float] = LEVELS, *, names: Sequence[str] | None = None
    ) -> "pandas.DataFrame":
        """A pandas DataFrame with one row for each time.

        Columns are `x0_mean`, `x0_sd`, `x0_q0.05`, ... of every coordinate, and what else is known
        of each row. The index is that of the observations, if they came in a data frame, and the
        number of transitions otherwise.

        Args:
            quantiles: one or several; `()` for results that kept summaries only.
            names: of the coordinates, instead of x0, x1, ...
        """
        return to_pandas(self._columns(quantiles, names), np.asarray(self.times), self.labels)

    def to_polars(
        self, quantiles: float | Sequence[float] = LEVELS, *, names: Sequence[str] | None = None
    ) -> "polars.DataFrame":
        """A polars DataFrame, with the columns of `to_pandas`; times are in the first."""
        return to_polars(self._columns(quantiles, names), np.asarray(self.times), self.labels)

    def _columns(
        self, quantiles: float | Sequence[float], names: Sequence[str] | None
    ) -> dict[str, np.ndarray]:
        mean, quantiles = np.asarray(self.mean), _levels_of(quantiles)
        ends = np.asarray(self.quantile(quantiles)) if quantiles else np.empty((0, *mean.shape))
        summary = mean, _deviations(np.asarray(self.covariance)), ends
        called = state_names(self.given_names if names is None else names, mean.shape[1])
        return columns_of(summary, quantiles, called, self.row_facts)

    def to_xarray(
        self,
        quantiles: float | Sequence[float] = LEVELS,
        *,
        names: Sequence[str] | None = None,
        grid: int | None = None,
    ) -> "xarray.Dataset":
        """Mean, standard deviation, covariance and quantiles as an xarray Dataset.

        Coordinates are `time` (the index of the observations if they came in a data frame, else
        transitions from the prior), `step` (transitions), `state` and `quantile`; what is known of
        each row is a variable, what is known of all of them an attribute.

        Args:
            quantiles: one or several; `()` for results that kept summaries only.
            names: of the coordinates, instead of 0, 1, ...
            grid: number of points for `density`, the density of each coordinate by itself at
                `point`, (time, state, point); by default there is none.
        """
        xarray = needed("xarray", "to_xarray", "frames")
        mean, covariance = np.asarray(self.mean), np.asarray(self.covariance)
        names = self.given_names if names is None else names
        numbers = np.arange(mean.shape[1]) if names is None else state_names(names, mean.shape[1])
        fields: dict[str, object] = {
            "mean": (("time", "state"), mean),
            "sd": (("time", "state"), _deviations(covariance)),
            "covariance": (("time", "state", "other_state"), covariance),
        }
        times, zone = time_coordinates(np.asarray(self.times), self.labels)
        coordinates: dict[str, object] = {**times, "state": numbers, "other_state": numbers}
        if levels := _levels_of(quantiles):
            values = np.asarray(self.quantile(levels))
            fields["quantiles"] = (("quantile", "time", "state"), values)
            coordinates["quantile"] = levels
        fields |= {name: ("time", values) for name, values in self.row_facts.items()}
        if grid is not None:
            count = as_count("grid", grid, least=2)
            points, densities = marginal_densities(self.laws, mean.shape, count)
            fields["density"] = (("time", "state", "point"), densities)
            coordinates["x"] = (("state", "point"), points)
        return xarray.Dataset(fields, coords=coordinates, attrs={**self.facts, **zone})

    def to_arviz(
        self, *, key: PRNGKeyArray, num: int, names: Sequence[str] | None = None
    ) -> "arviz.InferenceData":
        """Draws, as ArviZ data: `x` with the dimensions chain (one), draw, time and state.

        Draws of a smoother are paths, those of other results independent from time to time.
        """
        arviz = needed("arviz", "to_arviz", "samplers")
        draws = np.asarray(self.sample(key=key, num=num))[None]
        times, _ = time_coordinates(np.asarray(self.times), self.labels)
        called = state_names(self.given_names if names is None else names, draws.shape[-1])
        coordinates = {"time": times["time"], "state": called}
        dims = {"x": ["time", "state"]}
        return arviz.from_dict(posterior={"x": draws}, coords=coordinates, dims=dims)

    def __repr__(self) -> str:
        """Its fields, with shapes in place of numbers."""
        return eqx.tree_pformat(self)

    def __str__(self) -> str:
        if not is_concrete(self.mean):
            return f"{type(self).__name__}(traced)"
        num, dim = self.mean.shape
        times, labels = np.asarray(self.times), self.labels
        if labels is not None and labels.values is not None and labels.is_ordered:
            times = plain_times(labels.local)
        sd = _deviations(np.asarray(self.covariance))[-1]
        rows = {
            "times": f"{num}, from {times[0]} to {times[-1]}",
            "state": counted(dim, "coordinate"),
            **{_words(name): _shown(value) for name, value in self.facts.items()},
            "last mean": np.array2string(settled(np.asarray(self.mean[-1]), sd), precision=6),
            "last sd": np.array2string(sd, precision=6),
        }
        width = 2 + max(len(name) for name in rows)
        lines = [f"{name:<{width}}{value}" for name, value in rows.items()]
        return "\n".join([type(self).__name__, *lines])


class AbstractGiven(AbstractResult):
    """A result whose summaries and laws were computed before it was made."""

    summary: Moments
    given: AbstractLaws

    def moments(self) -> Moments:
        """As they were given."""
        return self.summary

    @property
    def laws(self) -> AbstractLaws:
        """The laws, in the form of the engine."""
        return self.given


def _levels_of(quantiles: float | Sequence[float]) -> list[float]:
    """One level is a list of one."""
    try:
        levels = np.asarray(quantiles, dtype=float)
    except (TypeError, ValueError):
        levels = None
    if levels is None or levels.ndim > 1:
        raise ValueError(f"quantiles must be a level or a list of levels, got {quantiles!r}")
    return np.atleast_1d(levels).tolist()


def _words(name: str) -> str:
    """A fact in the words of a table."""
    return _WORDS.get(name, name.replace("_", " "))


def _shown(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def _deviations(covariance: np.ndarray) -> np.ndarray:
    return np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
