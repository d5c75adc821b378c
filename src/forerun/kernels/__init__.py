"""The only package that knows hardware: one interface, one contract suite, several kernel sets."""

from forerun.kernels.base import (
    AttentionShape,
    Body,
    ChainKernels,
    ChainNoise,
    CompiledKernels,
    Kernels,
    Norm,
    StoredTensor,
    TappedKernels,
    WeightSource,
)
from forerun.kernels.plan import Plan, PlanRow, SlotTable
from forerun.kernels.reference import ReferenceKernels
from forerun.kernels.scores import Scores

__all__ = [
    "AttentionShape",
    "Body",
    "ChainKernels",
    "ChainNoise",
    "CompiledKernels",
    "Kernels",
    "Norm",
    "Plan",
    "PlanRow",
    "ReferenceKernels",
    "Scores",
    "SlotTable",
    "StoredTensor",
    "TappedKernels",
    "WeightSource",
]
