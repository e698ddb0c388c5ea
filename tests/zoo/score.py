"""Is a filter right, loud, refused or silent on a case?

Slack: a step is right if its total variation and its log Z are within 3 tol of the reference: the
tolerance is a promise about an estimate, not a proof. A case that is wrong somewhere is
- "loud" if a warning was issued, or every wrong step has a code or an estimate that exceeds tol;
- "refused" if an error was raised that is meant for users (ValueError, or a step that failed);
- "crash" for any other error, which nobody should meet;
- "silent" otherwise.
"""

import time
import warnings
from dataclasses import asdict, dataclass, field

import numpy as np

import psdfilter as psd

from .reference import reference

SLACK = 3.0
MOST_STEPS = 25
MOST_POINTS = 40_000  # per step; beyond it a sample of them, weighted
SHARES = ("right", "loud", "refused", "silent", "crash")


@dataclass
class Outcome:
    """What came of one case at one tolerance; lists hold one number per scored step."""

    name: str
    dim: int
    tol: float
    verdict: str
    seconds: float
    reason: str = ""
    steps: list = field(default_factory=list)
    errors: list = field(default_factory=list)
    log_gaps: list = field(default_factory=list)
    estimates: list = field(default_factory=list)
    codes: list = field(default_factory=list)

    @property
    def worst(self):
        return max(self.errors, default=np.nan)

    @property
    def worst_log(self):
        return max((g for g in self.log_gaps if g is not None), default=np.nan)

    def to_dict(self):
        return asdict(self)


def score(case, tol, exact=None):
    """Learn, filter, and compare with the reference."""
    exact = reference(case) if exact is None else exact
    if not exact.trusted:
        raise ValueError(f"the reference of {case.name} is not to be trusted: {exact.gaps.max()}")
    start, said, post = time.perf_counter(), [], None
    verdict = reason = ""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            post = psd.run_filter(psd.learn(case.build(), tol), **case.data())
        except Exception as error:  # all kinds are told apart below
            verdict = "refused" if _is_meant(error) else "crash"
            reason = f"{type(error).__name__}: {str(error)[:300]}"
        said = [str(w.message) for w in caught if issubclass(w.category, UserWarning)]
    seconds = time.perf_counter() - start
    if post is None:
        return Outcome(case.name, case.dim, tol, verdict, seconds, reason)
    out = Outcome(case.name, case.dim, tol, "", seconds, said[0][:300] if said else "")
    _compare(out, post, exact)
    out.verdict = _verdict(out, bool(said))
    return out


def _is_meant(error):
    """Whether an error speaks to users: not one of XLA's, nor a slip of ours."""
    ours = not type(error).__module__.startswith("jax")
    return isinstance(error, ValueError) or (isinstance(error, RuntimeError) and ours)


def _compare(out, post, exact):
    count = len(exact.steps)
    chosen = np.unique(np.linspace(0, count - 1, min(count, MOST_STEPS)).round().astype(int))
    increments = np.asarray(post.log_likelihoods)
    estimates = _estimates(post, count)
    codes = np.asarray(post.codes)
    for t in chosen:
        step = exact.steps[t]
        out.steps.append(int(t))
        out.errors.append(_distance(post.density(int(t)), step))
        gap = None if step.missing else abs(float(increments[t]) - step.log_z)
        out.log_gaps.append(np.inf if gap is not None and np.isnan(gap) else gap)
        out.estimates.append(float(estimates[t]))
        out.codes.append(int(codes[t]))


def _estimates(post, count):
    """`post.error_estimates`, NaN where an engine has none."""
    try:
        values = np.asarray(post.error_estimates, dtype=float)
    except (AttributeError, ValueError):
        return np.full(count, np.nan)
    return values if values.shape == (count,) else np.full(count, np.nan)


