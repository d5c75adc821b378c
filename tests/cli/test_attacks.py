"""The real command against unprintable output, unreadable input and endless numbers.

Each case is a line of bash; cases without shell syntax are forked from one Python process. A case
must end in time, with the exit code of docs/cli.md, and print one sentence or nothing on stderr;
never a traceback.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from string import Template

import pytest

from forerun.bench.records.record import write_json
from forerun.engine import LLM
from tests.bench.fakes import made_record
from tests.tiny_model import EOS, write_tiny_model

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not Path("/dev/full").exists(), reason="asks for the devices and the limits of Linux"
    ),
]

OK, MISUSE, DISK_FULL, READER_LEFT = 0, 2, 74, 141
SECONDS = 60  # far more than any case takes; a file that blocks would take for ever

# $model: a tiny model with options that start fast; $checks: a model that writes only ✓.
OPTIONS = "--kernels reference --max-tokens 9 --ignore-eos"
MODELS = {
    "$model": f"-m model {OPTIONS}",
    "$checks": f"-m checks {OPTIONS} --keep-special --allowed-token-id 30",
}
VALUES = {"LONG": "x" * 5000, "DIGITS": "9" * 2000, "BYTE": "\udcff"}  # bash turns BYTE into 0xff
PRELUDE = 'forerun() { exec "$PYTHON" -m forerun "$@"; }\n'
HOST = """
import json, os, signal, sys
import forerun.bench.records.record, forerun.cli, forerun.engine
from forerun.command import main

with open(sys.argv[1]) as file:
    lines = json.load(file)
