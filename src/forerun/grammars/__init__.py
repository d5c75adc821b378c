"""What answers must look like: JSON schemas, regular expressions, choices and grammars.

description.py   what a caller asks for, as a grammar's text
matched.py       a grammar beside the text of one request
grammars.py      grammars of one vocabulary, compiled once

llguidance does the matching; nothing else here knows it, and the package goes without it until
a request needs it.
"""

from forerun.grammars.grammars import Grammars

__all__ = ["Grammars"]
