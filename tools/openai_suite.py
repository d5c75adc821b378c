"""Run the test suite of OpenAI's Python client against our server: make openai-suite

    .venv/bin/python tools/openai_suite.py [folder] [--json bench/records/openai-suite.json]

The tests come with the source distribution of the installed client version. The folder
(build/openai-suite by default) receives them and an environment for them. They were written for a
mock that answers everything, so those of routes and fields that we do not have fail. Each failure
must be explained by a line of `EXPLAINED`; one that is not makes the exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
import venv
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree

from forerun.bench.records.record import write_json
from forerun.cli.bench.record_head import record_head

MODEL: Final = "smollm2-135m"
KEY: Final = "My API Key"  # that the suite sends
NAMES: Final = ("gpt-6-astra", "gpt-3.5-turbo-instruct")  # of models in the suite
PARTS: Final = ("test_models.py", "test_completions.py", "chat", "test_responses.py", "responses")
NEEDS: Final = ("pytest", "pytest-asyncio", "rich", "aiohttp", "httpx-aiohttp")
_START_SECONDS: Final = 120

_STORED = "an answer by an id that nobody was given: a server that stores answers says 404, too"
# Patterns of failures, and why they are not defects; the first match counts.
EXPLAINED: Final = (
    (r"there is nothing at /v1/responses/compact;", "no compaction of conversations"),
    (r"there is nothing at /v1/(responses|chat/completions)/", _STORED),
    (r"GET is not for /v1/chat/completions;", "answers that were stored are listed; none is"),
    (r"DELETE is not for /v1/models/", "models are not deleted over HTTP"),
    (r"input is missing;", "a response to nothing: the body is empty, and `input` is needed"),
    (
        r"(best_of|audio|background|conversation) is not supported here",
        "all parameters at once, among them fields that are refused: best_of, suffix, audio, "
        "functions, moderation, web_search_options, background, conversation",
    ),
)


class SuiteFailed(Exception):
    """The suite could not run; the message says what to do."""


def prepare(folder: Path, client: str) -> tuple[Path, Path]:
    """Return the interpreter that runs the suite, and the folder with `tests`."""
    source, python = folder / f"openai-{client}", folder / "venv" / "bin" / "python"
    if not (source / "tests").is_dir():
        print(f"fetching the source of openai {client}", flush=True)
        pip = (sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "openai")
        _run(*pip, "--dest", str(folder), f"openai=={client}")
        with tarfile.open(folder / f"openai-{client}.tar.gz") as tar:
            tar.extractall(folder, filter="data")
    if not python.exists():
        print("an environment for it", flush=True)
        venv.create(folder / "venv", with_pip=True)
        _run(str(python), "-m", "pip", "install", "-q", f"openai=={client}", *NEEDS)
    return python, source


def _run(*command: str) -> None:
    if subprocess.run(command).returncode != 0:
        raise SuiteFailed(f"{' '.join(command[:6])} … failed; mend what it says and try again.")


@contextmanager
def serving() -> Iterator[str]:
    """Run a server with short answers, and the names and the key that the suite uses."""
    names = [part for name in NAMES for part in ("--served-model-name", name)]
    options = ["--port", "0", "--api-key", KEY, "--max-answer-tokens", "16", "--no-access-log"]
    command = [sys.executable, "-m", "forerun", "serve", MODEL, *options, *names]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().removeprefix("listening on ").strip()
        deadline = time.monotonic() + _START_SECONDS
        while not _is_ready(address):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SuiteFailed("the server did not start; read what it says above.")
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait()


def _is_ready(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/ready") as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ValueError):
        return False


def run_suite(python: Path, source: Path, address: str) -> dict[str, str | None]:
    """Return the message of each test; None if it passed."""
    report = source.parent / "report.xml"
    tests = [f"tests/api_resources/{part}" for part in PARTS]
    options = ["-q", "--tb=line", "-o", "addopts=", "-p", "no:cacheprovider", "--no-summary"]
    subprocess.run(
        [python.absolute(), "-m", "pytest", *options, f"--junitxml={report.absolute()}", *tests],
        cwd=source,
        env={**os.environ, "TEST_API_BASE_URL": f"{address}/v1", "PYTHONPATH": ""},
    )
    return dict(_said(case) for case in ElementTree.parse(report).iter("testcase"))


def _said(case: ElementTree.Element) -> tuple[str, str | None]:
    name = f"{case.get('classname', '').removeprefix('tests.api_resources.')}.{case.get('name')}"
    for kind in ("failure", "error", "skipped"):
        if (found := case.find(kind)) is not None:
            return name, f"{kind}: {found.get('message', '')}".splitlines()[0]
    return name, None


def reason_of(said: str) -> str | None:
    return next((reason for pattern, reason in EXPLAINED if re.search(pattern, said)), None)


def summed_up(said: dict[str, str | None]) -> dict[str, Any]:
    failed = {name: words for name, words in said.items() if words is not None}
    reasons = {name: reason_of(words) for name, words in failed.items()}
    by_reason = Counter(reason for reason in reasons.values() if reason is not None)
    passed = [name for name in said if name not in failed]
    return {
        "num_tests": len(said),
        "num_passed": len(passed),
        "num_passed_without_a_server": sum("path_params" in name for name in passed),
        "failures": dict(by_reason.most_common()),
        "unexplained": {n: failed[n] for n, reason in reasons.items() if reason is None},
        "by_file": {
            part: {
                "num_tests": sum(_is_of(name, part) for name in said),
                "num_passed": sum(_is_of(name, part) for name in passed),
            }
            for part in PARTS
        },
    }


def _is_of(name: str, part: str) -> bool:
    return name.startswith(f"{part.removesuffix('.py')}.")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=Path("build/openai-suite"))
    parser.add_argument("--json", type=Path, help="write a record")
    options = parser.parse_args(arguments)
    client = version("openai")
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        python, source = prepare(options.folder, client)
        with serving() as address:
            found = summed_up(run_suite(python, source, address))
    except SuiteFailed as error:
        print(f"openai-suite: {error}", file=sys.stderr)
        return 2
    if options.json is not None:
        head = record_head(MODEL, {"parts": list(PARTS)}, {"openai": client})
        write_json(options.json, {**head, "measured": "openai-suite", "is_complete": True, **found})
    print(json.dumps(found, indent=1, ensure_ascii=False))
    return 1 if found["unexplained"] else 0


if __name__ == "__main__":
    sys.exit(main())
