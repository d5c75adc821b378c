"""Guesses from a prediction: text that the caller gives because it expects roughly that output.

The output is aligned with the prediction. When it deviates, the place where it continues is found
again: after a changed, an inserted or a deleted stretch, or after a move to another part.
"""

from forerun.drafters.prediction.alignment import Alignment
from forerun.drafters.prediction.given import PREDICTION, GivenPrediction

__all__ = ["PREDICTION", "Alignment", "GivenPrediction"]
