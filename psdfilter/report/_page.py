"""The page: text, tables and figures, in one file that fetches nothing.

All that comes from users goes through `html.escape`, or through JSON whose angle brackets are
written as escapes. Beyond that the page has a content security policy: no script runs but the two
whose hashes it names.
"""

import base64
import hashlib
import json
from html import escape
from importlib import import_module, resources
from string import Template

import numpy as np

from .._frames.errors import printable
from .._inference.posterior import Forecast, Posterior, Smoothed
from .._parameters.fit import Fit
from ._content import Content, collect
from ._figures import figures
from ._sections import OBSERVED, Words, contents_of, sections


def render(
    post: Posterior,
    *,
    smooth: Smoothed | None = None,
    ahead: Forecast | None = None,
    fit: Fit | None = None,
    certificate: bool = False,
    title: str = "A filter",
    names: list[str] | None = None,
    source: str | None = None,
) -> str:
    """The report as HTML; arguments as for `write`."""
    if not isinstance(post, Posterior):
        raise ValueError(f"post must come from run_filter, got {type(post).__name__}")
    content = collect(post, smooth, ahead, names)
    words = Words(title, source, post, fit, certificate)
    made = figures(content)
    data = {
        "figures": made,
        "observed": sorted(OBSERVED & set(made)),
        "times": [content.times[k] for k in content.columns],
        "timeName": content.time_name,
        "moments": [_moments(content, i) for i in range(len(content.names))],
    }
    if content.joint is not None:
        shown = np.sqrt(content.joint[1].transpose(0, 2, 1))
        data["joint"] = [[_short(row, 4) for row in each] for each in shown]
    parts = sections(content, words, set(made))
    library = import_module("plotly.offline").get_plotlyjs()
    program = _resource("page.js")
    version = import_module("psdfilter").__version__
    return Template(_resource("page.html")).substitute(
        title=escape(printable(title)),
        subtitle=escape(_subtitle(content)),
        version=escape(version),
        style=_resource("page.css"),
        hashes=" ".join(f"'{_hash(script)}'" for script in (library, program)),
        contents=contents_of(parts),
        body="\n".join(part.html for part in parts),
        data=safe_json(data),
        library=library,
        program=program,
    )


def safe_json(tree: object) -> str:
    """JSON that no HTML parser takes for the end of a script, or for a tag."""
    text = json.dumps(tree, allow_nan=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _moments(content: Content, i: int) -> dict[str, object]:
    """What the slider shows of one coordinate."""
    laws, at = content.filtered, content.columns
    each = [x for x in (content.filtered, content.smoothed) if x is not None]
    return {
        "mean": _short(laws.mean[at, i]),
        "sd": _short(laws.sd[at, i]),
        "lower": _short(laws.level(0.05, i)[at]),
        "upper": _short(laws.level(0.95, i)[at]),
        "regions": _regions(content, i),
        "densities": [
            [_short(row[i]) for row in x.densities] for x in each if x.densities is not None
        ],
    }


def _regions(content: Content, i: int) -> list[str] | None:
    """In words, for a coordinate whose modes are apart."""
    if not content.filtered.is_split(i):
        return None
    return [
        " and ".join(f"{low:.3g} to {high:.3g}" for low, high in each)
        for each in content.filtered.regions(0.9, i)
    ]


def _short(values: np.ndarray, digits: int = 7) -> list[float | None]:
    """Seven digits are plenty for the eye."""
    return [float(f"{value:.{digits}g}") if np.isfinite(value) else None for value in values]


def _subtitle(content: Content) -> str:
    first, last = content.times[0], content.times[-1]
    shown = "" if len(content.times) == content.num else f", {len(content.times)} of them shown"
    columns = ", ".join(content.observed_names[:6])
    return f"{columns}: {content.num} rows, {content.time_name} {first} to {last}{shown}"


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _resource(name: str) -> str:
    return resources.files("psdfilter.report").joinpath(name).read_text("utf-8")
