"""Who runs the blocks: threads of this process, or the workers of a Dask cluster."""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, TypeVar, cast

from .._parameters.workers import Bundle, hold, opened

if TYPE_CHECKING:
    from distributed import Client

T = TypeVar("T")

# Blocks that wait beside those that run, for each worker: it never idles, and memory is bounded.
_AHEAD = 1


def num_cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def in_threads(
    task: Callable[..., T], shared: object, items: Iterator[tuple[object, ...]]
) -> Iterator[T]:
    """task(shared, *item) of all items on all cores; compiled programs leave Python alone."""
    cores = num_cores()
    with ThreadPoolExecutor(cores, "psdfilter-fleet") as pool:
        running: set[Future[T]] = set()
        try:
            for item in items:
                running.add(pool.submit(task, shared, *item))
                if len(running) >= cores + _AHEAD:
                    done, running = wait(running, return_when=FIRST_COMPLETED)
                    yield from (future.result() for future in done)
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                yield from (future.result() for future in done)
        finally:
            for future in running:
                _ = future.cancel()


def on_worker(task: Callable[..., T], bundle: Bundle, *item: object) -> T:
    """The same on a worker."""
    return task(opened(bundle), *item)


def on_cluster(
    client: "Client", task: Callable[..., T], shared: object, items: Iterator[tuple[object, ...]]
) -> Iterator[T]:
    """The same by a `dask.distributed.Client`; what is shared goes to every worker once."""
    from distributed import as_completed

    bundle = hold(client, Bundle.of(shared))
    most = 2 * max(1, sum(cast(dict[str, int], client.nthreads()).values()))
    running = as_completed()
    num = 0
    try:
        for item in items:
            running.add(client.submit(on_worker, task, bundle, *item, pure=False, retries=3))
            num += 1
            if num >= most:
                future = next(running)
                num -= 1
                yield future.result()
                future.release()
        for future in running:
            yield future.result()
            future.release()
    finally:
        for future in list(running.futures):
            _ = future.cancel()
        bundle.release()


def as_client(client: object) -> "Client | None":
    """None, a `dask.distributed.Client`, or the address of a scheduler."""
    if client is None:
        return None
    if isinstance(client, str):
        from distributed import Client

        return Client(client)
    if not (hasattr(client, "submit") and hasattr(client, "scatter")):
        raise ValueError(
            "client must be None, a dask.distributed.Client or the address of a scheduler, got "
            f"{type(client).__name__}"
        )
    return cast("Client", client)
