"""The commands `forerun pull` and `forerun models`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from forerun.cli.models import models
from forerun.cli.pull import pull
from forerun.errors import InvalidOption

APP = typer.Typer()
APP.command()(pull)
APP.command()(models)


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path))
    folder = tmp_path / "models" / "smollm2-135m"
    folder.mkdir(parents=True)
    (folder / "m.gguf").write_bytes(bytes(2_000_000))
    return folder


def test_models_lists_what_is_here_and_what_could_be(shelf: Path) -> None:
    rows = json.loads(CliRunner().invoke(APP, ["models", "--json"]).stdout)
    assert rows[0]["name"] == "smollm2-135m"
    assert (rows[0]["path"], rows[0]["bytes"]) == (str(shelf / "m.gguf"), 2_000_000)
    assert {row["name"] for row in rows[1:]} >= {"stories15m", "tinyllama-1.1b"}
    table = CliRunner().invoke(APP, ["models"]).stdout
    assert "2 MB" in table


def test_pull_prints_the_path(shelf: Path) -> None:
    assert CliRunner().invoke(APP, ["pull"]).stdout.strip() == str(shelf / "m.gguf")


def test_pull_refuses_unknown_names(shelf: Path) -> None:
    result = CliRunner().invoke(APP, ["pull", "smollm"])
    assert isinstance(result.exception, InvalidOption)
    assert shelf.exists()
