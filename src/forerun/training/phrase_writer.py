"""Writing a book of phrases, which are counted in texts that the target writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import torch

from forerun.drafters.heads import model_fingerprint
from forerun.drafters.phrases import PhraseBook, count_phrases
from forerun.drafters.phrases.book import FILE, Owner
from forerun.errors import InvalidOption
from forerun.models.opening import load_tokenizer
from forerun.models.text.compatibility import tokenizer_hash
from forerun.models.weights.checkpoint import Checkpoint
from forerun.training.options import TrainOptions
from forerun.training.text_file import check_place, load_texts, save_texts
from forerun.training.texts import Text, TextWriter
from forerun.training.torch_target import TorchTarget
from forerun.training.trainer import Progress, torch_device

_NUM_HELD_OUT: Final = 128  # texts that are not counted, to try the book on


def write_book(
    checkpoint: Checkpoint,
    prompts: Sequence[Sequence[str]],
    options: TrainOptions,
    report: Callable[[str], None],
) -> None:
    """Have the target write texts until the time is over or ^C, then write the book.

    It replaces a book that is in `options.out`.
    """
    _require_own(options.out)
    if options.texts is not None:
        check_place(options.texts)
    device, tokenizer = torch_device(options.device), load_tokenizer(checkpoint)
    vocab_size = checkpoint.config.vocab_size
    report(f"loading the target onto {device}")
    target = TorchTarget(checkpoint, device, torch.bfloat16 if device == "cuda" else torch.float32)
    writer = TextWriter(target, tokenizer, prompts, options.max_len)
    texts, num_at_once = list[Text](), options.num_written or (2048 if device == "cuda" else 256)
    if options.texts is not None and options.texts.exists():
        texts = load_texts(options.texts, vocab_size)
    num_kept, progress = len(texts), Progress(options)
    try:
        while progress.share < 1 or not texts:
            seed = options.seed * 1_000_003 + len(texts)
            new = writer.write(num_at_once, seed)
            texts += new
            progress.num_tokens += sum(len(text.tokens) - text.answer for text in new)
            report(
                f"{progress.seconds:6.0f} s  {len(texts)} texts  {progress.num_tokens:,} tokens of "
                "answers in this call"
            )
    except KeyboardInterrupt:
        report("interrupted; counting what there is")
    if options.texts is not None and len(texts) > num_kept:
        save_texts(options.texts, texts)
    if len(texts) <= _NUM_HELD_OUT:
        raise InvalidOption(
            f"{len(texts)} texts are too few to count; give it more --minutes or --tokens."
        )
    owner = Owner(model_fingerprint(checkpoint), tokenizer_hash(tokenizer), vocab_size)
    book = book_of(texts[_NUM_HELD_OUT:], owner)
    book.save(options.out)
    share = share_right(book, texts[:_NUM_HELD_OUT])
    report(f"{len(book):,} contexts; of {_NUM_HELD_OUT} other texts {share:.0%} was guessed right")


def _require_own(folder: Path) -> None:
    """Raise unless `folder` is missing, empty, or has nothing but a book."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set[str]()
    if (folder.exists() and not folder.is_dir()) or names - {FILE, "README.md"}:
        raise InvalidOption(f"{folder} is, or has, something else than phrases; choose another.")


def book_of(texts: Sequence[Text], owner: Owner) -> PhraseBook:
    tokens = np.concatenate([np.array(text.tokens, np.int64) for text in texts])
    lengths = np.array([len(text.tokens) for text in texts])
    answers = np.array([text.answer for text in texts])
    return count_phrases(tokens, np.cumsum(lengths) - lengths, answers, owner)


def share_right(book: PhraseBook, texts: Sequence[Text]) -> float:
    """Return the share of all answers' tokens that the book's first guess gets right."""
    rights = [
        (found := book.after(text.tokens[max(0, end - 8) : end])) is not None
        and found[0] == text.tokens[end]
        for text in texts
        for end in range(text.answer, len(text.tokens))
    ]
    return sum(rights) / max(1, len(rights))
