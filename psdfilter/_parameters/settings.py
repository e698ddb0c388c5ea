"""What a likelihood was made from."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from .._checks import Numbers
from .._frames.table import Frame, Times, as_tables
from .._inference.series import Asked, Series, are_several, as_series, each_of
from .._statespace.functions import Inputs


class Settings:
    """What a likelihood was made from, so that it can be made again; compared by identity."""

    def __init__(self, ys: Frame, keywords: dict[str, Any], asked: Asked):
        """Keep the arguments of `likelihood`, and what the functions of the model ask for."""
        self.ys, self.keywords, self.asked = as_tables("ys", ys), keywords, asked
        self.several = are_several(self.ys)

    def each(self) -> list[tuple[Frame, Inputs, Times]]:
        """ys, inputs and times of every series."""
        inputs, times = self.keywords["inputs"], self.keywords["times"]
        if not self.several:
            return [(self.ys, inputs, times)]
        return each_of(self.ys, inputs, times)

    def parts(self, num_observed: int | None) -> list[Series]:
        """Every series, checked and shaped."""
        first = self.keywords["first"]
        return [
            as_series(y, num_observed, first=first, inputs=rows, times=at, asked=self.asked)
            for y, rows, at in self.each()
        ]

    @property
    def num_observed(self) -> int:
        """Number of rows of all series that are not wholly missing."""
        return sum(int(np.sum(~np.isnan(_two_axes(y)).all(axis=1))) for y, _, _ in self.each())


def as_list(ys: Frame) -> Frame:
    """The series of a mapping, whose labels a likelihood has no use for."""
    return list(ys.values()) if isinstance(ys, Mapping) else ys


def _two_axes(y: Numbers) -> np.ndarray:
    array = np.asarray(y, dtype=float)
    return array[:, None] if array.ndim == 1 else array
