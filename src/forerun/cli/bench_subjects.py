"""Which options belong to which subject of `forerun bench`; the rest are refused, not dropped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import typer

from forerun.errors import InvalidOption, unknown_name
from forerun.models.sources import SOURCES

_LOADING: Final = frozenset(
    [
        "model",
        "kernels",
        "device",
        "dtype",
        "num_threads",
        "quantization",
        "activations",
        "no_speculation",
        "max_model_len",
        "kv_cache_memory",
        "kv_cache_backend",
    ]
)
_ENGINE: Final = _LOADING | frozenset(
    ["chat_template", "speculative_config", "speculative_decoding", "draft_model", "spec_length"]
)
_PROMPTS: Final = frozenset(["classes", "pairs", "max_tokens", "temperature", "seed"])
_SWEEP: Final = frozenset(["methods", "depths", "num_layers", "prompt_tokens"])
_PEERS: Final = frozenset(["peers", "peer_modes", "peer_python"])
_SERIES: Final = frozenset(["repeats", "parts", "together", "in_flight", "num_prompts"])
_JUDGED: Final = frozenset(["json_path", "strict"])

SHOW: Final = "--show"
# By the names of the command's parameters.
TAKES: Final[Mapping[str, frozenset[str]]] = {
    "speculation": _ENGINE | _PROMPTS | _SWEEP | _PEERS | _JUDGED | {"plot", "html"},
    "kernels": frozenset({"num_threads", "activations", "json_path", "plot"}),
    "passes": _LOADING | {"json_path"},
    "startup": _LOADING | _JUDGED | {"max_tokens", "repeats"},
    "batch": _ENGINE | _PROMPTS | _PEERS | _SERIES | _JUDGED,
    "parity": _LOADING | _JUDGED | {"max_tokens", "num_prompts"},
    SHOW: frozenset({"show", "plot", "html", "strict"}),
}
SUBJECTS: Final = tuple(name for name in TAKES if name != SHOW)


def check_options(context: typer.Context, subject: str) -> None:
    """What was given on the command line must mean something to the subject."""
    if subject not in SUBJECTS:
        if subject in SOURCES or Path(subject).exists():
            raise InvalidOption(f"there is no bench {subject!r}; to name a model, use --model.")
        raise unknown_name("bench", subject, SUBJECTS)
    given = {
        parameter.name: parameter.opts[0]
        for parameter in context.command.params
        if parameter.name != "what" and _is_given(context, parameter.name)
    }
    if "show" in given and subject == "speculation":
        subject = SHOW
    for name, option in given.items():
        if name not in TAKES[subject]:
            raise InvalidOption(f"bench {subject} does not take {option}; drop it.")


def _is_given(context: typer.Context, name: str | None) -> bool:
    source = context.get_parameter_source(name or "")
    return source is not None and source.name == "COMMANDLINE"
