"""Train every kind of head on the same texts for the same time, and record α at each place:

    python -m tools.heads_table --texts texts.npz --seconds 12 --record bench/records/heads.json

The first `--num-texts` texts are used; without `--texts` the target generates as many. The heads
stay in `--out`. With `--side-by-side` each kind has its own process; all start together once all
have compiled, and share the device and the time.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any, Final

import torch

from forerun.bench.views.reports import report_sheet
from forerun.cli.bench.record_head import record_head
from forerun.cli.terminal.screen import screen
from forerun.drafters.heads import HeadFolder
from forerun.files import write_whole
from forerun.models.opening import load_tokenizer, open_checkpoint
from forerun.training.options import HEADS, TrainOptions
from forerun.training.text_file import load_texts, save_texts
from forerun.training.texts import Text, TextWriter
from forerun.training.torch_target import TorchTarget
from forerun.training.trainer import Trainer

Result = tuple[str, dict[str, Any]]  # a kind and its figures

_SEED: Final = 11  # of texts that are generated here
_NUM_FIRST: Final = 4  # untimed steps, until all is compiled and recorded


def main(args: Sequence[str]) -> int:
    asked = _parsed(args)
    if not asked.texts:
        asked.texts = _written(asked)
    asked.out = asked.out or Path(tempfile.mkdtemp())
    kinds = asked.kinds.split(",")
    record = _head(asked)
    for kind, found in (
        _side_by_side(asked, kinds) if asked.side_by_side else _in_turn(asked, kinds)
    ):
        record["kinds"][kind] = found
        record["is_complete"] = len(record["kinds"]) == len(kinds)
        if asked.record:
            write_whole(asked.record, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    screen().print(report_sheet(record))
    return int(any("error" in found for found in record["kinds"].values()))


def _head(asked: argparse.Namespace) -> dict[str, Any]:
    texts = _texts(asked)
    settings = {
        "seconds": asked.seconds,
        "num_texts": len(texts),
        "num_tokens": sum(len(text.tokens) for text in texts),
        "max_len": asked.max_len,
        "side_by_side": asked.side_by_side,
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
    }
    record = record_head(asked.model, settings, {"torch": torch.__version__})
    more = {"commit": asked.commit or record["commit"], "measured": "heads"}
    return record | more | {"is_complete": False, "kinds": {}}


def _in_turn(asked: argparse.Namespace, kinds: Sequence[str]) -> Iterator[Result]:
    target, texts = _target(asked.model), _texts(asked)
    for kind in kinds:
        yield kind, _tried(kind, asked, texts, target)


def _side_by_side(asked: argparse.Namespace, kinds: Sequence[str]) -> Iterator[Result]:
    context = multiprocessing.get_context("spawn")
    told, start = context.SimpleQueue(), context.Barrier(len(kinds))
    for kind in kinds:
        context.Process(target=_tell, args=(told, start, kind, asked), daemon=True).start()
    for _ in kinds:
        yield told.get()


def _tell(told: Any, start: Any, kind: str, asked: argparse.Namespace) -> None:
    """Try one kind in this process, and send the result to the parent."""
    found = _tried(kind, asked, _texts(asked), _target(asked.model), start)
    told.put((kind, found))


def _tried(
    kind: str,
    asked: argparse.Namespace,
    texts: Sequence[Text],
    target: TorchTarget,
    start: Any = None,
) -> dict[str, Any]:
    """Train one kind; return its figures, or its error, which must not stop the other kinds."""
    began, minutes = time.monotonic(), asked.seconds / 60
    try:
        options = TrainOptions(
            kind=kind, out=asked.out / kind, minutes=minutes, max_len=asked.max_len, **asked.more
        )
        found = _trained(options, asked.model, texts, target, start)
    except Exception as error:
        traceback.print_exc()
        if start is not None:
            start.abort()  # the others do not wait for this one
        found = {"error": f"{type(error).__name__}: {error}"[:300]}
    gc.collect()
    torch.cuda.empty_cache()
    print(f"{kind}: {time.monotonic() - began:.1f} s in all", flush=True)
    return found


def _target(model: str) -> TorchTarget:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    return TorchTarget(open_checkpoint(model), device, dtype)


def _texts(asked: argparse.Namespace) -> list[Text]:
    vocab_size = open_checkpoint(asked.model).config.vocab_size
    return load_texts(asked.texts, vocab_size)[: asked.num_texts]


def _parsed(args: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--texts", type=Path, help="what the target wrote, as .npz")
    parser.add_argument("--num-texts", type=int, default=2048)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--max-len", type=int, default=512)
    parser.add_argument("--kinds", default=",".join(HEADS))
    parser.add_argument("--out", type=Path, help="where the heads stay; else in a new folder")
    parser.add_argument("--side-by-side", action="store_true", help="a process for each kind")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--commit", help="of the code, where there is no repository")
    parser.add_argument("--more", type=json.loads, default={}, help="further options, as JSON")
    return parser.parse_args(args)


def _trained(
    options: TrainOptions, model: str, texts: Sequence[Text], target: TorchTarget, start: Any
) -> dict[str, Any]:
    trainer = Trainer(open_checkpoint(model), [], options, print, texts, target)
    trainer.take_first_steps(_NUM_FIRST)
    if start is not None:
        with suppress(BrokenBarrierError):  # another kind failed
            start.wait()
        trainer.take_first_steps(1)
    after = trainer.run()
    (call,) = json.loads((options.out / "training.json").read_text())["calls"]
    return {
        "num_weights": HeadFolder(options.out).num_weights,
        **{name: call[name] for name in ("seconds", "steps", "tokens", "learning_rate")},
        **after,
    }


def _written(asked: argparse.Namespace) -> Path:
    """Let the target generate the texts, the same for all kinds; return their file."""
    target, tokenizer = _target(asked.model), load_tokenizer(open_checkpoint(asked.model))
    texts = TextWriter(target, tokenizer, [], asked.max_len).write(asked.num_texts, _SEED)
    path = Path(tempfile.mkdtemp()) / "texts.npz"
    save_texts(path, texts)
    return path


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
