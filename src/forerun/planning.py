"""The name that `forerun.theory` had in 0.1, with a warning. The next version drops it."""

import sys
import warnings

from forerun.models import memory_budget
from forerun.theory import acceptance, closed_forms, depth_table, figures, verify_cost

warnings.warn(
    "forerun.planning is forerun.theory now (memory_budget: forerun.models); it is here once more.",
    DeprecationWarning,
    stacklevel=2,
)
for _module in (acceptance, closed_forms, depth_table, figures, memory_budget, verify_cost):
    sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module
