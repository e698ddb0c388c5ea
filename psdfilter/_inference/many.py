"""The filters of many series, as one result: what a Posterior answers, with an axis of series."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.errors import ConcretizationTypeError, TracerArrayConversionError
from jaxtyping import Array, ArrayLike, Float, Int, PRNGKeyArray

from .._checks import Numbers, as_count, as_key
from .._density.psd import AbstractDensity
from .batch import Part, in_rows, judge
from .certificate.certificate import Certificate
from .laws import central_levels, checked_index
from .model import AbstractModel
from .observations import Observations
from .posterior import Posterior
from .registry import as_model

if TYPE_CHECKING:
    import xarray

_Untraceable = (ConcretizationTypeError, TracerArrayConversionError, ValueError)

T = TypeVar("T")


class PosteriorBatch(eqx.Module):
    """p(x_t | y_1 ... y_t) of S series, from `run_filter(model, [series, ...])`.

    `batch[i]` is the Posterior of one series. Everything a Posterior has is here for all of them,
    with a leading axis of series, and NaN past the end of a series; what is no array is a list.

    Attributes:
        parts: the series as they were filtered, side by side or one by one.
        lengths: rows of each series, (S,).
    """

    parts: tuple[Part, ...]
    own: AbstractModel
    lengths: Int[np.ndarray, " s"]

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[Posterior]:
        return (self[i] for i in range(len(self)))

    def _place(self, i: int) -> tuple[Part, int]:
        for part in self.parts:
            if i in part.members:
                return part, part.members.index(i)
        raise AssertionError(f"series {i} is in no part")

    def __getitem__(self, i: int) -> Posterior:
        """The filter of one series, counted from the end if i is negative."""
        if not -len(self) <= i < len(self):
            raise IndexError(f"i must lie in 0..{len(self) - 1}, got {i}")
        part, place = self._place(i % len(self))
        if part.trace.laws is None and part.stacked:
            raise ValueError(
                'a single posterior needs the densities: filter with keep="densities" instead of '
                '"summaries"'
            )
        return Posterior(part.model, *part.one(place))

    @property
    def model(self) -> AbstractModel:
        """The learned model; single series may have been filtered by a finer one."""
        return self.own

    def _rows(
        self, fn: Callable[[Posterior], ArrayLike], fill: float = np.nan, axis: int = 0
    ) -> Array:
        """fn of all posteriors, whose axis `axis` is time, filled up past the ends."""
        values = []
        for part in self.parts:
            out = self._of_part(part, fn)
            values.append(np.moveaxis(np.asarray(out), axis + 1, 1))
        return jnp.asarray(np.moveaxis(in_rows(self.parts, values, len(self), fill), 1, axis + 1))

    def _of_part(self, part: Part, fn: Callable[[Posterior], ArrayLike]) -> ArrayLike:
        try:
            return part.over_all(lambda series, trace: fn(Posterior(part.model, series, trace)))
        except _Untraceable:
            if not part.stacked:
                raise
        # What looks at numbers is done one by one, and an error is raised again if it was one.
        longest = part.series.num
        each = [
            None if i is None else np.asarray(fn(Posterior(part.model, *part.one(place))))
            for place, i in enumerate(part.members)
        ]
        some = next(one for one in each if one is not None)
        out = np.full((len(each), longest, *some.shape[1:]), np.nan)
        for row, one in zip(out, each, strict=True):
            if one is not None:
                row[: len(one)] = one
        return out

    def _single(self, fn: Callable[[Posterior], T], t: int) -> list[T | None]:
        """fn of all posteriors that have an index t, None for the others."""
        index = checked_index("t", t, int(np.max(self.lengths)))
        return [fn(self[i]) if index < n else None for i, n in enumerate(self.lengths)]

    @property
    def mean(self) -> Float[Array, "s t d"]:
        """Of every series and time."""
        return self._rows(lambda post: post.mean)

    @property
    def covariance(self) -> Float[Array, "s t d d"]:
        """Of every series and time."""
        return self._rows(lambda post: post.covariance)

    @property
    def log_likelihoods(self) -> Float[Array, "s t"]:
        """log Z_t."""
        return self._rows(lambda post: post.log_likelihoods)

    @property
    def log_likelihood(self) -> Float[Array, " s"]:
        """sum_t log Z_t of every series."""
        return jnp.nansum(self.log_likelihoods, axis=1)

    @property
    def log_kept(self) -> Float[Array, "s t"]:
        """log of the predicted mass where the state lives."""
        return self._rows(lambda post: post.log_kept)

    @property
    def log_predictive(self) -> Float[Array, " s"]:
        """sum_t log(Z_t / D_t) of every series, as in `Posterior`."""

        def gained(post: Posterior) -> Array:
            trace = post.trace
            return jnp.where(trace.seen, trace.log_likelihoods - trace.log_normalizers, 0.0)

        return jnp.nansum(self._rows(gained), axis=1)

    @property
    def codes(self) -> Int[Array, "s t"]:
        """Outcome of each step, 0 if fine and past the end."""
        return self._rows(lambda post: post.codes, 0)

    @property
    def code(self) -> Int[Array, " s"]:
        """Of the first step of each series that was not fine; 3 if its error is above tol."""
        return jnp.asarray(self._judged()[0])

    @property
    def seen(self) -> Array:
        """Whether the observation was used, (S, T)."""
        return self._rows(lambda post: post.seen, False)

    @property
    def times(self) -> Float[Array, "s t"]:
        """Times of the observations, in transitions from the prior."""
        return self._rows(lambda post: post.times.astype(float))

    @property
    def normalizer_errors(self) -> Float[Array, "s t"]:
        """int p - 1 of every filtered density, as in `Posterior`; takes an integral for each."""
        out = np.full((len(self), int(np.max(self.lengths))), np.nan)
        for row, post in zip(out, self, strict=True):
            row[: post.series.num] = np.asarray(post.normalizer_errors)
        return jnp.asarray(out)

    def quantile(self, q: Numbers) -> Float[Array, "s *k t d"]:
        """The q-quantile of every coordinate at every time; an axis after the first for several."""
        axis = np.ndim(np.asarray(q, dtype=float))
        return self._rows(lambda post: post.quantile(q), axis=axis)

    def interval(self, mass: float = 0.9) -> tuple[Float[Array, "s t d"], Float[Array, "s t d"]]:
        """Lower and upper end of the central interval of the given mass."""
        ends = self.quantile(central_levels(mass))
        return ends[:, 0], ends[:, 1]

    def cdf(self, x: Numbers) -> Float[Array, "s t d"]:
        """P(x_t,l <= x_l) of every coordinate, for one x (d,)."""
        point = jnp.asarray(x, dtype=jnp.float64).reshape(-1)
        return self._rows(lambda post: post.cdf(point))

    def expect(self, fn: Callable[[Array], Numbers]) -> Array:
        """E[fn(x_t)] for every series and time; fn takes one state (d,)."""
        return self._rows(lambda post: post.expect(fn))

    def sample(self, *, key: PRNGKeyArray, num: int) -> Float[Array, "s n t d"]:
        """Independent draws from the law of every time, (S, num, T, d)."""
        count, keys = as_count("num", num), jax.random.split(as_key("key", key), len(self))
        longest = int(np.max(self.lengths))
        out = np.full((len(self), count, longest, self.own.dim), np.nan)
        for row, one, post in zip(out, keys, self, strict=True):
            row[:, : post.series.num] = np.asarray(post.sample(key=one, num=count))
        return jnp.asarray(out)

    def density(self, t: int) -> list[AbstractDensity | None]:
        """The laws at index t, functions of x (..., d); None for series that have ended."""
        return self._single(lambda post: post.density(t), t)

    def predictive_density(self, t: int) -> list[AbstractDensity | None]:
        """The densities of x_t given y before t."""
        return self._single(lambda post: post.predictive_density(t), t)

    def observation_density(self, t: int) -> list[AbstractDensity | None]:
        """p(y_t | y before t), for a joint model of (x, y)."""
        return self._single(lambda post: post.observation_density(t), t)

    def modes(self, t: int, *, least: float = 1e-6) -> list[Array | None]:
        """The local maxima of the densities at index t."""
        return self._single(lambda post: post.modes(t, least=least), t)

    def mode(self, t: int) -> list[Array | None]:
        """Where the densities at index t are largest."""
        return self._single(lambda post: post.mode(t), t)

    @property
    def predicted_observations(self) -> list[Observations]:
        """The laws of y_t given y before t, of every series."""
        return [post.predicted_observations for post in self]

    @property
    def certificate(self) -> list[Certificate]:
        """What can be proved about the errors of every series."""
        return [post.certificate for post in self]

    @property
    def pit(self) -> Float[Array, "s t *p"]:
        """P(Y_t <= y_t | y before t); NaN if missing and past the end."""
        return self._rows(lambda post: post.pit)

    @property
    def residuals(self) -> Float[Array, "s t *p"]:
        """Normal quantiles of `pit`."""
        return self._rows(lambda post: post.residuals)

    @property
    def error_estimates(self) -> Float[Array, "s t"]:
        """Estimated total variation that each step adds, as it was watched on the way.

        On a fixed plan int |p - p^| G / int p G for the learned transition, and the same for the
        learned sensor; `batch[i].error_estimates` compares with a finer filter instead.
        """
        for part in self.parts:
            if part.trace.errors is None:
                raise ValueError(f'engine "{part.model.engine}" has no errors of batches: batch[i]')
        return self._rows(lambda post: jnp.asarray(post.trace.errors))

    @property
    def error_estimate(self) -> Float[Array, " s"]:
        """The largest of `error_estimates` of every series."""
        return jnp.asarray(self._judged()[1])

    def _judged(self) -> tuple[np.ndarray, np.ndarray]:
        codes, errors = np.zeros(len(self), int), np.zeros(len(self))
        for part in self.parts:
            trace = part.trace
            if not part.stacked:
                trace = jax.tree.map(
                    lambda a: np.asarray(a)[None], trace._replace(last=None, laws=None)
                )
            judged = judge(trace, part.lengths, self.own.tol)
            for row, i in enumerate(part.members):
                if i is not None:
                    codes[i], errors[i] = judged.codes[row], judged.errors[row]
        return codes, errors

    @property
    def facts(self) -> dict[str, float | str]:
        """For the summary."""
        alone = sum(len(part.members) for part in self.parts if not part.stacked)
        return {
            "engine": self.own.engine,
            "tolerance": self.own.tol,
            "log_likelihood": float(jnp.sum(self.log_likelihood)),
            "filtered_one_by_one": alone,
            "bad_codes": int(np.sum(np.asarray(self.code) != 0)),
            "largest_error_estimate": float(jnp.max(self.error_estimate)),
        }

    def to_xarray(self, quantiles: Sequence[float] = (0.05, 0.5, 0.95)) -> "xarray.Dataset":
        """Means, deviations and quantiles as an xarray Dataset over (series, time, state)."""
        try:
            import xarray
        except ImportError as error:
            raise ImportError("to_xarray needs xarray: pip install 'psdfilter[frames]'") from error
        mean, covariance = np.asarray(self.mean), np.asarray(self.covariance)
        rows = ("series", "time", "state")
        fields: dict[str, object] = {
            "mean": (rows, mean),
            "sd": (rows, np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))),
            "log_likelihoods": (rows[:2], np.asarray(self.log_likelihoods)),
            "log_likelihood": (rows[:1], np.asarray(self.log_likelihood)),
            "code": (rows[:1], np.asarray(self.code)),
            "error_estimate": (rows[:1], np.asarray(self.error_estimate)),
        }
        coordinates: dict[str, object] = {
            "series": np.arange(len(self)),
            "state": np.arange(mean.shape[2]),
        }
        if len(quantiles):
            values = np.asarray(self.quantile(list(quantiles)))
            fields["quantiles"] = (("series", "quantile", "time", "state"), values)
            coordinates["quantile"] = list(quantiles)
        return xarray.Dataset(fields, coords=coordinates, attrs=self.facts)

    def __str__(self) -> str:
        shortest, longest = int(np.min(self.lengths)), int(np.max(self.lengths))
        rows = {"series": f"{len(self)}, of {shortest} to {longest} rows", **self.facts}
        width = 2 + max(len(name) for name in rows)
        shown = {k: v if isinstance(v, str) else f"{v:.6g}" for k, v in rows.items()}
        lines = [f"{name.replace('_', ' '):<{width}}{value}" for name, value in shown.items()]
        return "\n".join(["PosteriorBatch", *lines])


def batch_of(model: AbstractModel, parts: Sequence[Part], lengths: Sequence[int]) -> PosteriorBatch:
    """A batch, of parts that hold all series."""
    return PosteriorBatch(tuple(parts), as_model(model), np.asarray(lengths))
