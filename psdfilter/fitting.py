"""Fitting PSD models to functions and to samples: solvers, points, schedules, what fits return."""

from ._learning.domains import BoxChoice, box_from_quantiles, box_from_samples
from ._learning.full_rank import FullRankFit, FullRankReport, learn_full_rank
from ._learning.generalized import GeneralizedFit, GeneralizedReport, learn_generalized
from ._learning.nystrom import NystromFit, NystromReport, nystrom_ridge
from ._learning.points import padded_grid, sobol_points, training_grid, uniform_points
from ._learning.rank_one import RankOneFit, learn_rank_one
from ._learning.report import FitReport
from ._learning.ridge import DenseRidge
from ._learning.roots import learn_roots
from ._learning.samples import (
    SampleFit,
    SampleReport,
    learn_conditional,
    learn_from_samples,
)
from ._learning.schedule import Schedule, learning_schedule
from ._learning.tensor_ridge import TensorRidge

__all__ = [
    "BoxChoice",
    "DenseRidge",
    "FitReport",
    "FullRankFit",
    "FullRankReport",
    "GeneralizedFit",
    "GeneralizedReport",
    "NystromFit",
    "NystromReport",
    "RankOneFit",
    "SampleFit",
    "SampleReport",
    "Schedule",
    "TensorRidge",
    "box_from_quantiles",
    "box_from_samples",
    "learn_conditional",
    "learn_from_samples",
    "learn_full_rank",
    "learn_generalized",
    "learn_rank_one",
    "learn_roots",
    "learning_schedule",
    "nystrom_ridge",
    "padded_grid",
    "sobol_points",
    "training_grid",
    "uniform_points",
]
