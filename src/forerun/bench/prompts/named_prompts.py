"""200 named prompts; the first 40 are short and of every kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from forerun.bench.prompts.data_files import read_rows
from forerun.errors import InvalidOption
from forerun.models.text.tokenizer import Tokenizer

NUM_PROMPTS: Final = 200


@dataclass(frozen=True)
class NamedPrompt:
    name: str
    source: str  # the data set, as data/README.md lists it
    category: str
    text: str

    def encode(self, tokenizer: Tokenizer) -> list[int]:
        """Encode the text as a user's message."""
        return tokenizer.encode_chat([{"role": "user", "content": self.text}])


def named_prompts(num: int = NUM_PROMPTS) -> list[NamedPrompt]:
    """Return the first `num` prompts, always in the same order."""
    if not 1 <= num <= NUM_PROMPTS:
        raise InvalidOption(f"{num} named prompts are not to be had; give 1 to {NUM_PROMPTS}.")
    return [NamedPrompt(**row) for row in read_rows("named_prompts")[:num]]
