"""The served distribution: transforms, noise and draws, in numpy; the reference for all kernels."""

from forerun.sampling.coupled_draws import CoupledDraws
from forerun.sampling.draws import draw, draw_siblings, gumbel_argmax, gumbel_top
from forerun.sampling.largest import largest
from forerun.sampling.noise import (
    GumbelNoise,
    Noise,
    Stream,
    UniformNoise,
    derive_key,
    fresh_seed,
)
from forerun.sampling.softmax import Logits, Probs, WeightSum, softmax, weight_sum
from forerun.sampling.transforms import (
    Context,
    checked_argmax,
    log_probs,
    ranked_logits,
    served_logits,
    served_probs,
)

__all__ = [
    "Context",
    "CoupledDraws",
    "GumbelNoise",
    "Logits",
    "Noise",
    "Probs",
    "Stream",
    "UniformNoise",
    "WeightSum",
    "checked_argmax",
    "derive_key",
    "draw",
    "draw_siblings",
    "fresh_seed",
    "gumbel_argmax",
    "gumbel_top",
    "largest",
    "log_probs",
    "ranked_logits",
    "served_logits",
    "served_probs",
    "softmax",
    "weight_sum",
]
