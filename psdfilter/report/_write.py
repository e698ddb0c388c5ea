"""Reports on disk."""

import os
from pathlib import Path
from uuid import uuid4

from .._inference.posterior import Forecast, Posterior, Smoothed
from .._parameters.fit import Fit
from ._page import render


def write(
    path: str | os.PathLike[str],
    post: Posterior,
    *,
    smooth: Smoothed | None = None,
    ahead: Forecast | None = None,
    fit: Fit | None = None,
    certificate: bool = False,
    title: str = "A filter",
    names: list[str] | None = None,
    source: str | None = None,
) -> Path:
    """Write a report: one HTML file, which needs nothing else and no network.

    It shows densities over time with a slider, states, observations on their predictive bands,
    checks of the model, likelihoods, errors and what is known of the model. The file appears whole
    or not at all.

    Args:
        path: of the file.
        post: from `run_filter`.
        smooth: from `run_smoother`, of the same series.
        ahead: from `forecast`.
        fit: from `fit`, for a table of parameters.
        certificate: whether to compute `post.certificate`, which can take a while.
        title: on top of the page.
        names: of the coordinates of the state.
        source: of the model, to be printed.

    Returns:
        The path.
    """
    page = render(
        post,
        smooth=smooth,
        ahead=ahead,
        fit=fit,
        certificate=certificate,
        title=title,
        names=names,
        source=source,
    )
    target = Path(path)
    partial = target.with_name(f".{target.name}.{uuid4().hex}.tmp")
    try:
        _ = partial.write_text(page, "utf-8")
        os.replace(partial, target)
    finally:
        partial.unlink(missing_ok=True)
    return target
