"""The old name of `forerun.theory`; the next version does not have it."""

import sys
import warnings

from forerun.theory import acceptance, closed_forms, depth_table, ranges, verify_cost

warnings.warn(
    "forerun.planning is forerun.theory; import from there.", DeprecationWarning, stacklevel=2
)
for _module in (acceptance, closed_forms, depth_table, ranges, verify_cost):
    sys.modules[f"{__name__}.{_module.__name__.rpartition('.')[2]}"] = _module
