"""The sections of a report as HTML; every piece of text that is not ours is escaped here."""

import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from .. import _results
from .._frames.errors import printable
from .._inference.posterior import Posterior
from .._parameters.fit import Fit
from ._content import Content, attempt

# Figures that belong to a column of y rather than to a coordinate of the state.
OBSERVED = {"observations", "pit", "residuals", "normal"}
_LAST_ROWS = 12
_PACKAGES = ("psdfilter", "jax", "jaxlib", "equinox", "numpy", "scipy", "plotly")


@dataclass(frozen=True)
class Words:
    """What a report says beside its numbers."""

    title: str
    source: str | None
    post: Posterior
    fit: Fit | None
    certificate: bool


@dataclass(frozen=True)
class Part:
    """A section."""

    anchor: str
    title: str
    html: str


def sections(content: Content, words: Words, made: set[str]) -> list[Part]:
    """All sections that have something to show."""
    parts = [
        ("summary", "Summary", _summary(content, words)),
        ("density", "Density over time", _density(content, made)),
        ("states", "States", _states(content)),
        ("observations", "Observations", _observations(content)),
        ("checks", "Model checks", _checks(content, made)),
        ("likelihood", "Likelihood", _figure("likelihoods", _LIKELIHOOD)),
        ("errors", "Errors", _errors(content, words, made)),
        ("parameters", "Parameters", "" if words.fit is None else _parameters(words.fit)),
        ("model", "Model", _model(words)),
        ("versions", "Versions", _versions()),
    ]
    return [
        Part(anchor, title, _section(anchor, title, body)) for anchor, title, body in parts if body
    ]


def contents_of(parts: Iterable[Part]) -> str:
    """Links to all sections."""
    links = "".join(f'<li><a href="#{p.anchor}">{escape(p.title)}</a></li>' for p in parts)
    return f"<ul>{links}</ul>"


_LIKELIHOOD = (
    "Contribution of each observation to the log-likelihood; missing ones contribute nothing."
)


def _section(anchor: str, title: str, body: str) -> str:
    heading = f'<h2 id="{anchor}-title">{escape(title)}</h2>'
    return f'<section id="{anchor}" aria-labelledby="{anchor}-title">{heading}{body}</section>'


def _figure(name: str, caption: str) -> str:
    """A place for a figure, with words for those who do not see it."""
    return (
        f'<figure><div class="plot" id="plot-{name}" role="img" '
        f'aria-label="{escape(caption, quote=True)}"></div>'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )


def _choice(name: str, label: str, options: Sequence[str]) -> str:
    if len(options) < 2:
        return ""
    items = "".join(f"<option>{escape(option)}</option>" for option in options)
    return f'<label for="{name}">{label}</label> <select id="{name}">{items}</select>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], caption: str) -> str:
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    name = escape(caption, quote=True)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}">'
        f"<table><caption>{escape(caption)}</caption><thead><tr>{top}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _summary(content: Content, words: Words) -> str:
    post = words.post
    facts = {
        "log-likelihood": f"{float(post.log_likelihood):.6g}",
        "rows": f"{content.num}",
        "observations not used": f"{int(np.sum(~np.asarray(post.seen)))}",
        "engine": post.model.engine,
        "tolerance": f"{content.tol:.1g}",
    }
    if content.errors is not None:
        largest = float(np.max(content.errors))
        facts["largest error estimate"] = f"{largest:.1e}" if largest else "exact"
    cards = "".join(
        f"<div><dt>{escape(k)}</dt><dd>{escape(v)}</dd></div>" for k, v in facts.items()
    )
    return f'{_warnings(content, words)}<dl class="facts">{cards}</dl>'


def _warnings(content: Content, words: Words) -> str:
    """What is not as it should be, first of all."""
    codes = np.asarray(words.post.codes)
    notes = [
        f"{int(np.sum(codes == code))} of {len(codes)} steps, first row "
        f"{int(np.flatnonzero(codes == code)[0]) + 1}: {_results.MESSAGES[int(code)]}."
        for code in np.unique(codes[codes != 0])
    ]
    if content.errors is not None and np.max(content.errors) > content.tol:
        notes.append(
            f"The largest error estimate, {np.max(content.errors):.1e}, is above the tolerance."
        )
    if words.fit is not None and not words.fit.converged:
        notes.append("The parameter search has not converged.")
    if not notes:
        return ""
    items = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return (
        f'<div class="warn" role="note"><strong>Look at this first</strong><ul>{items}</ul></div>'
    )


