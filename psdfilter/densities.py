"""The calculus of densities: PSD models, their relatives, and every operation on them."""

from ._density.anchors import TensorGrid
from ._density.blocks import GaussianBlocks
from ._density.box import Box
from ._density.compression import Compression, compress, compress_with_loss
from ._density.conversions import (
    SignedMixture,
    change_units,
    conditional_gaussian,
    from_linear,
    from_mixture,
    generalize,
    to_mixture,
)
from ._density.distances import (
    entropy,
    hdr_level,
    hellinger,
    hilbert_metric,
    kl_divergence,
    total_variation,
)
from ._density.generalized import GeneralizedGaussianPSD, PairwiseGaussianPSD
from ._density.mass import digits, integral, log_integral, normalize, scale
from ._density.modes import modes
from ._density.moments import cdf, mode, moments, quantile
from ._density.operations import filter_step, marginal, partial, product, transition
from ._density.psd import GaussianPSD
from ._density.sampling import sample
from ._density.soundness import check

__all__ = [
    "Box",
    "Compression",
    "GaussianBlocks",
    "GaussianPSD",
    "GeneralizedGaussianPSD",
    "PairwiseGaussianPSD",
    "SignedMixture",
    "TensorGrid",
    "cdf",
    "change_units",
    "check",
    "compress",
    "compress_with_loss",
    "conditional_gaussian",
    "digits",
    "entropy",
    "filter_step",
    "from_linear",
    "from_mixture",
    "generalize",
    "hdr_level",
    "hellinger",
    "hilbert_metric",
    "integral",
    "kl_divergence",
    "log_integral",
    "marginal",
    "mode",
    "modes",
    "moments",
    "normalize",
    "partial",
    "product",
    "quantile",
    "sample",
    "scale",
    "to_mixture",
    "total_variation",
    "transition",
]
