"""`run_fleet`: one model and very many series."""

import warnings
from collections.abc import Iterator, Sequence
from os import PathLike
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from .. import _results
from .._checks import as_count, require_x64
from .._frames.table import Frame, Times
from .._inference.ability import Ability
from .._inference.batch import sized_for
from .._inference.buckets import stack_lengths
from .._inference.laws import check_level
from .._inference.model import AbstractModel
from .._inference.registry import as_model, require
from .._inference.run import ResolutionWarning, series_for
from .._learning.progress import Bar
from .._parameters.core import Build
from .._parameters.theta import Bounds, Theta
from .._statespace.functions import Inputs
from ._engines import as_client, in_threads, on_cluster
from ._fingerprint import fingerprint
from ._fit import Fitting, fit_block, fit_rows
from ._kernel import Kit, Rows, Size, Work, empty_rows, run_block, sizes_for
from ._sources import AbstractSource, Named, Raw, as_source
from ._store import VERSION, Memory, Shape, Store

if TYPE_CHECKING:
    import xarray
    from distributed import Client

# Bytes of the results of one block, and the least number of blocks that cores can share.
_BLOCK_BYTES, _LEAST_BLOCKS = 2**26, 16
_LEAST_BLOCK, _MOST_BLOCK = 64, 4096
# Stacks of the finer model hold what few series ask for it.
_FINER_WIDTH, _EACH = 16, 3


class Job(NamedTuple):
    """All that a block needs beside its data."""

    kit: Kit | Fitting
    work: Work
    longest: int
    digest: str  # of the model and the options
    store: Store | None


class Outcome(NamedTuple):
    """What comes back from a block."""

    block: int
    rows: Rows | None  # None if they are in the store


def run_fleet(
    model: AbstractModel | Build,
    series: Frame,
    client: "Client | None" = None,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    *,
    what: str = "filter",
    quantiles: Sequence[float] = (),
    steps: int | None = None,
    first: str = "predict",
    times: Times = None,
    inputs: Inputs = None,
    columns: Named | None = None,
    theta0: Theta | None = None,
    bounds: Bounds | None = None,
    progress: bool | None = None,
) -> "xarray.Dataset":
    """Filter, smooth, forecast or fit many series; an xarray Dataset of their summaries.

    Series are padded to a few lengths and filtered side by side, each step with an estimate of its
    error. Series that a fixed plan does not resolve to the tolerance are filtered again on a finer
    plan, and then one by one by the model's own engine; what still misses has a code. One bad
    series stops no other.

    Args:
        model: from `learn`; for `what="fit"` a function theta -> StateSpaceModel.
        series: a mapping from labels to arrays (T_i, p); a list of them; an array (S, T, p); a data
            frame in long form (pandas or polars); a Zarr array (S, T, p); or the path of a Parquet
            data set, a `.csv` file or a `.zarr` array. NaN is missing.
        client: None for all cores of this machine, a `dask.distributed.Client`, or the address of a
            scheduler.
        out: path of a Zarr store for the results; None keeps them in memory.
        resume: go on with the store of an earlier run: blocks of series whose model, data and
            options have not changed are not computed again.
        what: "filter", "smooth", "forecast" or "fit".
        quantiles: levels of quantiles that are to be there too.
        steps: transitions after the last observation, for "forecast".
        first: as for `run_filter`.
        times: times of the observations, laid out as the series are.
        inputs: inputs, likewise.
        columns: for tables, which columns hold what, `{"series": ..., "time": ..., "values": [...],
            "inputs": [...]}`; by default "series", "time" if there is one, and all others.
        theta0: where to start, for "fit".
        bounds: of parameters, for "fit".
        progress: whether to show a bar; by default on a terminal.

    Returns:
        A Dataset with dimensions `series`, `time` and `state` and the variables `mean`, `sd`,
        `log_likelihoods`, `log_likelihood`, `code`, `error_estimate`, `length`, `method` and
        `message`, and `quantiles` if there are any; NaN past the end of a series. With "fit":
        `estimate`, `standard_error`, `log_likelihood`, `code`. `attrs["summary"]` is a summary.
    """
    require_x64()
    source = as_source(series, times, inputs, columns)
    work = _as_work(what, quantiles, steps, first)
    plan = _planned(model, source, work, (theta0, bounds))
    return _carry_out(plan, source, as_client(client), (out, resume), progress)


