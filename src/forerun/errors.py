"""Named errors. Each message is one sentence that says what to do."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable, Sequence
from typing import Any, Final, Self


class ForerunError(Exception):
    """The base class of every error that Forerun raises for a user to handle."""


class InvalidOption(ForerunError, ValueError):
    """An option is unknown, or its value is outside the allowed range."""


class UnknownKeyword(InvalidOption, TypeError):
    """A keyword that a call does not take, for which Python itself raises a `TypeError`."""


class UnusableDrafter(InvalidOption):
    """A request names a drafter that the engine lacks, or gives it nothing to guess from."""


class NothingAllowed(InvalidOption):
    """The options leave no token that may come next."""


class InvalidToolChoice(InvalidOption):
    """`tool_choice` names a tool that is not among `tools`, or has an unknown form."""


class InvalidGrammar(InvalidOption):
    """A schema, expression or grammar is not understood, or takes too long to follow."""

    reason = ""

    @classmethod
    def because(cls, what: str, complaint: str) -> Self:
        """Build the error from llguidance's `complaint`, of which one line says what is wrong."""
        if "NoExtension" in complaint:
            complaint = "there is no text in the model's vocabulary that fits it"
        why = [line for line in complaint.splitlines() if line.startswith("error: ")]
        reason = first_line(why[0].removeprefix("error: ") if why else complaint).rstrip(".")
        error = cls(f"{what} cannot be used ({reason}); mend it.")
        error.reason = reason
        return error


class GrammarTooMuch(InvalidGrammar):
    """Following the grammar takes more time or memory than an answer may."""


class InvalidDistribution(ForerunError, ValueError):
    """Logits or probabilities are not what they claim to be (NaN, negative, not summing to one)."""


class InvalidProposal(ForerunError, ValueError):
    """A drafter returned something that is not a proposal (a bad tree, q = 0 for a draw …)."""


class InvalidWeights(ForerunError, ValueError):
    """A weight file is missing, truncated or corrupt; the message names the field or tensor."""


class UnsupportedModel(ForerunError, ValueError):
    """The files are sound, but describe a model that Forerun does not run."""


class InvalidTokenizer(ForerunError, ValueError):
    """Tokenizer files are missing, corrupt, or of a kind that Forerun does not read."""


class TokenizerMismatch(ForerunError, ValueError):
    """Target and draft do not share a vocabulary."""


class InvalidTemplate(ForerunError, ValueError):
    """A chat template is missing, fails, or tries to leave its sandbox."""


class UnknownModel(ForerunError, ValueError):
    """A model is neither a file, nor a directory, nor a name that was pulled."""


class DownloadFailed(ForerunError, RuntimeError):
    """A model could not be downloaded whole; finished parts are kept for the next try."""


class DiskFull(ForerunError, RuntimeError):
    """Something could not be written whole, since there is no space left for it."""


class PromptTooLong(ForerunError, ValueError):
    """A prompt does not fit into the model's context."""


class RequestTooLarge(ForerunError, ValueError):
    """A prompt and its `max_tokens` are more than the context or the whole cache can hold."""


class RequestFailed(ForerunError, RuntimeError):
    """One request could not go on; its cause is attached, and other requests are not affected.

    From `LLM.generate`, `outputs` has the answer to each prompt, None where one failed.
    """

    outputs: Sequence[Any] = ()


class DeviceFailed(ForerunError, RuntimeError):
    """A GPU could not run a pass: it is out of memory, or has failed."""


class EngineOverloaded(ForerunError, RuntimeError):
    """As many requests wait already as may wait; try again later."""


class EngineClosed(ForerunError, RuntimeError):
    """The engine takes no more requests, or was closed before this one ended."""


class EngineHung(ForerunError, TimeoutError):
    """A step of the engine takes far longer than it may."""


class CannotCompile(ForerunError, RuntimeError):
    """Numba is missing, broken, or does not know this machine."""

    @classmethod
    def because(cls, what: str, error: Exception) -> CannotCompile:
        """Build the error with the first line of Numba's message, which may be long or empty."""
        reason = first_line(str(error)).rstrip(".") or type(error).__name__
        # Numba raises a ValueError for an invalid setting of its own.
        settings = "mend the NUMBA_ variables, " if isinstance(error, ValueError) else ""
        return cls(
            f"Numba cannot {what} ({reason}); {settings}reinstall numba, or use the reference "
            f"kernels."
        )


class ProofCutShort(ForerunError, RuntimeError):
    """A worker process of a proof ended before its part was finished."""


class NoDevice(ForerunError, RuntimeError):
    """A device was asked for that this machine does not have, or that torch cannot use."""


class MissingExtra(ForerunError, ImportError):
    """An optional dependency is needed and not installed."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f'{what} needs an optional extra; run: pip install "forerun[{extra}]"')


NO_MEMORY: Final = "there is too little memory for this; free some, or take a smaller model."


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether `error` means that there is too little memory: Python has a type for that; the
    dynamic linker, threading and torch only say so in their messages."""
    if isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    signs = (
        "cannot allocate memory",
        "failed to map segment",
        "can't start new thread",
        "out of memory",
    )
    said = str(error).lower()
    return isinstance(error, ImportError | RuntimeError) and any(sign in said for sign in signs)


def first_line(text: str) -> str:
    """Return the first line of another library's message, which may go on with a traceback."""
    return next(iter(text.strip().splitlines()), "")


def unknown_name(kind: str, name: str, valid: Iterable[str]) -> InvalidOption:
    """Return the error for an unknown name; it suggests the nearest valid one."""
    names = sorted(map(str, valid))
    near = difflib.get_close_matches(str(name), names, n=1, cutoff=0.65)
    hint = f"did you mean {near[0]!r}?" if near else f"valid: {', '.join(names)}."
    return InvalidOption(f"unknown {kind} {name!r}; {hint}")
