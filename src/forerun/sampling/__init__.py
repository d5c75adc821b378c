"""The served distribution: transforms, noise, draws. In numpy, as the oracle for every kernel."""

from forerun.sampling.draws import draw, draw_siblings, gumbel_argmax, gumbel_top
from forerun.sampling.noise import GumbelNoise, Noise, Stream, UniformNoise, fresh_seed
from forerun.sampling.transforms import (
    Context,
    Logits,
    Probs,
    log_probs,
    ranked_logits,
    served_logits,
    served_probs,
    softmax,
)

__all__ = [
    "Context",
    "GumbelNoise",
    "Logits",
    "Noise",
    "Probs",
    "Stream",
    "UniformNoise",
    "draw",
    "draw_siblings",
    "fresh_seed",
    "gumbel_argmax",
    "gumbel_top",
    "log_probs",
    "ranked_logits",
    "served_logits",
    "served_probs",
    "softmax",
]
