"""A given prediction: the caller says what the output will be, roughly.

The output is followed along the prediction. Where it deviates, the place where it goes on is found
again: after a changed, an inserted or a left-out stretch, or after a move to another part.
"""

from forerun.drafters.prediction.alignment import Alignment
from forerun.drafters.prediction.given import PREDICTION, GivenPrediction

__all__ = ["PREDICTION", "Alignment", "GivenPrediction"]
