"""Output that cannot be printed, input that cannot be read, numbers without end: the real command.

Each case is a line of bash. What must hold: it ends in time, with the code that docs/cli.md gives,
and says one sentence or nothing; never a traceback.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from forerun.bench.record import write_record
from forerun.engine import LLM
from tests.bench.fakes import made_record
from tests.tiny_model import write_tiny_model

pytestmark = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="asks for the devices and the limits of Linux"
)

OK, MISUSE, DISK_FULL, READER_LEFT = 0, 2, 74, 141
SECONDS = 60  # far more than any of them takes; a file that blocks would take for ever

# $M: a tiny model with fast options; $LEFT: a pipe that nobody reads.
PRELUDE = """
forerun() { exec "$PYTHON" -m forerun "$@"; }
model="-m model --kernels reference --max-tokens 9 --ignore-eos"
"""


@dataclass(frozen=True)
class Attack:
    line: str
    code: int
    said: str = ""  # part of the one sentence on stderr
    out: str = ""  # part of what is on stdout

    def __str__(self) -> str:
        return " ".join(self.line.split())[:70]


def replaced(encoding: str, line: str, out: str) -> Attack:
    return Attack(f"PYTHONIOENCODING={encoding} forerun {line}", OK, out=out)


def refused(line: str, said: str) -> Attack:
    return Attack(f"forerun {line}", MISUSE, said)


UNPRINTABLE = [
    replaced("ascii", "--help", "never changes what the model says"),
    replaced("ascii", "plan --alpha 0.8 --cost 0.1", "2.47x"),
    replaced("cp437", "plan --alpha 0.8 --cost 0.1 --json", '"best_depth": 6'),
    replaced("cp1252", "doctor", "cache folder"),
    replaced("latin-1", "bench --show record.json", "median 0.9x ? 1"),
    replaced("ascii", "generate abcabc $model --trace 2>&1", ">'"),
    replaced("cp437", "generate abc $model --chat-template odd.jinja --chat --json", '"text"'),
    replaced("ascii", "chat $model <<< abc 2>&1", "/reset"),
    Attack("LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 forerun models", OK, out="smollm2-135m"),
    Attack("COLUMNS=² LINES=-1 forerun models", OK, out="smollm2-135m"),
    Attack("COLUMNS=9999999999 forerun --help", OK, out="generate"),
]

FULL = [
    Attack("forerun doctor > /dev/full", DISK_FULL, "No space left on device"),
    Attack("forerun --version > /dev/full", DISK_FULL, "No space left on device"),
    Attack("forerun generate abc $model > /dev/full", DISK_FULL, "No space left on device"),
    Attack("forerun generate abc $model 2> /dev/full", DISK_FULL),
    Attack("forerun plan --plot full.svg", DISK_FULL, "cannot write full.svg: No space left"),
    Attack("forerun bench --show record.json --html /dev/full", DISK_FULL, "/dev/full: No space"),
    Attack("ulimit -f 1; forerun bench --show record.json --html big.html", DISK_FULL, "big.html"),
    Attack("forerun doctor >&$LEFT", READER_LEFT),
    Attack("forerun --help >&$LEFT", READER_LEFT),
    Attack("forerun generate abc $model --trace >&$LEFT", READER_LEFT),
    Attack("forerun generate abc $model --json >&$LEFT", READER_LEFT),
    Attack("forerun models 2>&$LEFT", OK, out="smollm2-135m"),
    Attack("forerun plan 2>&$LEFT", MISUSE),
    Attack("forerun doctor >&-", MISUSE, "standard output is closed"),
    Attack("forerun doctor 1< /dev/null", MISUSE, "cannot write to standard output: Bad file"),
    Attack("forerun generate abc $model 2>&- <&-", OK),
    Attack("forerun plan >&- 2>&- <&-", MISUSE),
    Attack("forerun gate record.json record.json --json > /dev/null", MISUSE, "nobody"),
]

UNREADABLE = [
    refused("generate - $model <&-", "standard input is closed"),
    refused("chat $model <&-", "standard input is closed"),
    refused(r"generate - $model <<< $'a\xff'", "standard input is not text in utf-8"),
    refused(r"chat $model <<< $'a\xff' > /dev/null", "standard input is not text in utf-8"),
    refused("generate - $model < /dev/zero", "longer than 16 MiB"),
    refused("chat $model < /dev/zero > /dev/null", "longer than 16 MiB"),
    *(
        refused(line.format(path=path), said)
        for line in (
            "generate abc $model --chat-template {path}",
            "gate {path} record.json",
            "bench --show {path}",
            "plan --budget {path} smollm2-135m",
        )
        for path, said in (("/dev/zero", "a pipe or a device"), ("fifo", "a pipe or a device"))
    ),
    refused("gate . record.json", "Is a directory"),
    refused("gate record.json big.json", "larger than 256 MiB"),
    refused("generate abc --chat-template big.json", "larger than 16 MiB"),
    refused("generate abc -m fifo", "fifo"),
    refused("generate abc -m /dev/zero", "/dev/zero"),
    refused("generate abc -m odd", "odd/config.json"),
    refused("generate abc -m $LONG", "neither a path nor a pulled model"),
    refused("plan --budget $LONG smollm2-135m", "File name too long"),
    refused("plan --plot $LONG.svg", "File name too long"),
    refused("bench --show record.json --html fifo", "cannot write fifo"),
    refused("bench --show record.json --html .", "cannot write"),
    refused("proof --prompts 1 --record fifo -m model --tokens 1", ""),
]

HOMELESS = [
    Attack("FORERUN_CACHE=~nobody-at-all/x forerun doctor", OK, out="set FORERUN_CACHE"),
    Attack("FORERUN_CACHE=/dev/null/x forerun doctor", OK, out="may not be written"),
    Attack("FORERUN_CACHE=/$LONG forerun doctor", OK, out="File name too long"),
    Attack("FORERUN_CACHE=/$LONG forerun models", MISUSE, "File name too long"),
    Attack("FORERUN_CACHE=/$LONG forerun pull", MISUSE, "File name too long"),
    Attack("FORERUN_CACHE=/$LONG forerun generate abc $model", OK),
    Attack("FORERUN_CACHE=/dev/null forerun pull", MISUSE, "Not a directory"),
    Attack("FORERUN_CACHE=fifo forerun models", OK, out="smollm2-135m"),
    Attack("FORERUN_CACHE='~nobody-at-all/x' forerun generate abc", MISUSE, "home folder"),
    Attack('env -u HOME "$PYTHON" -m forerun models', OK, out="smollm2-135m"),
]

NUMBERS = [
    refused(f"generate abc $model --kv-cache-memory {'9' * 400}", "kv_cache_memory="),
]

MEMORY = [
    Attack("ulimit -v 150000; forerun generate abc $model", MISUSE, "too little memory"),
]

TEXTS = [
    refused(r"generate abc $model --stop $'\xff'", "stop holds a lone surrogate"),
    refused(r"generate $'a\xff' $model", "the prompt holds a lone surrogate"),
    refused(r"chat $model --system $'a\xff'", "--system holds a lone surrogate"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, plain: LLM) -> Path:
    """Where the lines of bash run."""
    found = tmp_path_factory.mktemp("attacks")
    write_tiny_model(found / "model")
    write_tiny_model(found / "odd")
    (found / "odd" / "config.json").unlink()
    os.mkfifo(found / "odd" / "config.json")
    os.mkfifo(found / "fifo")
    write_record(made_record(plain), found / "record.json")
    (found / "full.svg").symlink_to("/dev/full")
    (found / "odd.jinja").write_text("{{ messages[0].content }}", encoding="utf-8")
    with (found / "big.json").open("wb") as big:
        big.truncate(2**28 + 1)
    return found


@pytest.mark.parametrize(
    "attack",
    [*UNPRINTABLE, *FULL, *UNREADABLE, *HOMELESS, *NUMBERS, *MEMORY, *TEXTS],
    ids=str,
)
def test_one_sentence_and_never_a_traceback(folder: Path, attack: Attack) -> None:
    left_reader, left = os.pipe()
    os.close(left_reader)
    unset = ("PYTHONIOENCODING", "PYTHONUTF8", "COLUMNS", "LINES", "XDG_CACHE_HOME")
    environ = {name: value for name, value in os.environ.items() if name not in unset}
    environ |= {"PYTHON": sys.executable, "LEFT": str(left), "LONG": "x" * 5000}
    try:
        done = subprocess.run(
            ["bash", "-c", PRELUDE + attack.line],
            cwd=folder,
            env=environ,
            pass_fds=[left],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
        )
    finally:
        os.close(left)
    errors = done.stderr.decode("utf-8", "replace")
    assert "Traceback" not in errors
    assert done.returncode == attack.code, errors
    if attack.said:
        assert errors.startswith("forerun: ")
        assert errors.count("\n") == 1
        assert attack.said in errors
    elif attack.code != OK:
        assert errors == ""
    assert attack.out in done.stdout.decode("utf-8", "replace")
    if "ENCODING=ascii" in attack.line:
        assert done.stdout.isascii()
