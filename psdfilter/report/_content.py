"""The numbers that a report shows, as plain arrays."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from scipy.special import ndtri

from .._frames.errors import printable
from .._frames.out import settled, state_names
from .._frames.words import Moments, plain_times
from .._inference.numerics.circles import Circle, sensor_circle
from .._inference.numerics.gridded import density_on_plane, marginal_densities
from .._inference.numerics.regions import highest_regions, modes_within
from .._inference.posterior import Forecast, Posterior, Smoothed
from .._inference.result import AbstractResult

# Times that a heat map has room for, and points of lines that a page carries easily.
_MOST_COLUMNS, _MOST_POINTS, _GRID = 240, 4000, 121
# Of states in the plane, whose joint densities are a picture for each time.
_MOST_PICTURES, _PLANE_GRID = 80, 45
# Quantiles of states, and of forecasts and observations.
LEVELS = (0.025, 0.05, 0.25, 0.5, 0.75, 0.95, 0.975)

T = TypeVar("T")


@dataclass(frozen=True)
class Laws:
    """Summaries of a result at its shown times, (t, d) each, and densities at fewer of them.

    Attributes:
        mean: and `sd`, `quantiles` (k, t, d) at `LEVELS`.
        points: (d, n), where densities (c, d, n) are known.
        circles: of coordinates that wrap.
    """

    mean: np.ndarray
    sd: np.ndarray
    quantiles: np.ndarray
    points: np.ndarray | None = None
    densities: np.ndarray | None = None
    circles: dict[int, Circle] = field(default_factory=dict)

    def period(self, i: int) -> float | None:
        """Of a coordinate that wraps."""
        return self.circles[i].period if i in self.circles else None

    def level(self, level: float, i: int) -> np.ndarray:
        """One quantile of one coordinate, (t,)."""
        return self.quantiles[LEVELS.index(level), :, i]

    def regions(self, mass: float, i: int) -> list[np.ndarray]:
        """Regions of highest density of one coordinate, (r, 2) each, where densities are known."""
        if self.points is None or self.densities is None:
            return []
        points, period = self.points[i], self.period(i)
        return [highest_regions(points, row[i], mass, period) for row in self.densities]

    def modes(self, i: int) -> list[np.ndarray]:
        """The highest point of each region of 90%."""
        if self.points is None or self.densities is None:
            return []
        pairs = zip(self.densities, self.regions(0.9, i), strict=True)
        points, period = self.points[i], self.period(i)
        return [modes_within(points, row[i], regions, period) for row, regions in pairs]

    def is_split(self, i: int) -> bool:
        """Whether 90% of a coordinate lie in several intervals at some time.

        Medians may then be where the state never is.
        """
        return any(len(regions) > 1 for regions in self.regions(0.9, i))


@dataclass(frozen=True)
class Seen:
    """Observations (t, p), what was predicted of them, and how well that held; None if unknown."""

    values: np.ndarray
    predicted: Laws | None
    pit: np.ndarray | None
    residuals: np.ndarray | None
    circles: dict[int, Circle]


@dataclass(frozen=True)
class Content:
    """All of a report but its words.

    Attributes:
        times: of the shown rows, ISO dates or numbers.
        columns: which of the shown rows have densities.
        ahead_columns: which rows of the forecast have.
        num: number of rows, shown or not.
        lost: why something is not there, by what it is.
        joint: of states in the plane, points of the axes and joint densities, (c, n, n).
    """

    times: Moments
    time_name: str
    columns: np.ndarray
    num: int
    names: list[str]
    observed_names: list[str]
    filtered: Laws
    smoothed: Laws | None
    ahead: Laws | None
    ahead_observed: Laws | None
    ahead_times: Moments
    ahead_columns: np.ndarray
    seen: Seen
    log_likelihoods: np.ndarray
    errors: np.ndarray | None
    tol: float
    lost: dict[str, str]
    joint: tuple[np.ndarray, np.ndarray] | None = None

    def is_split(self, i: int) -> bool:
        """Whether a coordinate has several modes that are apart, in any of its laws."""
        laws = (self.filtered, self.smoothed, self.ahead)
        return any(each.is_split(i) for each in laws if each is not None)


def collect(
    post: Posterior, smooth: Smoothed | None, ahead: Forecast | None, names: list[str] | None
) -> Content:
    """The numbers of a filter, and of a smoother and a forecast if there are."""
    num, dim = post.mean.shape
    rows = _spread(num, _MOST_POINTS)
    columns = _spread(len(rows), _MOST_PICTURES if dim == 2 else _MOST_COLUMNS)
    lost: dict[str, str] = {}
    at, name = _times(post, ahead)
    later = attempt("the law of y in the forecast", lost, lambda: _observed_ahead(ahead))
    observed = observed_names(post)
    future = np.arange(0 if ahead is None else ahead.mean.shape[0])
    later_columns = _spread(len(future), _MOST_COLUMNS)

    def joint() -> tuple[np.ndarray, np.ndarray]:
        return density_on_plane(post.laws, _PLANE_GRID, rows[columns])

    errors = attempt("error estimates", lost, lambda: np.asarray(post.error_estimates)[rows])
    return Content(
        times=[at[0][row] for row in rows],
        time_name=name,
        columns=columns,
        num=num,
        names=[printable(name) for name in state_names(names, dim)],
        observed_names=observed,
        filtered=_laws(post, rows, rows[columns]),
        smoothed=None if smooth is None else _laws(smooth, rows, rows[columns]),
        ahead=None if ahead is None else _laws(ahead, future, later_columns),
        ahead_observed=later,
        ahead_times=at[1],
        ahead_columns=later_columns,
        seen=_seen(post, rows, lost),
        log_likelihoods=np.asarray(post.log_likelihoods)[rows],
        errors=errors,
        tol=post.model.tol,
        lost=lost,
        joint=None if dim != 2 else attempt("joint densities", lost, joint),
    )


def attempt(what: str, lost: dict[str, str], compute: Callable[[], T]) -> T | None:
    """What can be computed, or None and a note why it is not there."""
    try:
        return compute()
    except ValueError as error:
        lost[what] = str(error)
        return None


def observed_names(post: Posterior) -> list[str]:
    """Names of the observed columns."""
    num = np.asarray(post.series.ys).shape[1]
    given = None if post.labels is None else post.labels.columns
    if given is not None and len(given) == num:
        return [printable(str(name)) for name in given]
    return [f"y{i}" for i in range(num)]


def _spread(num: int, most: int) -> np.ndarray:
    """At most `most` of `num` rows, evenly, with the first and the last."""
    return np.unique(np.linspace(0, num - 1, min(num, most)).round().astype(int))


def _laws(result: AbstractResult, rows: np.ndarray, dense: np.ndarray | None) -> Laws:
    covariance = np.asarray(result.covariance)
    deviation = np.sqrt(np.diagonal(covariance, axis1=-2, axis2=-1))
    quantiles = np.asarray(result.quantile(list(LEVELS)))
    points = densities = None
    if dense is not None:
        points, densities = marginal_densities(result.laws, result.mean.shape, _GRID, dense)
    mean = settled(np.asarray(result.mean), deviation)
    quantiles = settled(quantiles, deviation)
    circles = {i: Circle(*ends) for i, ends in result.laws.circles().items()}
    return Laws(mean[rows], deviation[rows], quantiles[:, rows], points, densities, circles)


def _seen(post: Posterior, rows: np.ndarray, lost: dict[str, str]) -> Seen:
    every = np.asarray(post.series.ys)
    values = every[rows]
    found = {j: sensor_circle(post.model.source, every, j) for j in range(every.shape[1])}
    circles = {j: circle for j, circle in found.items() if circle is not None}

    def predicted() -> Laws:
        return _laws(post.predicted_observations, rows, None)

    bands = attempt("predictive bands", lost, predicted)
    pit = attempt("PIT and residuals", lost, lambda: np.asarray(post.pit)[rows])
    if pit is None:
        return Seen(values, bands, None, None, circles)
    pit = pit.reshape(len(rows), -1)
    # As `post.residuals`, which would compute `post.pit` once more.
    tiny = np.finfo(float).eps
    return Seen(values, bands, pit, ndtri(np.clip(pit, tiny, 1 - tiny)), circles)


def _observed_ahead(ahead: Forecast | None) -> Laws | None:
    if ahead is None:
        return None
    return _laws(ahead.observations, np.arange(ahead.mean.shape[0]), None)


def _times(post: Posterior, ahead: Forecast | None) -> tuple[tuple[Moments, Moments], str]:
    """Times of rows and of the forecast, in one kind, and what to call them."""
    results: list[AbstractResult] = [post] if ahead is None else [post, ahead]
    labels = [result.labels for result in results if result.labels is not None]
    dated = all(each.has_axis for each in labels)
    if len(labels) == len(results) and dated:
        shown = [plain_times(each.local) for each in labels]
        name = printable(labels[0].heading)
    else:
        raw = [np.asarray(result.times) for result in results]
        shown, name = (
            [plain_times(each) for each in raw],
            "step" if raw[0].dtype.kind in "iu" else "time",
        )
    return (shown[0], shown[1] if ahead is not None else []), name
