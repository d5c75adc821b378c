"""All methods of drafting: their names, what they are, and how their drafters are built.

A new method is a file in `drafters/` and an entry here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from forerun.drafters import (
    Drafter,
    DraftModel,
    Hybrid,
    Merge,
    NgramTables,
    Phrases,
    PromptLookup,
    RandomTokens,
    SuffixLookup,
    Target,
)
from forerun.drafters.heads import HEAD_KINDS, Card, HeadFolder, build_head
from forerun.drafters.phrases import PhraseBook
from forerun.errors import InvalidOption
from forerun.models.llama import LlamaModel
from forerun.models.opening import load_tokenizer, open_checkpoint
from forerun.models.text.compatibility import check_compatible, tokenizer_hash

if TYPE_CHECKING:
    from forerun.speculation.config import SpeculativeConfig


class Method(NamedTuple):
    about: str
    build: Callable[[SpeculativeConfig, Target], Drafter] | None = None  # None: combines others
    needs: Mapping[str, str] = {}  # options that must be given, and what to give
    takes: tuple[str, ...] = ()  # options that may be given
    default_depth: int = 5

    @property
    def options(self) -> tuple[str, ...]:
        """The options of this method, besides those that all methods have."""
        return (*self.needs, *self.takes)


def build_drafters(config: SpeculativeConfig, target: Target) -> dict[str, Drafter]:
    """Build the drafters of all single methods that are used, by name."""
    builders = {name: METHODS[name].build for name in config.parts}
    return {name: build(config, target) for name, build in builders.items() if build}


def cards_of(config: SpeculativeConfig, target: Target) -> dict[str, Card]:
    """Return the cards of the trained heads that are used; a head of another engine gets an empty
    card, and one of ours without a card gets none."""
    kinds = [name for name in config.parts if name in HEAD_KINDS]
    found = dict[str, Card]()
    for kind in kinds:
        path = _head_path(config, target, kind)
        card = Card.of(path)
        if card is not None:
            found[kind] = card
        elif not HeadFolder(path).is_ours:
            found[kind] = Card(())
    return found


def combined(config: SpeculativeConfig, parts: dict[str, Drafter]) -> dict[str, Drafter]:
    """Return the drafters to ask: one that combines the parts, or the parts themselves."""
    if config.method == "merge":
        return {"merge": Merge(list(parts.values()))}
    if config.method == "hybrid" and not config.adaptive:
        return {"hybrid": Hybrid(list(parts.values()))}
    return parts


def _suffix(config: SpeculativeConfig, _: Target) -> Drafter:
    return SuffixLookup(
        config.suffix_min_match,
        config.suffix_max_match,
        config.suffix_min_chance,
        config.suffix_max_shared_tokens,
    )


def _draft_model(config: SpeculativeConfig, target: Target) -> Drafter:
    assert config.model is not None
    checkpoint = open_checkpoint(config.model, target.cache_dir)
    check_compatible(target.tokenizer, load_tokenizer(checkpoint))
    model = LlamaModel.load(checkpoint, target.model.kernels)
    return DraftModel(model, target.model.config.vocab_size)


def _own_layers(config: SpeculativeConfig, target: Target) -> Drafter:
    assert config.num_layers is not None
    model = target.model.first_layers(config.num_layers)
    return DraftModel(model, target.model.config.vocab_size)


def _head(kind: str) -> Callable[[SpeculativeConfig, Target], Drafter]:
    def build(config: SpeculativeConfig, target: Target) -> Drafter:
        return build_head(_head_folder(config, target, kind), target.model)

    return build


def _head_folder(config: SpeculativeConfig, target: Target, kind: str) -> HeadFolder:
    """Return the named trained head, or the package's; raise if it was not made for this target."""
    folder, model = HeadFolder(_head_path(config, target, kind), kind), target.model.config
    folder.fit(
        target_hidden_size=model.hidden_size,
        target_vocab_size=model.vocab_size,
        target_num_layers=target.model.num_layers,
        tokenizer_hash=tokenizer_hash(target.tokenizer),
    )
    target.model.check_taps(folder.config.layers, f'method "{kind}"')
    return folder


