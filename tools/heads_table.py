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
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import torch

from forerun.cli.bench.record_head import record_head
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
    record |= {"commit": asked.commit or record["commit"], "measured": "heads", "kinds": {}}
    for kind in asked.kinds.split(","):
        out = asked.out / kind
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
        if asked.record:
            write_whole(asked.record, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    print(table(record["kinds"]))
    return int(any("error" in found for found in record["kinds"].values()))


def _parsed(args: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--texts", type=Path, help="what the target wrote, as .npz")
    parser.add_argument("--num-texts", type=int, default=2048)
    parser.add_argument("--seconds", type=float, default=12)
    parser.add_argument("--max-len", type=int, default=512)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--out", type=Path, default=Path(tempfile.mkdtemp()))
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


def table(kinds: Mapping[str, Mapping[str, Any]]) -> str:
    """As docs/training.md has it."""
    sound = {kind: found for kind, found in kinds.items() if "error" not in found}
    num_places = max((len(found["alpha"]) for found in sound.values()), default=0)
    places = "".join(f" place {idx + 1} |" for idx in range(num_places))
    lines = [f"| kind | weights | steps |{places} tokens a pass, greedy |"]
    lines.append("|---" * (num_places + 4) + "|")
    for kind, found in sorted(sound.items(), key=lambda each: -each[1]["tokens_per_pass"]):
        alphas = "".join(f" {alpha:.2f} |" for alpha in found["alpha"])
        size = f"{found['num_weights'] / 1e6:.1f} M"
        greedy = found["tokens_per_pass"]
        lines.append(f"| `{kind}` | {size} | {found['steps']} |{alphas} {greedy:.2f} |")
    return "\n".join(lines)


def _written(checkpoint: Checkpoint, target: TorchTarget, asked: argparse.Namespace) -> list[Text]:
    writer = TextWriter(target, load_tokenizer(checkpoint), [], asked.max_len)
    return writer.write(asked.num_texts, _SEED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
