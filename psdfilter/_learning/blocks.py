"""Training data read in blocks, from memory, from disk or from a function that yields them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from jaxtyping import ArrayLike

Block = tuple[np.ndarray, np.ndarray]
# Arrays, or a function that yields pairs of arrays.
Points = ArrayLike | Callable[[], Iterable[object]]


@dataclass(frozen=True)
class BlockSource:
    """`count` pairs (x_i, y_i), handed out in blocks; `read(rows)` starts a new pass.

    Arrays and memory maps are sliced, never copied whole. A function is called anew on every pass
    and what it yields is gathered into blocks of one size.
    """

    count: int
    dim: int
    _open: Callable[[int], Iterator[Block]]

    def read(self, rows: int) -> Iterator[Block]:
        """Blocks of `rows` pairs, the last one shorter; the same pairs in the same order."""
        seen = 0
        for x, y in self._open(rows):
            seen += len(y)
            yield x, y
        if seen != self.count:
            raise ValueError(
                f"points must yield the same pairs on every pass, got {self.count} pairs on the "
                f"first and {seen} on a later one"
            )

    def take(self, index: np.ndarray, rows: int) -> Block:
        """The pairs with these sorted numbers."""
        xs, ys, start = [], [], 0
        for x, y in self.read(rows):
            low, high = np.searchsorted(index, [start, start + len(y)])
            local = index[low:high] - start
            xs.append(x[local])
            ys.append(y[local])
            start += len(y)
        return np.concatenate(xs), np.concatenate(ys)


def as_block_source(points: Points, targets: ArrayLike | None, dim: int, rows: int) -> BlockSource:
    """Checked source of pairs: two arrays, or a function yielding pairs of arrays."""
    if callable(points):
        if targets is not None:
            raise ValueError("targets must be None when points is a function: it yields both")
        opened = _yielding(points, dim)
    elif hasattr(points, "__next__"):
        raise ValueError(
            "points must be readable more than once, got a generator that one pass uses up; "
            "pass the function that makes it"
        )
    else:
        opened = _slicing(points, targets, dim)
    count = 0
    for x, y in opened(rows):
        _check_finite(x, y, count)
        count += len(y)
    if count == 0:
        raise ValueError("points must hold at least one point, got none")
    return BlockSource(count, dim, opened)


def _slicing(
    points: ArrayLike, targets: ArrayLike | None, dim: int
) -> Callable[[int], Iterator[Block]]:
    # A memmap stays one under asanyarray, so that only slices of it ever reach memory.
    x, y = np.asanyarray(points), np.asanyarray(targets)
    if x.ndim != 2 or x.shape[1] != dim:
        raise ValueError(
            f"points must have shape (n, {dim}), as the anchors do, or be a function that yields "
            f"(points, targets), got {x.shape}"
        )
    if y.shape != x.shape[:1]:
        raise ValueError(f"targets must have shape ({len(x)},), one for each point, got {y.shape}")

    def opened(rows: int) -> Iterator[Block]:
        for start in range(0, len(x), rows):
            piece = slice(start, start + rows)
            yield np.asarray(x[piece], dtype=float), np.asarray(y[piece], dtype=float)

    return opened


def _yielding(make: Callable[[], Iterable[object]], dim: int) -> Callable[[int], Iterator[Block]]:
    def checked() -> Iterator[Block]:
        for number, pair in enumerate(make()):
            if not (isinstance(pair, tuple | list) and len(pair) == 2):
                raise ValueError(
                    f"points() must yield pairs (points, targets), got {type(pair).__name__} "
                    f"as block {number}"
                )
            x, y = (np.asarray(part, dtype=float) for part in pair)
            if x.ndim != 2 or x.shape[1] != dim or y.shape != x.shape[:1]:
                raise ValueError(
                    f"points() must yield shapes (n, {dim}) and (n,), got {x.shape} and {y.shape} "
                    f"as block {number}"
                )
            yield x, y

    def opened(rows: int) -> Iterator[Block]:
        xs: list[np.ndarray] = []
        ys: list[np.ndarray] = []
        held = 0
        for x, y in checked():
            while held + len(y) >= rows:
                cut = rows - held
                yield np.concatenate([*xs, x[:cut]]), np.concatenate([*ys, y[:cut]])
                x, y, xs, ys, held = x[cut:], y[cut:], [], [], 0
            xs.append(x)
            ys.append(y)
            held += len(y)
        if held:
            yield np.concatenate(xs), np.concatenate(ys)

    return opened


def _check_finite(x: np.ndarray, y: np.ndarray, start: int) -> None:
    bad_x, bad_y = ~np.isfinite(x).all(axis=1), ~np.isfinite(y)
    if bad_x.any():
        i = int(np.argmax(bad_x))
        raise ValueError(f"points must be finite, got {x[i]} at row {start + i}")
    if bad_y.any():
        i = int(np.argmax(bad_y))
        raise ValueError(f"targets must be finite, got {y[i]} at row {start + i} (point {x[i]})")