codes = []
for idx, argv in enumerate(lines):
    if not (child := os.fork()):
        for fd in (1, 2):
            os.dup2(os.open(f"{idx}.{fd}", os.O_CREAT | os.O_WRONLY), fd)
        signal.alarm(60)
        sys.argv = argv
        main()
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(json.dumps(codes))
"""


@dataclass(frozen=True)
class Attack:
    line: str
    code: int
    said: str = ""  # part of the one sentence on stderr
    out: str = ""  # part of what is on stdout
    encoding: str = "utf-8"

    @property
    def argv(self) -> list[str] | None:
        """The words of the command line, or None if it takes a shell to run it."""
        if not self.line.startswith("forerun ") or set(self.line) & set("<>&|;"):
            return None
        return [Template(word).substitute(VALUES) for word in shlex.split(filled_in(self.line))]

    def __str__(self) -> str:
        return " ".join(self.line.split())[:70]


def filled_in(line: str) -> str:
    for name, words in MODELS.items():
        line = line.replace(name, words)
    return line


def replaced(encoding: str, line: str, out: str) -> Attack:
    """An attack in which characters that the encoding lacks are replaced, and nothing fails."""
    return Attack(f"PYTHONIOENCODING={encoding} forerun {line}", OK, out=out, encoding=encoding)


def refused(line: str, said: str) -> Attack:
    return Attack(f"forerun {line}", MISUSE, said)


UNPRINTABLE = [
    replaced("ascii", "--help", "generate"),
    replaced("ascii", "plan --alpha 0.8 --cost 0.1", "2.47x       1.92x         0.25x  < best"),
    replaced("cp1252", "doctor", "cache folder"),
    replaced("latin-1", "bench show record.json", "× plain [95 %]"),
    replaced("ascii", "generate abcabc $model --trace 2>&1", " >'"),
    replaced("cp437", "generate abc $checks", "+++"),
    replaced("ascii", "generate abc $checks --json", r'"text": "\u2713\u2713'),
    replaced("ascii", "chat $model <<< abc 2>&1", "/reset"),
    Attack("LC_ALL=C PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 forerun models", OK, out="smollm2-135m"),
    Attack("COLUMNS=² LINES=-1 forerun models", OK, out="smollm2-135m"),
    Attack("COLUMNS=9999999999 forerun --help", OK, out="generate"),
]

NOT_WRITTEN = [
    Attack("forerun doctor > /dev/full", DISK_FULL, "No space left on device"),
    Attack("forerun generate abc $model 2> /dev/full", DISK_FULL),
    Attack("forerun plan --plot full.svg", DISK_FULL, "cannot write full.svg: No space left"),
    Attack("forerun bench show record.json --html full.svg", DISK_FULL, "full.svg: No space"),
    Attack("ulimit -f 1; forerun bench show record.json --html big.html", DISK_FULL, "too large"),
    Attack("forerun doctor >&$LEFT", READER_LEFT),
    Attack("forerun --help >&$LEFT", READER_LEFT),
    Attack("forerun generate abc $model --trace >&$LEFT", READER_LEFT),
    Attack("set -o pipefail; yes abc | forerun chat $model 2> /dev/null | head -1", READER_LEFT),
    Attack("forerun models 2>&$LEFT", OK, out="smollm2-135m"),
    Attack("forerun plan 2>&$LEFT", MISUSE),
    Attack("forerun doctor >&-", MISUSE, "standard output is closed"),
    Attack("forerun doctor 1< /dev/null", MISUSE, "cannot write to standard output: Bad file"),
    Attack("forerun generate abc $model 2>&- <&-", OK),
    Attack("forerun plan >&- 2>&- <&-", MISUSE),
    refused("bench show record.json --html fifo", "cannot write fifo"),
    refused("bench show record.json --html $LONG", "File name too long"),
    Attack("forerun bench show record.json --html /dev/stdout", OK, out="<html"),
]

UNREADABLE = [
    refused("generate - $model <&-", "standard input is closed"),
    refused("chat $model <&-", "standard input is closed"),
    refused("generate - $model <<< a$BYTE", "standard input is not text in utf-8"),
    refused("chat $model <<< a$BYTE > /dev/null", "standard input is not text in utf-8"),
    refused("generate - $model < /dev/zero", "longer than 16 MiB"),
    refused("chat $model < /dev/zero > /dev/null", "longer than 16 MiB"),
    refused("generate abc --chat-template fifo", "a pipe or a device"),
    refused("generate abc --chat-template big.json", "larger than 16 MiB"),
    refused("gate fifo record.json", "a pipe or a device"),
    refused("gate record.json big.json", "larger than 256 MiB"),
    refused("bench show /dev/zero", "a pipe or a device"),
    refused("plan --budget fifo smollm2-135m", "a pipe or a device"),
    refused("plan --budget $LONG smollm2-135m", "File name too long"),
    refused("generate abc -m /dev/zero", "/dev/zero does not exist"),
    refused("generate abc -m pipes", "pipes holds no model"),
    refused("generate abc -m $LONG", "neither a path nor a pulled model"),
]

HOMELESS = [
    Attack("FORERUN_CACHE='~nobody-at-all/x' forerun doctor", OK, out="set FORERUN_CACHE"),
    Attack("FORERUN_CACHE='~nobody-at-all/x' forerun models", MISUSE, "home folder"),
    Attack("FORERUN_CACHE=/$LONG forerun doctor", OK, out="File name too long"),
    Attack("FORERUN_CACHE=/$LONG forerun models", MISUSE, "File name too long"),
    Attack("FORERUN_CACHE=/$LONG forerun pull", MISUSE, "File name too long"),
    Attack("FORERUN_CACHE=/$LONG forerun generate abc $model", OK),
    Attack("FORERUN_CACHE=/dev/null forerun pull", MISUSE, "Not a directory"),
    Attack("FORERUN_CACHE=fifo forerun models", OK, out="smollm2-135m"),
    Attack("unset HOME; forerun models", OK, out="smollm2-135m"),
]

LIMITS = [
    Attack("ulimit -v 100000; forerun --help", MISUSE, "too little memory"),
    Attack("ulimit -v 300000; forerun generate abc -m model", MISUSE, "too little memory"),
    Attack("NUMBA_NUM_THREADS=0 forerun generate a -m model --kernels cpu", MISUSE, "must be > 0"),
    Attack("NUMBA_NUM_THREADS=0 forerun bench kernels", MISUSE, "mend the NUMBA_ variables"),
    refused("generate abc $model --kv-cache-memory $DIGITS", "kv_cache_memory="),
    refused("generate abc $model --kv-cache-memory 99999GB", "no memory"),
    refused('generate abc $model --logit-bias "{\\"1\\": $DIGITS}"', "--logit-bias must be"),
    refused('generate abc --speculative-config "$DIGITS$DIGITS$DIGITS"', "not JSON"),
    refused("generate abc $model --seed $DIGITS", "at most 64 bits"),
    refused("plan --alpha 0.5 --cost 0.1 --max-depth $DIGITS", "give at most 256"),
]

TEXTS = [
    refused("generate abc $model --stop $BYTE", "stop holds a lone surrogate"),
    refused("generate a$BYTE $model", "the prompt holds a lone surrogate"),
    refused("chat $model --system a$BYTE", "--system holds a lone surrogate"),
    refused("generate abc -m $BYTE", "neither a path nor a pulled model"),
]

ATTACKS = [*UNPRINTABLE, *NOT_WRITTEN, *UNREADABLE, *HOMELESS, *LIMITS, *TEXTS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, plain: LLM) -> Path:
    """The folder in which the lines of bash run."""
    found = tmp_path_factory.mktemp("attacks")
    write_tiny_model(found / "model")
    tokenizer = write_tiny_model(found / "checks") / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text().replace(EOS, "✓"), encoding="utf-8")
    (found / "pipes").mkdir()
    os.mkfifo(found / "pipes" / "config.json")
    os.mkfifo(found / "fifo")
    write_json(found / "record.json", made_record(plain).as_dict())
    (found / "full.svg").symlink_to("/dev/full")
    with (found / "big.json").open("wb") as big:
        big.truncate(2**28 + 1)
    return found


@dataclass(frozen=True)
class Ending:
    code: int
    out: bytes
    err: bytes


@pytest.fixture(scope="module")
def forked(folder: Path) -> dict[Attack, Ending]:
    """Run all attacks that need no shell in one forking process; return how each ended."""
    attacks = [attack for attack in ATTACKS if attack.argv is not None]
    (folder / "lines.json").write_text(json.dumps([attack.argv for attack in attacks]))
    host = subprocess.run(
        [sys.executable, "-c", HOST, "lines.json"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        check=True,
    )
    return {
        attack: Ending(code, *((folder / f"{idx}.{fd}").read_bytes() for fd in (1, 2)))
        for idx, (attack, code) in enumerate(zip(attacks, json.loads(host.stdout), strict=True))
    }


def in_bash(folder: Path, line: str) -> Ending:
    unread, left = os.pipe()
    os.close(unread)
    unset = ("PYTHONIOENCODING", "PYTHONUTF8")
    environ = {name: value for name, value in os.environ.items() if name not in unset}
    environ |= {**VALUES, "PYTHON": sys.executable, "LEFT": str(left)}
    try:
        done = subprocess.run(
            ["bash", "-c", PRELUDE + filled_in(line)],
            cwd=folder,
            env=environ,
            pass_fds=[left],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
        )
    finally:
        os.close(left)
    return Ending(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_one_sentence_and_never_a_traceback(
    folder: Path, forked: dict[Attack, Ending], attack: Attack
) -> None:
    ending = forked.get(attack) or in_bash(folder, attack.line)
    errors = ending.err.decode("utf-8", "replace")
    assert "Traceback" not in errors
    assert ending.code == attack.code, errors
    if attack.said:
        *before, sentence = errors.splitlines()
        assert sentence.startswith("forerun: ")
        assert attack.said in sentence
        assert before in ([], ["model: /reset starts over, /bye leaves"])
    elif attack.code != OK:
        assert errors == ""
    assert attack.out in ending.out.decode(attack.encoding)
