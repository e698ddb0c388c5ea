"""What files hold: for each kind of object a version and the names of its parts.

The names on the left are those in files and stay what they are; those on the right are attributes
of classes and may change with them. A kind whose parts change gets a new version, and an entry in
`UPGRADES` that makes today's parts of the old ones. Anything that has no schema is refused, on
writing and on reading.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

# Of an object, by their names in files.
Parts = dict[str, Any]


@dataclass(frozen=True)
class Schema:
    """One kind of object.

    Attributes:
        kind: its name in files.
        version: of its parts.
        place: module and class.
        parts: name in the file -> attribute.
    """

    kind: str
    version: int
    place: tuple[str, str]
    parts: dict[str, str]

    def cls(self) -> type:
        """The class, imported when it is needed."""
        module, name = self.place
        return getattr(import_module(f"psdfilter.{module}"), name)


def _schema(kind: str, module: str, name: str, *parts: str, version: int = 1) -> Schema:
    """Parts are written "name" or, where the attribute has another one, "name=attribute"."""
    pairs = [part.split("=") for part in parts]
    return Schema(kind, version, (module, name), {pair[0]: pair[-1] for pair in pairs})


_INFERENCE = "_inference"

SCHEMAS = {
    schema.kind: schema
    for schema in (
        _schema("box", "_density.box", "Box", "lower", "upper", "periodic", version=2),
        _schema("grid", "_density.anchors", "TensorGrid", "axes"),
        _schema(
            "psd", "_density.psd", "GaussianPSD", "anchors", "factor", "precision", "log_scale"
        ),
        _schema(
            "product psd", "_density.psd", "ProductPSD",
            "anchors", "factor", "precision", "log_scale", "left", "right",
        ),
        _schema(
            "generalized psd", "_density.generalized", "GeneralizedGaussianPSD",
            "factor", "precision", "linear", "offset", "log_scale", "origin", version=2,
        ),
        _schema(
            "pairwise psd", "_density.generalized", "PairwiseGaussianPSD",
            "factor", "precision", "linear", "offset", "log_scale", "origin", version=2,
        ),
        _schema(
            "blocks", "_density.blocks", "GaussianBlocks",
            "log_weights", "means", "covariances=covariance", "factor",
        ),
        _schema(
            "regression", f"{_INFERENCE}.sizing.plan", "AxisRegression",
            "anchors", "precision", "training=nodes", "lift", "project",
        ),
        _schema(
            "factor", f"{_INFERENCE}.sizing.plan", "TransitionPlan",
            "given", "group", "given_regressions", "group_regressions",
        ),
        _schema(
            "plan", f"{_INFERENCE}.sizing.plan", "Plan",
            "box", "nodes", "weights", "transitions", "observation", "prior", "tol",
        ),
        _schema(
            "tables", f"{_INFERENCE}.sizing.tables", "TransitionTables", "rows", "squares"
        ),
        _schema(
            "joint observation", f"{_INFERENCE}.nodes.joint", "JointObservation",
            "box", "regressions", "root", "log_scale", "table", "gram_roots", "mass",
        ),
        _schema(
            "filled plan", f"{_INFERENCE}.nodes.filled", "Filled",
            "ssm", "plan", "prior_root", "tables", "joint", "renormalize",
        ),
        _schema(
            "report", f"{_INFERENCE}.report", "Report",
            "engine", "reason", "tol", "seconds", "nodes", "anchors", "observation_anchors",
            "joint_anchors", "order", "one_step_error", "coefficient_norm", "leak", "time_varying",
            "notes",
        ),
        _schema(
            "model on nodes", f"{_INFERENCE}.nodes.model", "NodesModel",
            "filled", "report", "is_sized", "multiple",
        ),
        _schema(
            "law on nodes", f"{_INFERENCE}.nodes.online", "NodesLaw",
            "values", "source", "logs", "log_norm", "at",
        ),
        _schema(
            "adaptive plan", f"{_INFERENCE}.adaptive.trace", "AdaptivePlan",
            "tol", "share", "capacities",
        ),
        _schema(
            "adaptive model", f"{_INFERENCE}.adaptive.model", "AdaptiveModel",
            "ssm", "plan", "report",
        ),
        _schema("observation", f"{_INFERENCE}.adaptive.tables", "Seen", "y", "t", "row"),
        _schema(
            "line panels", f"{_INFERENCE}.adaptive.pairs", "Smooth",
            "lower", "upper", "density", "log_scale", "relative", "target",
        ),
        _schema(
            "dropped nodes", f"{_INFERENCE}.adaptive.tables", "Idle", "nodes", "log_masses",
        ),
        _schema(
            "line source", f"{_INFERENCE}.adaptive.tables", "Source",
            "nodes", "log_masses", "ratios", "panels=smooth", "t", "row", "dropped=idle",
            version=2,
        ),
        _schema(
            "line law", f"{_INFERENCE}.adaptive.state", "Law",
            "source", "seen", "log_norm", "nodes", "log_masses", "ratios", "lower", "upper",
            "offset", "error", "local", "sampling", "code", "target", "before", "walls",
            "dropped=idle",
            version=2,
        ),
        _schema(
            "line outcome", f"{_INFERENCE}.adaptive.hosted", "Outcome",
            "law", "log_mass", "log_kept", "code",
        ),
        _schema(
            "line step", f"{_INFERENCE}.adaptive.hosted", "Step",
            "t", "hops", "row", "y", "passing",
        ),
        _schema(
            "line pace", f"{_INFERENCE}.adaptive.passes", "Pace",
            "level", "lattice", "chunk", "left", "scanned",
            version=2,
        ),
        _schema(
            "line rows", f"{_INFERENCE}.adaptive.recent", "Kept",
            "start", "outcomes", "steps", "pace", "fine",
        ),
        _schema(
            "line prediction", f"{_INFERENCE}.adaptive.recent", "Ahead", "shared", "changed"
        ),
        _schema(
            "line state", f"{_INFERENCE}.adaptive.recent", "Recent", "rows=kept", "ahead", "owed"
        ),
        _schema(
            "plane model", f"{_INFERENCE}.adaptive.plane.model", "PlaneModel",
            "ssm", "plan", "report",
        ),
        _schema(
            "plane axis", f"{_INFERENCE}.adaptive.plane.axes", "Axis",
            "low", "high", "num", "walls", "drawn",
        ),
        _schema(
            "plane source", f"{_INFERENCE}.adaptive.plane.sums", "Source",
            "nodes", "log_masses", "ratios", "means", "t", "row", "dropped",
            version=2,
        ),
        _schema(
            "plane law", f"{_INFERENCE}.adaptive.plane.law", "Law",
            "source", "seen", "log_norm", "axes", "turn", "place", "log_masses", "shape",
            "offset", "error", "local", "sampling", "edge", "code", "depth", "lost", "hint",
            "before", "dropped",
            version=2,
        ),
        _schema(
            "plane link", f"{_INFERENCE}.adaptive.plane.chain", "Link",
            "step", "law", "log_mass", "log_kept", "code",
        ),
        _schema(
            "plane pace", f"{_INFERENCE}.adaptive.plane.chain", "Pace",
            "spacing", "chunk", "left",
        ),
        _schema(
            "plane chain", f"{_INFERENCE}.adaptive.plane.chain", "Chain",
            "start", "links", "first", "pace",
            version=2,
        ),
        _schema(
            "midpoint axis", f"{_INFERENCE}.closed.midpoints", "MidpointAxis",
            "anchors", "half", "precision", "anchor_pairs", "half_pairs", "half_means",
            "quarter_means", "half_moments", "quarter_moments",
        ),
        _schema("midpoints", f"{_INFERENCE}.closed.midpoints", "Midpoints", "axes"),
        _schema(
            "closed grid", f"{_INFERENCE}.closed.recursion", "Grid",
            "ssm", "plan", "midpoints", "prior_root", "root", "table",
        ),
        _schema("closed model", f"{_INFERENCE}.closed.model", "ClosedModel", "grid", "report"),
        _schema(
            "closed law", f"{_INFERENCE}.closed.recursion", "ClosedLaw",
            "means", "source", "predicted", "logs", "log_norm", "used",
        ),
        _schema("closed state", f"{_INFERENCE}.closed.model", "Between", "law", "root"),
        _schema(
            "bank", f"{_INFERENCE}.gaussian.bank", "Bank",
            "log_sizes", "means", "covariances", "rows",
            version=2,
        ),
        _schema(
            "layout", f"{_INFERENCE}.gaussian.bank", "Layout", "signs", "order", "factor",
            version=2,
        ),
        _schema(
            "triple", f"{_INFERENCE}.given.triple", "Triple",
            "prior", "transition", "observation", "box", "observation_box",
        ),
        _schema(
            "given table", f"{_INFERENCE}.given.table", "Table",
            "triple", "box", "nodes", "weights", "kernel", "start", "log_start", "seen_mass", "tol",
        ),
        _schema("given model", f"{_INFERENCE}.given.model", "GivenModel", "table", "report"),
        _schema(
            "given law", f"{_INFERENCE}.given.run", "GivenLaw",
            "values", "source", "moved", "seen", "num_seen", "log_norm",
        ),
        _schema("dynamics", f"{_INFERENCE}.gaussian.linear", "Dynamics", "F", "b", "Q"),
        _schema("sensor", f"{_INFERENCE}.gaussian.linear", "Sensor", "H", "d", "R"),
        _schema(
            "exact model", f"{_INFERENCE}.exact.model", "ExactModel",
            "dynamics", "sensor", "prior=start_bank", "layout=prior_layout", "report",
        ),
        _schema(
            "mixture", f"{_INFERENCE}.gaussian.mixture", "Mixture",
            "log_weights", "means", "covariances",
        ),
        _schema(
            "unit split", f"{_INFERENCE}.mixture.splitting", "UnitSplit",
            "offset", "deviation", "error",
        ),
        _schema(
            "effort", f"{_INFERENCE}.mixture.refine", "Effort",
            "tol", "batch", "rounds", "patience", "prune", "split",
        ),
        _schema(
            "linearized mixture", f"{_INFERENCE}.mixture.linearized", "LinearizedModel",
            "ssm", "prior=start_mixture", "effort", "report",
        ),
        _schema(
            "mixture sizes", f"{_INFERENCE}.mixture.observe", "Sizes",
            "order", "capacity", "rounds", "target",
        ),
        _schema(
            "sensor mixture", f"{_INFERENCE}.mixture.sensor", "SensorModel",
            "ssm", "dynamics", "prior=start_mixture", "sizes", "report", "measured",
        ),
        _schema(
            "sensor mixture state", f"{_INFERENCE}.mixture.sensor", "Sensed", "bank", "measured"
        ),
        _schema("atoms", f"{_INFERENCE}.free.atoms", "Atoms", "centers", "precision"),
        _schema(
            "term kernel", f"{_INFERENCE}.free.atoms", "TermKernel",
            "amplitudes", "given", "tightness", "slope", "centers", "precision",
        ),
        _schema("square sum", f"{_INFERENCE}.free.compress", "SquareSum", "atoms", "factor"),
        _schema("mass series", f"{_INFERENCE}.free.mass", "MassSeries", "coefficients"),
        _schema(
            "free transition", f"{_INFERENCE}.free.step", "LearnedTransition",
            "roots", "mass", "panels",
        ),
        _schema(
            "each observation", f"{_INFERENCE}.free.observation", "EachObservation", "ssm", "box"
        ),
        _schema(
            "learned observation", f"{_INFERENCE}.free.observation", "LearnedObservation",
            "kernel", "box", "num_terms",
        ),
        _schema(
            "free sizes", f"{_INFERENCE}.free.step", "StepSizes",
            "places", "left_out", "panel_nodes", "source_panels", "source_nodes", "sources",
            "panels", "table_nodes", "guard_nodes", "tried", "transition_terms", "scan",
        ),
        _schema(
            "fit errors", f"{_INFERENCE}.free.run", "FitErrors", "transition", "observation", "tol"
        ),
        _schema(
            "free model", f"{_INFERENCE}.free.model", "FreeModel",
            "learned", "observation=sensor", "prior=start_law", "state_box", "seen_dim", "sizes",
            "fit_errors", "report",
        ),
        _schema("free law", f"{_INFERENCE}.free.model", "FreeLaw", "law", "log_kept"),
        _schema("lattice plan", f"{_INFERENCE}.lattice.plan", "Plan", "num", "eps", "sensors"),
        _schema("lattice space", f"{_INFERENCE}.lattice.space", "Space", "lower", "upper", "kinds"),
        _schema(
            "lattice model", f"{_INFERENCE}.lattice.model", "LatticeModel",
            "ssm", "space", "plan", "report",
        ),
        _schema(
            "lattice", f"{_INFERENCE}.lattice.step", "Lattice",
            "lower", "upper", "log_masses", "relative", "log_predicted",
        ),
        _schema("sensors of a time", f"{_INFERENCE}.lattice.step", "Sensed", "ys", "rows"),
        _schema(
            "before a lattice", f"{_INFERENCE}.lattice.step", "Before",
            "is_prior", "lattice", "log_initial", "t", "row",
        ),
        _schema(
            "lattice law", f"{_INFERENCE}.lattice.run", "Law",
            "before", "seen", "now", "log_norm", "error", "log_kept",
        ),
        _schema("branch sizes", f"{_INFERENCE}.branches.run", "Sizes", "order", "prune"),
        _schema(
            "branch model", f"{_INFERENCE}.branches.model", "BranchModel",
            "ssm", "sizes", "fixed", "report",
        ),
        _schema(
            "branch law", f"{_INFERENCE}.branches.step", "Law",
            "fine", "coarse", "lost", "exact", "error",
        ),
        _schema(
            "filter state", f"{_INFERENCE}.online", "FilterState",
            "law", "log_likelihood", "step", "code", "error",
        ),
    )
}  # fmt: skip

# What a user may pass to `save`; the other kinds are parts of these.
KINDS = (
    "box", "grid", "psd", "product psd", "generalized psd", "pairwise psd", "blocks",
    "filter state", "adaptive model", "plane model", "model on nodes", "closed model",
    "exact model", "linearized mixture", "sensor mixture", "free model", "lattice model",
    "branch model",
)  # fmt: skip


# (kind, version in a file) -> what makes the parts of the next version.
def _about_zero(parts: Parts) -> Parts:
    """Canonical models without an origin of their own."""
    return {**parts, "origin": np.zeros(np.shape(parts["linear"])[-1])}


UPGRADES: dict[tuple[str, int], Callable[[Parts], Parts]] = {
    ("box", 1): lambda parts: {**parts, "periodic": ()},
    ("line source", 1): lambda parts: {**parts, "dropped": None},
    ("line law", 1): lambda parts: {**parts, "walls": np.zeros(0), "dropped": None},
    ("plane source", 1): lambda parts: {**parts, "dropped": 0.0},
    ("plane law", 1): lambda parts: {**parts, "dropped": float(np.exp(-parts["depth"]))},
    ("generalized psd", 1): _about_zero,
    ("pairwise psd", 1): _about_zero,
}

_BY_CLASS = {(f"psdfilter.{s.place[0]}", s.place[1]): s for s in SCHEMAS.values()}


def schema_of(obj: object) -> Schema | None:
    """The schema of an object's class; None if files may not hold it."""
    return _BY_CLASS.get((type(obj).__module__, type(obj).__name__))


def upgraded(kind: str, version: int, parts: Parts) -> tuple[Schema, Parts]:
    """Today's schema of a kind, and the parts that a file has, brought up to it."""
    schema = SCHEMAS.get(kind)
    if schema is None:
        raise ValueError(
            f"the file holds a {kind!r}, which this version of psdfilter does not know"
        )
    while version != schema.version:
        if (kind, version) not in UPGRADES:
            raise ValueError(
                f"the file's {kind!r} has version {version}; this version of psdfilter reads "
                f"{schema.version}"
            )
        parts, version = UPGRADES[kind, version](parts), version + 1
    if set(parts) != set(schema.parts):
        raise ValueError(
            f"the file's {kind!r} has parts {sorted(parts)}, expected {sorted(schema.parts)}: it "
            "is damaged, or was not written by psdfilter"
        )
    return schema, parts


def rebuilt(schema: Schema, parts: Parts) -> Any:
    """An instance from all its parts."""
    return schema.cls()(**{schema.parts[name]: value for name, value in parts.items()})
