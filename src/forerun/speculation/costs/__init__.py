"""What rounds cost on this machine: measured at start, and corrected while running."""

from forerun.speculation.costs.costs import Costs
from forerun.speculation.costs.draft_cost import DraftCost
from forerun.speculation.costs.pass_cost import PassCost

__all__ = ["Costs", "DraftCost", "PassCost"]