def _density(content: Content, made: set[str]) -> str:
    last = len(content.columns) - 1
    thinned = ""
    if len(content.columns) < content.num:
        thinned = f" Densities are drawn at {last + 1} of {content.num} rows."
    controls = (
        '<div class="controls">'
        + _choice("state", "Coordinate", content.names)
        + '<div class="grow"><label for="slider">Time</label>'
        f'<input id="slider" type="range" min="0" max="{last}" value="0" step="1" '
        'aria-describedby="said"></div></div><output id="said" for="slider" aria-live="polite">'
        "</output>"
    )
    left = "Filtered density over time; darker is more probable (in dark mode, brighter)." + thinned
    right = "Density at the selected time."
    text = f'{controls}<div class="pair">{_figure("density", left)}{_figure("moment", right)}</div>'
    if "joint" in made:
        text += _figure("joint", "Joint filtered density at the selected time.")
    return text + _lost(content, "joint densities")


def _states(content: Content) -> str:
    parts = ["filter"]
    parts += [] if content.smoothed is None else ["smoother"]
    parts += [] if content.ahead is None else [f"forecast of {len(content.ahead_times)} steps"]
    shown = "Medians and 90% intervals of the state"
    if any(content.is_split(i) for i in range(len(content.names))):
        shown = (
            "Medians and 90% intervals of the state, or modes and 90% regions of highest density "
            "where it is multimodal"
        )
    return _figure("states", f"{shown}: {', '.join(parts)}.") + _last_values(content)


def _last_values(content: Content) -> str:
    laws, name = content.filtered, content.time_name
    rows = []
    for k in range(max(0, len(content.times) - _LAST_ROWS), len(content.times)):
        cells = [str(content.times[k])]
        for i in range(len(content.names)):
            cells += [f"{laws.mean[k, i]:.5g}", f"{laws.sd[k, i]:.3g}"]
            cells += [f"{laws.level(0.05, i)[k]:.5g}", f"{laws.level(0.95, i)[k]:.5g}"]
        rows.append(cells)
    head = [name]
    for state in content.names:
        head += [f"{state} mean", "sd", "5%", "95%"]
    return _table(head, rows, "Filtered states at the last rows")


def _observations(content: Content) -> str:
    if content.seen.predicted is None:
        caption = "Observations."
    else:
        caption = (
            "Observations and the 90% interval predicted from the rows before. About one in ten "
            "should lie outside."
        )
    choice = _choice("column", "Column", content.observed_names)
    controls = f'<div class="controls">{choice}</div>' if choice else ""
    return controls + _figure("observations", caption) + _lost(content, "predictive bands")


def _checks(content: Content, made: set[str]) -> str:
    if "pit" not in made:
        return _lost(content, "PIT and residuals")
    return (
        '<div class="trio">'
        + _figure("pit", "Probability integral transform (PIT): uniform if the model is right.")
        + _figure("residuals", "Residuals: standard normal if the model is right.")
        + _figure(
            "normal", "Residuals against normal quantiles: on the line if the model is right."
        )
        + "</div>"
    )


def _lost(content: Content, what: str) -> str:
    if what not in content.lost:
        return ""
    return f'<p class="note">No {escape(what)}: {escape(content.lost[what])}.</p>'


def _errors(content: Content, words: Words, made: set[str]) -> str:
    text = _lost(content, "error estimates")
    if content.errors is not None:
        text = "<p>This engine is exact up to rounding.</p>"
    if "errors" in made:
        text = _figure(
            "errors",
            "Estimated total variation distance to the exact filter; the tolerance is dotted.",
        )
    if words.certificate:
        lost: dict[str, str] = {}
        found = attempt("certificate", lost, lambda: str(words.post.certificate))
        shown = found if found is not None else lost["certificate"]
        text += f"<h3>Certificate</h3><pre>{escape(shown)}</pre>"
    return text


def _parameters(fit: Fit) -> str:
    estimates, errors = np.asarray(fit.estimates), np.asarray(fit.standard_errors)
    lower, upper = (np.asarray(end) for end in fit.interval())
    rows = [
        [name, *(f"{value:.5g}" for value in values)]
        for name, *values in zip(fit.names, estimates, errors, lower, upper, strict=True)
    ]
    head = ["parameter", "estimate", "standard error", "2.5%", "97.5%"]
    ended = "converged" if fit.converged else "not converged"
    search = (
        f"log-likelihood {float(fit.log_likelihood):.6g}, AIC {fit.aic:.6g}, BIC {fit.bic:.6g}; "
        f"{ended} after {fit.num_steps} steps, {fit.seconds:.1f} s"
    )
    return _table(head, rows, "Estimates") + f'<p class="note">{escape(search)}</p>'


def _model(words: Words) -> str:
    text = f"<h3>What was learned</h3><pre>{escape(str(words.post.model.report))}</pre>"
    if words.source:
        lines = words.source.expandtabs().split("\n")
        source = escape("\n".join(printable(line) for line in lines))
        text += f'<h3>Source</h3><pre tabindex="0" aria-label="Model source">{source}</pre>'
    return text


def _versions() -> str:
    found = {"python": platform.python_version(), "system": platform.platform(terse=True)}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return _table(["package", "version"], [[k, v] for k, v in found.items()], "Versions")
