"""`forerun train`: train a drafter for one target, on text that the target generates."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from forerun.cli.options.engine import DEFAULT_MODEL
from forerun.cli.options.shared import bundle, takes
from forerun.cli.terminal.output import say
from forerun.errors import InvalidOption, MissingExtra, is_lack_of_memory
from forerun.files import MIB, read_text
from forerun.models.download.store import default_cache_dir
from forerun.training.options import PHRASES, TrainOptions

_MAX_BYTES: Final = 128 * MIB  # largest file of prompts


@takes(options=bundle(TrainOptions))
def train(
    options: TrainOptions,
    model: Annotated[
        str, typer.Option("--model", "-m", help="Target model, as for `forerun generate`.")
    ] = DEFAULT_MODEL,
    prompts: Annotated[
        list[Path] | None,
        typer.Option(
            "--prompts",
            help='File of prompts: text lines, or JSON lines with "prompt" or "turns"; repeatable.',
        ),
    ] = None,
) -> None:
    """Train a drafter for a target model, on texts that the target generates itself.

    Run it again with the same folder to continue. ^C saves what was learned.
    """
    asked = [prompt for path in prompts or () for prompt in read_prompts(path)]
    if find_spec("torch") is None:
        raise MissingExtra("training", "train")
    from forerun.models.opening import open_checkpoint
    from forerun.training.phrase_writer import write_book
    from forerun.training.trainer import Trainer

    checkpoint = open_checkpoint(model, default_cache_dir())
    try:
        if options.kind == PHRASES:
            write_book(checkpoint, asked, options, say)
        else:
            Trainer(checkpoint, asked, options, say).run()
    except (MemoryError, RuntimeError) as error:
        if not is_lack_of_memory(error):
            raise
        raise InvalidOption(
            "there is too little memory for this training; lower --batch-len, --num-written or "
            f"--max-len, or free some. {options.out} is as it was last saved."
        ) from None
    say(
        f"wrote {options.out}; try it: forerun generate --model {model} --device cpu "
        "--speculative-config "
        f'\'{{"method": "{options.kind}", "model": "{options.out}"}}\''
    )


def read_prompts(path: Path) -> list[list[str]]:
    """Return each line's user turns: `turns` of a JSON object, as in MT-bench, or its `prompt`."""
    try:
        lines = [line for line in read_text(path, _MAX_BYTES).splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidOption(f"cannot read {path} ({error}); give a text file.") from None
    found = [_prompt(line) for line in lines]
    if not found or None in found:
        raise InvalidOption(f'{path} must contain lines of text, or JSON objects with "prompt".')
    return [prompt for prompt in found if prompt is not None]


def _prompt(line: str) -> list[str] | None:
    if not line.startswith("{"):
        return [line]
    try:
        values = json.loads(line)
    except ValueError:
        return None
    found = values.get("turns") or [values.get("prompt")]
    is_known = isinstance(found, list) and all(isinstance(turn, str) for turn in found)
    return found if is_known else None
