"""α at each place, every kind of head on the same texts for the same time:

    python -m tools.heads_table --texts texts.npz --seconds 12 --record bench/records/heads.json

The first `--num-texts` are taken; without `--texts` the target writes so many. Heads are left in
`--out`.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from forerun.bench.views.reports import report_sheet
from forerun.cli.bench.record_head import record_head
from forerun.cli.terminal.screen import screen
from forerun.drafters.heads import HeadFolder
from forerun.files import write_whole
from forerun.models.opening import load_tokenizer, open_checkpoint
from forerun.models.weights.checkpoint import Checkpoint
from forerun.training.options import KINDS, TrainOptions
from forerun.training.text_file import load_texts
from forerun.training.texts import Text, TextWriter
from forerun.training.torch_target import TorchTarget
from forerun.training.trainer import Trainer

_SEED: Final = 11  # of texts that are written here
_NUM_FIRST: Final = 4  # steps until all is compiled and recorded, which no time is counted of


def main(args: Sequence[str]) -> int:
    asked = _parsed(args)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    checkpoint = open_checkpoint(asked.model)
    target = TorchTarget(checkpoint, device, torch.bfloat16 if device == "cuda" else torch.float32)
    texts = (
        load_texts(asked.texts, checkpoint.config.vocab_size)
        if asked.texts
        else _written(checkpoint, target, asked)
    )
    texts = texts[: asked.num_texts]
    settings = {
        "seconds": asked.seconds,
        "num_texts": len(texts),
        "num_tokens": sum(len(text.tokens) for text in texts),
        "max_len": asked.max_len,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
    }
    record = record_head(asked.model, settings, {"torch": torch.__version__})
    record |= {
        "commit": asked.commit or record["commit"],
        "measured": "heads",
        "is_complete": False,
        "kinds": {},
    }
    kinds, folder = asked.kinds.split(","), asked.out or Path(tempfile.mkdtemp())
    for kind in kinds:
        out = folder / kind
        options = TrainOptions(
            kind=kind, out=out, minutes=asked.seconds / 60, max_len=asked.max_len, **asked.more
        )
        began = time.monotonic()
        try:
            record["kinds"][kind] = _trained(checkpoint, options, texts, target)
        except Exception as error:  # the others are worth having
            traceback.print_exc()
            record["kinds"][kind] = {"error": f"{type(error).__name__}: {error}"[:300]}
        gc.collect()
        torch.cuda.empty_cache()
        print(f"{kind}: {time.monotonic() - began:.1f} s in all", flush=True)
        record["is_complete"] = len(record["kinds"]) == len(kinds)
        if asked.record:
            write_whole(asked.record, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    screen().print(report_sheet(record))
    return int(any("error" in found for found in record["kinds"].values()))


def _parsed(args: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--texts", type=Path, help="what the target wrote, as .npz")
    parser.add_argument("--num-texts", type=int, default=2048)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--max-len", type=int, default=512)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--out", type=Path, help="where the heads stay; else in a new folder")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--commit", help="of the code, where there is no repository")
    parser.add_argument("--more", type=json.loads, default={}, help="further options, as JSON")
    return parser.parse_args(args)


def _trained(
    checkpoint: Checkpoint, options: TrainOptions, texts: Sequence[Text], target: TorchTarget
) -> dict[str, Any]:
    trainer = Trainer(checkpoint, [], options, print, texts, target)
    trainer.take_first_steps(_NUM_FIRST)
    after = trainer.run()
    (call,) = json.loads((options.out / "training.json").read_text())["calls"]
    return {
        "num_weights": HeadFolder(options.out).num_weights,
        **{name: call[name] for name in ("seconds", "steps", "tokens", "learning_rate")},
        **after,
    }


def _written(checkpoint: Checkpoint, target: TorchTarget, asked: argparse.Namespace) -> list[Text]:
    writer = TextWriter(target, load_tokenizer(checkpoint), [], asked.max_len)
    return writer.write(asked.num_texts, _SEED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