def _distance(density, step):
    """int |p - q|: on the reference's nodes, plus the mass that q has elsewhere."""
    x, p, w = step.points, step.density, step.weights
    if len(w) > MOST_POINTS:
        # half of the points where p is, half where area is; each with one over its probability
        rng = np.random.default_rng(0)
        chance = 0.5 * p * w / np.sum(p * w) + 0.5 * w / np.sum(w)
        index = rng.choice(len(w), MOST_POINTS, p=chance)
        x, p, w = x[index], p[index], w[index] / (chance[index] * MOST_POINTS)
    q = np.concatenate([np.asarray(density(x[i : i + 5000])) for i in range(0, len(x), 5000)])
    if not np.isfinite(q).all():
        return np.inf
    elsewhere = max(0.0, 1 - float(np.sum(w * q)))
    if len(step.weights) > MOST_POINTS and elsewhere < 0.05:
        elsewhere = 0.0  # a sample knows the mass of q to some 1e-2 only
    return float(np.sum(w * np.abs(p - q))) + elsewhere


def _wrong(out):
    """Scored steps beyond the slack."""
    return [
        i
        for i, (e, g) in enumerate(zip(out.errors, out.log_gaps, strict=True))
        if not (e <= SLACK * out.tol and (g is None or g <= SLACK * out.tol))
    ]


def _verdict(out, warned):
    wrong = _wrong(out)
    if not wrong:
        return "right"
    known = all(out.codes[i] != 0 or out.estimates[i] > out.tol for i in wrong)
    return "loud" if warned or known else "silent"


def only_if_asked(out):
    """Loud by its estimates alone: neither a warning, nor codes at all wrong steps."""
    wrong = _wrong(out)
    return out.verdict == "loud" and not out.reason and any(out.codes[i] == 0 for i in wrong)


def shares(outcomes):
    """{(dim, tol): {verdict: share, "cases": number}}."""
    table = {}
    for key in sorted({(o.dim, o.tol) for o in outcomes}):
        rows = [o for o in outcomes if (o.dim, o.tol) == key]
        table[key] = {v: sum(o.verdict == v for o in rows) / len(rows) for v in SHARES}
        table[key]["cases"] = len(rows)
    return table


def honesty(outcomes):
    """Share of steps whose estimate is within a factor of 10 of the truth, and the worst estimate
    over truth where the truth exceeds tol. Both are floored at tol / 100: below it nobody cares."""
    within, worst = [], np.inf
    for o in outcomes:
        for truth, guess in zip(o.errors, o.estimates, strict=True):
            if not np.isfinite(guess):
                continue
            low = max(truth, o.tol / 100)
            ratio = max(guess, o.tol / 100) / low
            within.append(0.1 <= ratio <= 10)
            if truth > o.tol:
                worst = min(worst, guess / truth)
    return (float(np.mean(within)) if within else np.nan), worst, len(within)


def table(outcomes):
    """The printed report."""
    head = f"{'case':28s}{'tol':>8s} {'verdict':9s}{'max TV':>9s}{'max dlogZ':>10s}{'estimate':>9s}"
    lines = [head + f"{'s':>7s}  said"]
    for o in outcomes:
        guess = max(o.estimates, default=np.nan)
        lines.append(
            f"{o.name:28s}{o.tol:8.0e} {o.verdict:9s}{o.worst:9.1e}{o.worst_log:10.1e}{guess:9.1e}"
            f"{o.seconds:7.1f}  {o.reason[:70]}"
        )
    lines.append("")
    for (dim, tol), row in shares(outcomes).items():
        parts = "  ".join(f"{v} {row[v]:.0%}" for v in SHARES)
        lines.append(f"{dim}-d  tol {tol:.0e}  {row['cases']:3d} cases  {parts}")
    quiet = [o.name for o in outcomes if only_if_asked(o)]
    lines.append(f"loud by the estimates only, without warning or code: {len(quiet)}")
    within, worst, count = honesty(outcomes)
    lines.append(
        f"estimates: {within:.0%} of {count} steps within a factor of 10, worst estimate / truth "
        f"where truth > tol: {worst:.1e}"
    )
    return "\n".join(lines)