def _head_path(config: SpeculativeConfig, target: Target, kind: str) -> Path:
    if config.model is not None:
        return Path(config.model)
    for path in target.heads:
        if HeadFolder(path).config.kind == kind:
            return path
    raise InvalidOption(
        f'no head of kind "{kind}" comes with the package for this target; name the folder of one '
        'in "model".'
    )


def _phrases(config: SpeculativeConfig, target: Target) -> Drafter:
    path = target.phrases if config.model is None else Path(config.model)
    if path is None:
        raise InvalidOption(
            "no book of phrases comes with the package for this target; name the folder of one in "
            '"model" (forerun train --kind phrases writes it).'
        )
    book = PhraseBook.load(path)
    book.fit(path, tokenizer_hash(target.tokenizer), target.model.config.vocab_size)
    return Phrases(book)


def _prompt_lookup(config: SpeculativeConfig, _: Target) -> Drafter:
    return PromptLookup(*config.prompt_lookup_lens)


def _ngram_tables(*orders: int) -> Callable[[SpeculativeConfig, Target], Drafter]:
    """Return a builder of tables of these orders, or of those in the configuration."""

    def build(config: SpeculativeConfig, target: Target) -> Drafter:
        vocab_size = target.model.config.vocab_size
        return NgramTables(vocab_size, orders or config.ngram_orders, config.ngram_window)

    return build


def _random(_: SpeculativeConfig, target: Target) -> Drafter:
    return RandomTokens(target.model.config.vocab_size)


_LOOKUP_OPTIONS: Final = ("prompt_lookup_min", "prompt_lookup_max")

METHODS: Final[Mapping[str, Method]] = {
    "auto": Method(
        "suffix, and what comes with the package for this target: its phrases, or a head that pays"
    ),
    "suffix": Method(
        "copies on from the longest stretch of text that stood here before",
        _suffix,
        takes=(
            *("suffix_min_match", "suffix_max_match"),
            *("suffix_min_chance", "suffix_max_shared_tokens"),
        ),
        default_depth=16,  # its guesses stop by themselves
    ),
    "draft_model": Method(
        "a smaller model of the same tokenizer (`model`)",
        _draft_model,
        {"model": 'it beside "method", or --draft-model in place of --speculative-config'},
    ),
    "own_layers": Method(
        "the target's own first `num_layers` layers",
        _own_layers,
        {"num_layers": 'how many, like {"method": "own_layers", "num_layers": 4}'},
    ),
    **{
        kind: Method(f"{each.about} (`model`: the folder)", _head(kind), takes=("model",))
        for kind, each in HEAD_KINDS.items()
    },
    "phrases": Method(
        "what the target usually says, counted beforehand (`model`: the folder)",
        _phrases,
        takes=("model",),
    ),
    "prompt_lookup": Method(
        "copies what followed the same words before", _prompt_lookup, takes=_LOOKUP_OPTIONS
    ),
    "ngram": Method("vLLM's name for prompt_lookup", _prompt_lookup, takes=_LOOKUP_OPTIONS),
    "ngram_tables": Method(
        "counts of what followed short contexts in this text",
        _ngram_tables(),
        takes=("ngram_orders", "ngram_window"),
    ),
    "unigram": Method(
        "counts of single tokens in this text", _ngram_tables(1), takes=("ngram_window",)
    ),
    "bigram": Method(
        "counts of token pairs in this text", _ngram_tables(2), takes=("ngram_window",)
    ),
    "random": Method("random tokens: a lower bound", _random),
    "hybrid": Method("the one of `methods` that pays; if not adaptive, the first with a guess"),
    "merge": Method("the guesses of all `methods` in one tree"),
    "choice": Method("the one of `methods` that a request names; else the one that pays"),
}
