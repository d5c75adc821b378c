"""What rounds cost here and now: measured at the start, and learnt from every round since."""

from forerun.speculation.costs.costs import Costs
from forerun.speculation.costs.draft_cost import DraftCost
from forerun.speculation.costs.pass_cost import PassCost

__all__ = ["Costs", "DraftCost", "PassCost"]
