"""An option of the engine is written once, and is everywhere."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from forerun import LLM, EngineConfig
from forerun.cli import app
from forerun.cli.options.engine import as_arguments, engine_options
from forerun.cli.options.shared import bundle, takes
from forerun.engine_config import KV_CACHE_DTYPES
from forerun.kernels.cpu.codegen.machine import ROW_TYPES
from forerun.option_fields import option


@dataclass(frozen=True)
class Settings:
    num_cups: int | str | None = option(None, "As text.", "--cups")
    wait_timeout_s: float = option(2.0, "Seconds.")
    is_hot: bool = option(True, "Or cold.")


def test_the_keywords_of_llm_are_the_options() -> None:
    keywords = inspect.signature(LLM).parameters
    assert list(keywords) == [field.name for field in fields(EngineConfig) if field.name != "_"]
    assert keywords["kv_cache_backend"].default == "paged"
    with pytest.raises(TypeError, match="kv_cash_memory"):
        LLM("a model", kv_cash_memory="1MB")  # type: ignore[call-arg]


def test_the_server_has_an_option_for_each_that_has_a_sentence() -> None:
    serve = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    sentences = {parameter.name: getattr(parameter, "help", "") for parameter in serve.params}
    for field in fields(EngineConfig):
        if "help" in field.metadata:
            assert sentences[field.name] == field.metadata["help"]


def test_what_is_given_reaches_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path))
    monkeypatch.setenv("FORERUN_CPU", "avx2")
    config = engine_options(model="m", num_threads=2, quantization="int4", draft_model="small")
    assert (config.model, config.num_threads, config.cache_dir) == ("m", 2, tmp_path)
    assert config.cpu_options == {
        "num_threads": 2,
        "quantization": "int4",
        "instruction_set": "avx2",
    }
    assert config.speculation is not None
    assert config.speculation.model == "small"
    monkeypatch.setenv("FORERUN_CPU", "")
    assert engine_options(model="m").instruction_set is None


def test_arguments_ask_for_the_same_again() -> None:
    config = engine_options(model="m", num_threads=3, kv_cache_memory="9MB", no_speculation=True)
    words = " ".join(as_arguments(config))
    assert words.startswith("--model m ")
    assert "--kv-cache-memory 9MB" in words
    assert "--threads 3" in words
    assert words.endswith("--no-speculation")


def test_the_types_of_a_cache_are_those_that_kernels_have() -> None:
    assert set(KV_CACHE_DTYPES) == {"auto", *ROW_TYPES}


def test_a_field_is_an_option() -> None:
    @takes(given=bundle(Settings, "Tea"))
    def brew(given: Settings) -> None:
        typer.echo(given)

    alone = typer.Typer()
    alone.command()(brew)
    said = CliRunner().invoke(alone, ["--cups", "3", "--wait-timeout", "5", "--no-is-hot"]).output
    assert "num_cups='3', wait_timeout_s=5.0, is_hot=False" in said
