"""Engines as objects with options of their own, for `learn(..., engine=...)`."""

from ._inference.adaptive.engine import Adaptive
from ._inference.branches.engine import Branches
from ._inference.closed.engine import Closed, Reference
from ._inference.engine import AbstractEngine
from ._inference.exact.engine import Exact
from ._inference.free.engine import Free
from ._inference.lattice.engine import Lattice
from ._inference.mixture.engine import Mixture
from ._inference.model import AbstractModel
from ._inference.nodes.engine import Nodes

__all__ = [
    "AbstractEngine",
    "AbstractModel",
    "Adaptive",
    "Branches",
    "Closed",
    "Exact",
    "Free",
    "Lattice",
    "Mixture",
    "Nodes",
    "Reference",
]
