"""The fields that a body may have: one list, by which bodies are read and the docs are printed."""

from forerun.server.fields.field import Endpoint, Field, Treatment
from forerun.server.fields.reading import read_fields
from forerun.server.fields.table import FIELDS, LOGPROBS, fields_of, markdown

__all__ = [
    "FIELDS",
    "LOGPROBS",
    "Endpoint",
    "Field",
    "Treatment",
    "fields_of",
    "markdown",
    "read_fields",
]
