"""Who runs the blocks: threads of this process, or the workers of a Dask cluster."""

import os
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

# Blocks that wait beside those that run, for each worker: it never idles, and memory is bounded.
_AHEAD = 1


class Bundle(NamedTuple):
    """Anything as bytes: arrays in float64 survive only where JAX is told so before they appear."""

    payload: bytes
    digest: str

    @staticmethod
    def of(value: Any) -> "Bundle":
        """Packed; functions of a user's script go by value."""
        import cloudpickle

        payload = cloudpickle.dumps(value)
        return Bundle(payload, sha256(payload).hexdigest())


_OPENED: dict[str, Any] = {}


def opened(bundle: Bundle) -> Any:
    """Unpacked, once for each process: compiled programs hang on the objects."""
    import jax

    # A worker is a process of our own making, whose mode nobody else has set.
    jax.config.update("jax_enable_x64", True)
    if bundle.digest not in _OPENED:
        _OPENED.clear()
        _OPENED[bundle.digest] = pickle.loads(bundle.payload)
    return _OPENED[bundle.digest]


def num_cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def in_threads(
    task: Callable[..., T], shared: Any, items: Iterator[tuple[Any, ...]]
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


def on_worker(task: Callable[..., T], bundle: Bundle, *item: Any) -> T:
    """The same on a worker."""
    return task(opened(bundle), *item)


def on_cluster(
    client: Any, task: Callable[..., T], shared: Any, items: Iterator[tuple[Any, ...]]
) -> Iterator[T]:
    """The same by a `dask.distributed.Client`; what is shared goes to every worker once."""
    from distributed import as_completed

    bundle = client.scatter(Bundle.of(shared), broadcast=True, hash=False)
    most = 2 * max(1, sum(client.nthreads().values()))
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


def as_client(client: Any) -> Any:
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
    return client
