"""An option of the engine is declared once and appears in every interface."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from forerun import LLM, EngineConfig, InvalidOption
from forerun.cache.cache_size import BACKENDS
from forerun.cli import app
from forerun.cli.options.engine import as_arguments, engine_options
from forerun.cli.options.shared import bundle, takes
from forerun.engine_config import KNOWN_NAMES
from forerun.errors import UnknownModel
from forerun.kernels.cpu import CpuKernels
from forerun.kernels.cpu.codegen.machine import ACTIVATIONS, ROW_TYPES
from forerun.kernels.cpu.weights.loader import QUANTIZATIONS
from forerun.option_fields import option
from tests.contracts.kernel_sets import CACHE_DIR


@dataclass(frozen=True)
class Settings:
    num_cups: int | str | None = option(None, "As text.", "--cups")
    wait_timeout_s: float = option(2.0, "Seconds.")
    is_hot: bool = option(True, "Or cold.")


def test_the_keywords_of_llm_are_the_options() -> None:
    keywords = inspect.signature(LLM).parameters
    assert list(keywords) == [field.name for field in fields(EngineConfig) if field.name != "_"]
    assert keywords["kv_cache_backend"].default == "paged"


@pytest.mark.parametrize(
    ("slip", "meant"), [("kv_cash_memory", "kv_cache_memory"), ("threads", "num_threads")]
)
@pytest.mark.parametrize("caught", [TypeError, InvalidOption])
def test_an_unknown_keyword_names_the_nearest(
    slip: str, meant: str, caught: type[Exception]
) -> None:
    with pytest.raises(caught, match=f"unknown option '{slip}'; did you mean '{meant}'"):
        LLM("a model", **{slip: 1})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"model": 5}, "model=5 is not allowed; it must be a name or a path"),
        ({"kernels": 5}, "kernels=5 is not allowed; it must be a name or a kernel set"),
        ({"progress": 5}, "progress=5 is not allowed; it must be a function"),
        ({"cache_dir": 5}, "cache_dir=5 is not allowed; it must be a path"),
        ({"num_threads": 1.5}, "num_threads=1.5 is not allowed; give 1 …"),
        ({"num_threads": "2"}, "num_threads='2' is not allowed; give 1 …"),
        ({"speculative_config": "ngram"}, "speculative_config='ngram' is not allowed; it must be"),
        ({"speculative_config": 5}, "speculative_config=5 is not allowed; it must be"),
    ],
)
def test_values_of_a_wrong_type_are_refused(
    tiny_path: Path, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(InvalidOption, match=why):
        LLM(**{"model": tiny_path, **options})


def test_a_cache_folder_may_be_text(tiny_path: Path) -> None:
    folder = str(CACHE_DIR)
    llm = LLM(tiny_path, cache_dir=folder, speculative_config=None, num_threads=1)
    assert llm.target.cache_dir == CACHE_DIR
    assert CpuKernels(1, cache_dir=folder).num_threads == 1


def test_pulled_models_are_where_the_environment_says(
    tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "forerun" / "models" / "tiny"
    folder.parent.mkdir(parents=True)
    folder.symlink_to(tiny_path)
    options: dict[str, Any] = {"speculative_config": None, "kernels": "reference"}
    monkeypatch.delenv("FORERUN_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert LLM("tiny", **options).tokenizer
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path))
    with pytest.raises(UnknownModel):
        LLM("tiny", **options)
    assert LLM("tiny", **options, cache_dir=tmp_path / "forerun").tokenizer


def test_numbers_of_numpy_are_numbers(tiny_path: Path) -> None:
    sizes: dict[str, Any] = {"num_threads": 1, "max_model_len": 64, "kv_cache_memory": 10**6}
    given: dict[str, Any] = {name: np.int64(size) for name, size in sizes.items()}
    assert LLM(tiny_path, speculative_config=None, **given).max_model_len == 64


def test_the_server_has_an_option_for_each_that_has_a_sentence() -> None:
    serve = typer.main.get_command(app).commands["serve"]  # type: ignore[attr-defined]
    sentences = {parameter.name: getattr(parameter, "help", "") for parameter in serve.params}
    for field in fields(EngineConfig):
        if "help" in field.metadata:
            assert sentences[field.name] == field.metadata["help"]


def test_what_is_given_reaches_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORERUN_CACHE", str(tmp_path))
    monkeypatch.setenv("FORERUN_CPU", "avx2")
    config = engine_options(model="m", num_threads=1, quantization="int4", draft_model="small")
    assert (config.model, config.num_threads, config.cache_dir) == ("m", 1, tmp_path)
    assert config.cpu_options == {
        "num_threads": 1,
        "quantization": "int4",
        "instruction_set": "avx2",
    }
    assert config.speculation is not None
    assert config.speculation.model == "small"
    monkeypatch.setenv("FORERUN_CPU", "")
    assert engine_options(model="m").instruction_set is None


def test_arguments_ask_for_the_same_again() -> None:
    config = engine_options(model="m", num_threads=1, kv_cache_memory="9MB", no_speculation=True)
    words = " ".join(as_arguments(config))
    assert words.startswith("--model m ")
    assert "--kv-cache-memory 9MB" in words
    assert "--threads 1" in words
    assert words.endswith("--no-speculation")


def test_names_are_those_that_kernels_and_caches_know() -> None:
    assert set(KNOWN_NAMES["kv_cache_dtype"]) == {"auto", *ROW_TYPES}
    assert set(KNOWN_NAMES["kv_cache_backend"]) == set(BACKENDS)
    assert set(KNOWN_NAMES["quantization"]) == {None, *QUANTIZATIONS}
    assert set(KNOWN_NAMES["activations"]) == {None, *ACTIVATIONS}


@pytest.mark.parametrize("name", [*KNOWN_NAMES, "kernels"])
def test_unknown_names_are_refused_before_anything_is_loaded(name: str) -> None:
    given: dict[str, Any] = {name: "nonsense"}
    with pytest.raises(InvalidOption, match=r"unknown .*'nonsense'"):
        EngineConfig("nowhere", **given)


def test_a_field_is_an_option() -> None:
    @takes(given=bundle(Settings, "Tea"))
    def brew(given: Settings) -> None:
        typer.echo(given)

    alone = typer.Typer()
    alone.command()(brew)
    said = CliRunner().invoke(alone, ["--cups", "3", "--wait-timeout", "5", "--no-is-hot"]).output
    assert "num_cups='3', wait_timeout_s=5.0, is_hot=False" in said