class Plan(NamedTuple):
    """A fleet before it starts.

    Attributes:
        kit: what computes its blocks.
        shape: the sizes of its results.
        template: results of no series, for the kinds of variables.
        extra: coordinates beside those of all fleets.
    """

    kit: Kit | Fitting
    shape: Shape
    template: Rows
    extra: dict[str, list[str]]


def _planned(
    model: AbstractModel | Build,
    source: AbstractSource,
    work: Work,
    start: tuple[Theta | None, Bounds | None],
) -> Plan:
    if work.what == "fit":
        fitting = Fitting.of(model, *start, source, work.first)
        shape = _shape_of(source, len(fitting.names), work, 3)
        return Plan(fitting, shape, fit_rows(0, fitting), {"parameter": list(fitting.names)})
    known = as_model(model)
    shape = _shape_of(source, known.dim, work, 3 + len(work.levels))
    kit = _kit_for(known, source, work, shape.block)
    return Plan(kit, shape, empty_rows(0, shape.longest, shape.dim, work), {})


def _carry_out(
    plan: Plan,
    source: AbstractSource,
    client: "Client | None",
    place: tuple[str | PathLike[str] | None, bool],
    progress: bool | None,
) -> "xarray.Dataset":
    """Run all blocks; the data set of their results."""
    kit, shape, template, extra = plan
    out, resume = place
    digest = fingerprint(VERSION, _identity(kit), shape.work)
    attributes = {"what": shape.work.what, "digest": digest, "tolerance": kit.tol}
    store = None if out is None else Store(str(out), shape)
    if store is not None:
        store.prepare(template, attributes, resume, extra)
    job = Job(kit, shape.work, shape.longest, digest, store)
    memory = Memory(shape, template) if store is None else None
    _run_blocks(job, shape, source, client, memory, progress)
    if store is not None:
        found, data = store.codes(), store.dataset()
    else:
        assert memory is not None
        found, data = memory.rows, memory.dataset(attributes, extra)
    _warn_unresolved(found, kit.tol)
    return data.assign_attrs(summary=summary(found, shape.labels, kit.tol))


def _as_work(what: str, quantiles: Sequence[float], steps: int | None, first: str) -> Work:
    if what not in ("filter", "smooth", "forecast", "fit"):
        raise ValueError(f'what must be "filter", "smooth", "forecast" or "fit", got {what!r}')
    if first not in ("predict", "observe"):
        raise ValueError(f'first must be "predict" or "observe", got {first!r}')
    if (what == "forecast") != (steps is not None):
        raise ValueError(
            f'steps must be given for what="forecast", and for it alone, got {steps!r} for {what!r}'
        )
    levels = tuple(float(q) for q in quantiles)
    check_level(np.asarray(levels))
    return Work(what, levels, 0 if steps is None else as_count("steps", steps), first)


def _kit_for(model: AbstractModel, source: AbstractSource, work: Work, block: int) -> Kit:
    """The models, and few sizes for many lengths."""
    if work.what == "smooth":
        require(model, Ability.SMOOTHER)
    lengths = stack_lengths(source.lengths)
    plan = model.batched()
    own = model
    if plan is not None and len(lengths):
        longest = int(np.argmax(source.lengths))
        raw = source.read(longest, longest + 1)[0]
        sized = _sized_by(plan, raw, work.first)
        own, plan = (sized if plan is model else model), sized
    if plan is None:
        return Kit(own, None, (), ())
    sizes = _fitted(sizes_for(plan, work, lengths.tolist()), source.lengths, block)
    few = lengths[::-1][::_EACH][::-1]
    return Kit(own, plan, sizes, sizes_for(plan, work, few.tolist(), _FINER_WIDTH))


def _sized_by(plan: AbstractModel, raw: Raw, first: str) -> AbstractModel:
    """The longest series has a say in the sizes, if the model leaves them open."""
    try:
        return sized_for(plan, [series_for(plan, raw.ys, first, raw.inputs, raw.times)])
    except (ValueError, TypeError):
        return plan  # a bad series is reported in its turn


