"""Columns of inputs beside those of observations."""

from dataclasses import replace

import numpy as np

from .._frames.errors import DataError
from .._frames.table import Table
from ._request import Request

NO_FUTURE = (
    "a forecast needs inputs of the future; add rows at the end of the data that have inputs and "
    "no observations, and filter them: what the filter says of those rows is the forecast"
)


def split(request: Request, table: Table) -> tuple[Table, np.ndarray | None]:
    """Observations, and inputs (T, m) if there are any: the last columns of the table."""
    num, names = request.num_inputs, table.labels.columns
    if not num:
        return table, None
    assert names is not None
    inputs = table.values[:, -num:]
    if np.any(missing := np.isnan(inputs)):
        row, place = (int(i) for i in np.argwhere(missing)[0])
        raise DataError(
            request.data,
            f"row {row + 1} has no number in the column of inputs {names[-num + place]!r}: "
            "observations may be missing, inputs may not",
        )
    labels = replace(table.labels, columns=names[:-num])
    return Table(table.values[:, :-num], labels), inputs
