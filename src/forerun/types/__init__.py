"""The values that cross rooms.

Shapes, used in comments wherever an array is created:

    T  tokens in one target pass        V  vocabulary
    N  guessed nodes in a proposal      D  depth: length of the longest branch
    L  layers    H  heads    G  key/value heads    E  width    K  draws among siblings

Nodes of a proposal are numbered 0 … N-1, parents before children; `ROOT` (-1) is the last
emitted token, from which all guesses hang.
"""

from forerun.types.arrays import FloatArray, IntArray, check_probs
from forerun.types.grammar import Grammar
from forerun.types.proposal import Draw, Proposal, ProposalBuilder
from forerun.types.sampling_params import Acceptance, SamplingParams
from forerun.types.span import Span
from forerun.types.structured_outputs import StructuredOutputsParams
from forerun.types.tree import ROOT, Tree
from forerun.types.verdict import Origin, Verdict

__all__ = [
    "ROOT",
    "Acceptance",
    "Draw",
    "FloatArray",
    "Grammar",
    "IntArray",
    "Origin",
    "Proposal",
    "ProposalBuilder",
    "SamplingParams",
    "Span",
    "StructuredOutputsParams",
    "Tree",
    "Verdict",
    "check_probs",
]
