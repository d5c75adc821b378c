"""Script that compiles grammars and follows each for some steps, for a process that must survive.

`Trial` runs it; each message is a line of JSON. If the script ends instead of answering, the
grammar was too much. It imports nothing of this package, so that it starts fast.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
import time
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

_STACK_BYTES = 4 << 20  # half of a thread's usual stack: what fits here fits elsewhere
_STEP_SECONDS = 0.25  # in the engine, all other requests wait for a step
_WALK_SECONDS = 0.1
_MOST_STEPS = 1024


class Words:
    """A tokenizer in the form that llguidance wraps; it splits text into the longest tokens."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.tokens = [token.encode("latin-1") for token in told["tokens"]]
        self.eos_token_id: int = told["ends"][0]
        self.bos_token_id: int | None = told["begins"]
        self.special_token_ids: list[int] = told["special"]
        special = set(self.special_token_ids)
        self._ids = {word: idx for idx, word in enumerate(self.tokens) if idx not in special}
        self._longest = max(map(len, self._ids))

    def __call__(self, text: bytes) -> list[int]:
        found, at = list[int](), 0
        while at < len(text):
            sizes = range(min(self._longest, len(text) - at), 0, -1)
            num = next((num for num in sizes if text[at : at + num] in self._ids), 0)
            found += [self._ids[text[at : at + num]]] if num else []
            at += num or 1
        return found


def complaint_about(
    vocabulary: LLTokenizer, limits: LLParserLimits, text: str, *, walks: bool
) -> str | None:
    first = LLMatcher(vocabulary, text, log_level=0, limits=limits)
    if first.is_error():
        return str(first.get_error())
    matcher, end, chance = first.deep_copy(), time.process_time() + _WALK_SECONDS, random.Random(0)
    for _ in range(_MOST_STEPS if walks else 1):
        began = time.process_time()
        bits = matcher.compute_bitmask()
        if matcher.is_error():
            return str(matcher.get_error())
        now = time.process_time()
        if now - began > _STEP_SECONDS:
            return "it takes too long"
        if now > end:
            break
        token = _some(bits, chance)
        if token is None or token == vocabulary.eos_token or matcher.is_stopped():
            matcher = first.deep_copy()
        else:
            matcher.consume_token(token)
    return None


def _some(bits: bytes, chance: random.Random) -> int | None:
    """Return a random one of the allowed tokens."""
    start = chance.randrange(len(bits))
    for first, part in ((start, bits[start:]), (0, bits)):
        rest = part.lstrip(b"\0")
        if rest:
            byte = first + len(part) - len(rest)
            return 8 * byte + chance.choice([bit for bit in range(8) if bits[byte] >> bit & 1])
    return None


def main() -> None:
    told = json.loads(sys.stdin.readline())
    vocabulary = LLTokenizer(TokenizerWrapper(Words(told)), eos_token=told["ends"])
    limits = LLParserLimits(**told["limits"])
    _limit_memory(told["memory"])
    threading.stack_size(_STACK_BYTES)
    print("ready", flush=True)
    for line in sys.stdin:
        _limit_time(told["seconds"])
        thread = threading.Thread(target=answer, args=(vocabulary, limits, json.loads(line)))
        thread.start()
        thread.join()


def answer(vocabulary: LLTokenizer, limits: LLParserLimits, asked: dict[str, Any]) -> None:
    try:
        began = time.process_time()
        complaint = complaint_about(vocabulary, limits, **asked)
        print(json.dumps([complaint, time.process_time() - began]), flush=True)
    except BaseException:  # llguidance's state is not to be trusted any more
        os._exit(1)


def _limit_memory(num_bytes: int) -> None:
    """Limit the process to `num_bytes` more than it has at this moment."""
    if resource is not None:
        with open("/proc/self/statm") as file:
            used = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + num_bytes, resource.RLIM_INFINITY))


def _limit_time(seconds: float) -> None:
    """Limit the process to `seconds` of CPU time from this moment on; a signal then ends it."""
    if hasattr(signal, "setitimer"):  # not on Windows
        signal.setitimer(signal.ITIMER_PROF, seconds)


if __name__ == "__main__":
    main()