def _fitted(sizes: tuple[Size, ...], lengths: np.ndarray, block: int) -> tuple[Size, ...]:
    """Widths that fill the stacks of a block: what is left over is computed in vain."""
    out, shorter = [], 0
    for length, width in sizes:
        share = np.mean((lengths > shorter) & (lengths <= length))
        wanted = max(1.0, share * block)
        calls = int(np.ceil(wanted / width))
        out.append((length, max(1, min(width, int(np.ceil(wanted / calls))))))
        shorter = length
    return tuple(out)


def _shape_of(source: AbstractSource, dim: int, work: Work, variables: int) -> Shape:
    num, longest = len(source), int(np.max(source.lengths, initial=1))
    per_series = 8 * max(work.rows_of(longest), longest) * dim * variables
    block = int(np.clip(_BLOCK_BYTES // per_series, 1, _MOST_BLOCK))
    # Of the data alone, so that another machine resumes with the same blocks.
    block = min(block, max(_LEAST_BLOCK, -(-num // _LEAST_BLOCKS)))
    return Shape(source.labels, max(longest, 1), dim, max(1, min(block, max(num, 1))), work)


def _identity(kit: "Kit | Fitting") -> tuple[object, ...]:
    """What decides the numbers."""
    if isinstance(kit, Fitting):
        return kit.build, kit.theta0, kit.bounds, kit.first
    return kit.model, None if kit.plan is None else kit.plan.report.nodes, kit.sizes


def _block_task(
    job: Job, index: int, start: int, stop: int, held: "AbstractSource | Sequence[Raw]"
) -> Outcome:
    """Read a block, compute it unless it is there, write it."""
    raws = held.read(start, stop) if isinstance(held, AbstractSource) else held
    digest = ""
    if job.store is not None:
        digest = fingerprint(job.digest, [tuple(raw) for raw in raws])
        if job.store.is_done(index, digest):
            return Outcome(index, None)
    if isinstance(job.kit, Fitting):
        rows = fit_block(job.kit, raws)
    else:
        rows = run_block(job.kit, job.work, raws, job.longest)
    if job.store is None:
        return Outcome(index, rows)
    job.store.write(index, rows, digest)
    return Outcome(index, None)


def _run_blocks(
    job: Job,
    shape: Shape,
    source: AbstractSource,
    client: "Client | None",
    memory: Memory | None,
    progress: bool | None,
) -> None:
    def items() -> Iterator[tuple[object, ...]]:
        for index in range(shape.num_blocks):
            start, stop = shape.bounds(index)
            # Series in memory go along with their block; files are read where they are needed.
            held = source if source.is_stored else source.read(start, stop)
            yield index, start, stop, held

    if client is None:
        outcomes = in_threads(_block_task, job, items())
    else:
        outcomes = on_cluster(client, _block_task, job, items())
    with Bar("fleet", progress) as bar:
        for outcome in outcomes:
            if memory is not None:
                assert outcome.rows is not None
                memory.write(outcome.block, outcome.rows)
            bar.advance(1 / shape.num_blocks)


def _warn_unresolved(found: Rows, tol: float) -> None:
    bad = np.flatnonzero(found["code"] == _results.UNRESOLVED)
    if bad.size:
        worst = float(np.max(found["error_estimate"][bad]))
        warnings.warn(
            f"{bad.size} of {len(found['code'])} series miss tol = {tol:g}, by up to {worst:.1e}: "
            "see code, error_estimate and message of the result",
            ResolutionWarning,
            stacklevel=4,
        )


def summary(found: Rows, labels: np.ndarray, tol: float) -> str:
    """How many series came out how, and the first ones that did not."""
    codes, methods = found["code"], found["method"]
    fine = codes == _results.OK
    errors = found["error_estimate"][fine]
    ways = ", ".join(
        f"{int(np.sum(methods == way))} {way}" for way in np.unique(methods) if str(way)
    )
    lines = [
        f"{len(codes)} series, {int(found['length'].sum())} rows: {ways or 'none'}",
        f"{int(fine.sum())} fine, largest error estimate {np.max(errors, initial=0.0):.1e} "
        f"(tol {tol:g})",
    ]
    for code in np.unique(codes[~fine]):
        which = np.flatnonzero(codes == code)
        shown = ", ".join(str(labels[i]) for i in which[:5]) + (" ..." if which.size > 5 else "")
        lines.append(f"code {code}, {which.size} series ({shown}): {found['message'][which[0]]}")
    return "\n".join(lines)
