"""Text from options, files and standard input: valid and of limited size, or an error."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final, TextIO

from forerun.errors import InvalidOption
from forerun.files import MAX_TEXT_BYTES, MIB, read_text
from forerun.option_checks import is_unicode

_TOO_LONG: Final = f"standard input is longer than {MAX_TEXT_BYTES // MIB} MiB; shorten it."


def checked_text(text: str, what: str) -> str:
    """Reject lone surrogates; bytes on the command line that are not text arrive as such."""
    if not is_unicode(text):
        raise InvalidOption(f"{what} holds a lone surrogate or bytes that are not text; fix it.")
    return text


def read_option(path: Path, option: str, wanted: str) -> str:
    """Return the text of a file that an option names."""
    try:
        return read_text(path, MAX_TEXT_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InvalidOption(f"{option} {path} cannot be read: {reason}; give {wanted}.") from None


def read_stdin() -> str:
    """Read all of it; the limit counts characters, each of which is at least one byte."""
    return _read(check_stdin())


def ask(prompt: str) -> str | None:
    """Return one line without its end, None at the end of input; only a terminal is prompted."""
    stdin = check_stdin()
    if stdin.isatty():
        return _ask_terminal(prompt)
    line = _read(stdin, is_line=True)
    return line.strip() if line else None


def _ask_terminal(prompt: str) -> str | None:
    """Read a line with the terminal's own line editing."""
    try:
        return input(prompt).strip()
    except EOFError:
        print()
        return None
    except KeyboardInterrupt:  # so that what follows starts on a new line
        print()
        raise
    except UnicodeDecodeError:
        raise _not_text(sys.stdin) from None


def _read(stdin: TextIO, *, is_line: bool = False) -> str:
    read = stdin.readline if is_line else stdin.read
    try:
        text = read(MAX_TEXT_BYTES + 1)
    except UnicodeDecodeError:
        raise _not_text(stdin) from None
    except OSError as error:
        raise InvalidOption(
            f"standard input cannot be read: {error.strerror}; give another."
        ) from None
    if len(text) > MAX_TEXT_BYTES:
        raise InvalidOption(_TOO_LONG)
    if not is_unicode(text):  # some locales decode any byte
        raise _not_text(stdin)
    return text


def check_stdin() -> TextIO:
    """Return standard input; raise if it is closed."""
    if sys.stdin is None:
        raise InvalidOption("standard input is closed; open it, or give the prompt as an argument.")
    return sys.stdin


def _not_text(stdin: TextIO) -> InvalidOption:
    return InvalidOption(f"standard input is not text in {stdin.encoding}; convert it first.")
