"""Columns of inputs beside those of observations."""

from dataclasses import replace

import numpy as np

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
        assert table.refused is not None
        message = "no number: observations may be missing, inputs may not"
        raise table.refused(row, names[-num + place], message)
    labels = replace(table.labels, columns=names[:-num])
    return replace(table, values=table.values[:, :-num], labels=labels), inputs


def require_steps(table: Table) -> None:
    """Refuse times that a model with a step cannot count, by their place in the file."""
    found = table.labels.irregularity()
    if found is None or table.refused is None:
        return
    row, message = found
    assert table.labels.name is not None
    raise table.refused(
        row,
        table.labels.name,
        f"{message}; mend the times, leave out --time to take the rows as consecutive, or write "
        "the transition with the keyword dt",
    )
