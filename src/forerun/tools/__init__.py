"""Tools: functions that a model may call, how its family writes calls, and how they are parsed."""

from forerun.tools.call import ToolCall
from forerun.tools.calling import Calling
from forerun.tools.choice import MODES, ToolChoice
from forerun.tools.formats import FORMATS, CallFormat
from forerun.tools.reading import Arguments, CallBegun, CallReader, Piece, Words
from forerun.tools.tool import Tool
from forerun.tools.toolbox import MAX_TOOLS, Toolbox

__all__ = [
    "FORMATS",
    "MAX_TOOLS",
    "MODES",
    "Arguments",
    "CallBegun",
    "CallFormat",
    "CallReader",
    "Calling",
    "Piece",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "Toolbox",
    "Words",
]
