"""Likelihood surfaces: one function of theta, evaluated at many."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from .. import _results
from .._checks import require_x64
from .._frames.table import Frame
from .._inference.sizing.plan import Unaffordable
from .._learning.progress import Bar
from .._parameters.core import Build
from .._parameters.likelihood import Likelihood, likelihood
from .._parameters.theta import Theta, as_theta, names_of
from ._engines import as_client, in_threads, on_cluster
from ._sources import AbstractSource, as_source

if TYPE_CHECKING:
    import xarray
    from distributed import Client

# Thetas of one task: neighbours in the order given, which a plan often serves together.
_PIECE = 16


class Sweep(NamedTuple):
    """What all thetas have in common."""

    build: Build
    series: list[np.ndarray]
    keywords: dict[str, Any]


class Values(NamedTuple):
    """Results of some thetas, a row each."""

    start: int
    log_likelihoods: np.ndarray  # (K, S)
    codes: np.ndarray  # (K,)
    errors: np.ndarray  # (K,)


def run_sweep(
    build: Build,
    thetas: Sequence[Theta],
    series: Frame,
    client: "Client | None" = None,
    *,
    tol: float | None = None,
    first: str = "predict",
    progress: bool | None = None,
) -> "xarray.Dataset":
    """log p(y_i; theta) of every series at every theta, as an xarray Dataset.

    Each task makes a plan at its first theta, and another one wherever that does not serve to the
    tolerance; a theta that no plan serves has a code.

    Args:
        build: theta -> StateSpaceModel, written in JAX.
        thetas: pytrees of numbers of one form, for example dicts; neighbours next to each other
            share their plans.
        series: as for `run_fleet`; one series as for `run_filter` too.
        client: as for `run_fleet`.
        tol: as for `likelihood`.
        first: as for `run_filter`.
        progress: whether to show a bar; by default on a terminal.

    Returns:
        A Dataset over `theta` and `series` with `log_likelihoods`, their sum `log_likelihood`,
        `code`, `error_estimate` (the largest error of a step), and a coordinate along `theta` for
        each parameter.
    """
    require_x64()
    import xarray

    given = [as_theta(f"thetas[{i}]", theta) for i, theta in enumerate(thetas)]
    if not given:
        raise ValueError("thetas must hold at least one theta")
    forms = {jax.tree.structure(theta) for theta in given}
    if len(forms) > 1:
        raise ValueError("thetas must all have the same form, as dicts of the same names")
    source = _as_series(series)
    raws = [np.asarray(raw.ys, dtype=float) for raw in source.read(0, len(source))]
    sweep = Sweep(build, [y[:, None] if y.ndim == 1 else y for y in raws], {"first": first})
    if tol is not None:
        sweep.keywords["tol"] = tol
    plain = [jax.tree.map(np.asarray, theta) for theta in given]
    known = as_client(client)

    def items() -> Iterator[tuple[object, ...]]:
        for start in range(0, len(plain), _PIECE):
            yield start, plain[start : start + _PIECE]

    found = (
        in_threads(_task, sweep, items())
        if known is None
        else on_cluster(known, _task, sweep, items())
    )
    logs = np.full((len(given), len(source)), np.nan)
    codes, errors = np.zeros(len(given), int), np.full(len(given), np.nan)
    with Bar("sweep", progress) as bar:
        for part in found:
            at = slice(part.start, part.start + len(part.codes))
            logs[at], codes[at], errors[at] = part.log_likelihoods, part.codes, part.errors
            bar.advance(len(part.codes) / len(given))
    flat = np.stack([np.concatenate([np.ravel(a) for a in jax.tree.leaves(t)]) for t in plain])
    parameters = {name: ("theta", flat[:, k]) for k, name in enumerate(names_of(given[0]))}
    return xarray.Dataset(
        {
            "log_likelihoods": (("theta", "series"), logs),
            "log_likelihood": ("theta", logs.sum(axis=1)),
            "code": ("theta", codes),
            "error_estimate": ("theta", errors),
        },
        coords={"series": source.labels, **parameters},
    )


def _as_series(series: Frame) -> AbstractSource:
    if isinstance(series, Mapping | str | AbstractSource) or hasattr(series, "columns"):
        return as_source(series)
    if np.ndim(np.asarray(series, dtype=object)) <= 2 and not isinstance(series, list | tuple):
        return as_source({"0": np.asarray(series, dtype=float)})
    return as_source(series)


def _task(sweep: Sweep, index: int, thetas: Sequence[Theta]) -> Values:
    """Some thetas, one after the other."""
    made: Likelihood | None = None
    rows, codes, errors = [], [], []
    for plain in thetas:
        theta = jax.tree.map(jnp.asarray, plain)
        try:
            made, error, serves = _serving(sweep, made, theta)
        except (Unaffordable, ValueError):
            rows.append(np.full(len(sweep.series), np.nan))
            codes.append(_results.BAD_SERIES)
            errors.append(np.inf)
            continue
        each = made.increments(theta)
        rows.append(np.asarray([float(jnp.sum(one)) for one in each]))
        codes.append(_results.OK if serves else _results.UNRESOLVED)
        errors.append(error)
    return Values(index, np.stack(rows), np.asarray(codes), np.asarray(errors))


def _serving(sweep: Sweep, made: Likelihood | None, theta: Theta) -> tuple[Likelihood, float, bool]:
    """A likelihood whose plan serves at theta, its largest error, and whether it does serve."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # codes say it
        for fresh in (False, True):
            if made is None or fresh:
                made = likelihood(sweep.build, theta, sweep.series, **sweep.keywords)
            _, check = made.value_and_check(theta)
            if bool(made.serves(check, 1.0)):
                break
    error = float(jnp.maximum(check.transition_error, check.observation_error))
    return made, error, bool(made.serves(check))
