"""`make peers`: what it needs, and what it says if that is missing."""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

TOOL: dict[str, Any] = runpy.run_path(str(Path(__file__).parents[3] / "tools" / "build_peers.py"))


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the whole PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_a_missing_tool_is_one_sentence(
    tools: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert TOOL["main"](str(tmp_path / "peers")) == 2
    assert "cmake is not here; install cmake, then run `make peers`" in capsys.readouterr().err
    program(tools, "cmake", "")
    assert TOOL["main"](str(tmp_path / "peers")) == 2
    assert "c++ is not here; install a C++ compiler" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("JOBS", "abc", "JOBS=abc is no number of compilers; give 1 or more."),
        ("JOBS", "0", "JOBS=0 is no number of compilers; give 1 or more."),
        ("PEER_FLAGS", '"', "PEER_FLAGS cannot be split (No closing quotation); mend its quotes."),
    ],
)
def test_a_bad_variable_is_one_sentence(
    variable: str, value: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv(variable, value)
    assert TOOL["main"](str(tmp_path / "peers")) == 2
    assert capsys.readouterr().err == f"make peers: {said}\n"


def test_a_folder_that_cannot_be_made_is_one_sentence(
    tools: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("cmake", "c++"):
        program(tools, name, "")
    (tmp_path / "file").touch()
    assert TOOL["main"](str(tmp_path / "file" / "peers")) == 2
    assert "give a folder that can be written." in capsys.readouterr().err


def test_a_failed_step_names_its_log(tmp_path: Path) -> None:
    log = tmp_path / "step.log"
    command = [sys.executable, "-c", "print('no such flag'); raise SystemExit(1)"]
    with pytest.raises(TOOL["BuildFailed"], match=r"failed \(no such flag\); read .*step.log"):
        TOOL["run"](command, log)


def test_git_does_not_answer_for_this_repository(tmp_path: Path) -> None:
    log = tmp_path / "step.log"
    TOOL["run"](
        [sys.executable, "-c", "import os; print(os.environ['GIT_CEILING_DIRECTORIES'])"], log
    )
    assert log.read_text().strip() == str(tmp_path)


def test_what_was_built_says_how(
    tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = (
        "import pathlib, sys\n"
        "if '--build' in sys.argv:\n"
        "    folder = pathlib.Path(sys.argv[sys.argv.index('--build') + 1]) / 'bin'\n"
        "    folder.mkdir(parents=True)\n"
        "    for name in ('server', 'bench', 'perplexity'):\n"
        "        (folder / f'llama-{name}').write_text('built')\n"
    )
    program(tools, "cmake", make)
    program(tools, "c++", "")
    source = tmp_path / "source"
    amx = source / "ggml" / "src" / "ggml-cpu" / "amx" / "mmq.cpp"
    amx.parent.mkdir(parents=True)
    amx.write_text("    _tile_loadconfig(&tc);\n")
    monkeypatch.setitem(TOOL["build"].__globals__, "fetch", lambda _: source)
    folder = tmp_path / "peers"
    TOOL["build"](folder, 1, ["-DA=1"])
    programs = ["llama-bench", "llama-perplexity", "llama-server"]
    assert sorted(os.listdir(folder)) == ["about.json", *programs]
    about = json.loads((folder / "about.json").read_text())
    assert (about["build"], about["flags"]) == ("native build", ["-DA=1"])
    mended = amx.read_text()
    assert mended.strip() == 'asm volatile("" : : "r"(&tc) : "memory"); _tile_loadconfig(&tc);'
    TOOL["build"](folder, 1, ["-DGGML_NATIVE=OFF"])
    assert json.loads((folder / "about.json").read_text())["build"] == "build"
