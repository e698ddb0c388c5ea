"""Data that a likelihood cannot take as they are, or only in doubt."""

from collections.abc import Sequence

import numpy as np

from .._checks import is_concrete
from .._statespace.doubtful import as_if_degrees, first_impossible
from .._statespace.model import StateSpaceModel
from .settings import Settings


def doubt(ssm: StateSpaceModel, settings: Settings) -> str | None:
    """What to ask about the data, if anything; rows that no theta explains are an error."""
    question = None
    for i, part in enumerate(settings.parts(ssm.num_observed)):
        if not is_concrete(part.ys):
            continue
        if (found := first_impossible(ssm, part.ys)) is not None:
            name = f"ys[{i}][{found[0]}]" if settings.several else f"ys[{found[0]}]"
            raise ValueError(f"{name} has no likelihood: {found[1]}")
        question = question or as_if_degrees(ssm, part.ys)
    return question


def outliers(errors: np.ndarray, rows: Sequence[Sequence[int]], tol: float) -> str | None:
    """The observations that a plan does not resolve where it was made, named."""
    places = [
        (f"ys[{i}]" if len(rows) == 1 else f"ys[{series}][{i}]", row[place])
        for series, row in enumerate(errors)
        for i, place in enumerate(rows[series])
        if row[place] > 10 * tol
    ]
    if not places:
        return None
    places.sort(key=lambda pair: -pair[1])
    shown = ", ".join(f"{name} ({error:.1e})" for name, error in places[:5])
    return (
        f"{len(places)} observations are so far from what the model expects that their "
        f"likelihoods are not resolved to tol = {tol:g}: {shown}{' ...' * (len(places) > 5)}. "
        "Check them, or use a smaller tol"
    )
