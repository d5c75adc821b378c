"""Constraints on answers: JSON schemas, regular expressions, choices and grammars.

description.py   what a caller asks for, as the text of a grammar
matched.py       a compiled grammar, and its matcher for one request
grammars.py      the grammars of one vocabulary, compiled once

llguidance does the matching. No other room imports it, and it is not imported until a request
needs it.
"""

from forerun.grammars.grammars import Grammars

__all__ = ["Grammars"]
