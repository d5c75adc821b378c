"""The command line: what it prints, what it refuses, and what it does not import."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from forerun.cli import app, machine, plan
from forerun.cli.doctor import _gpu_finding, _numba_finding
from forerun.models.download.store import default_cache_dir
from forerun.version import VERSION

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def run(*args: str, **more: Any) -> Result:
    return CliRunner().invoke(app, list(args), prog_name="forerun", **more)


def run_json(*args: str) -> Any:
    result = run(*args, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def assert_refused(result: Result, part: str) -> None:
    """One sentence on stderr, exit code 2, nothing on stdout."""
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("forerun: ")
    assert result.stderr.count("\n") == 1
    assert part in result.stderr


def test_version_and_help() -> None:
    assert run("--version").stdout == f"forerun {VERSION}\n"
    for result in (run(), run("--help")):
        assert result.exit_code == 0
        assert "plan" in result.stdout
        assert "doctor" in result.stdout


def test_plan_marks_the_best_depth_and_says_so() -> None:
    result = run("plan", "--alpha", "0.8", "--cost", "0.1")
    assert result.exit_code == 0
    marked = [line for line in result.stdout.splitlines() if "best" in line and "×" in line]
    assert marked[0].split()[:4] == ["6", "3.95", "2.95", "2.47×"]
    assert "Depth 6 is best" in result.stdout
    assert "3.57× at the very most" in result.stdout


def test_the_help_of_serve_has_the_rule_of_its_variables_and_cuts_no_name() -> None:
    shown = run("serve", "--help", env={"COLUMNS": "80"}).stdout
    assert "FORERUN_SERVE_MAX_NUM_SEQS." in shown
    assert not re.findall("[A-Z_]+…", shown)


def test_plan_says_when_no_depth_helps() -> None:
    result = run("plan", "--alpha", "0.4", "--cost", "0.5")
    assert result.exit_code == 0
    assert "No depth up to 10 helps" in result.stdout
    assert "at the very most" not in result.stdout


def test_plan_with_a_measured_pass_ends_where_the_measurement_ends() -> None:
    args = ("--alpha", "0.7", "--cost", "0", "--verify-cost", "3:1.38,7:1.905")
    depths = run_json("plan", *args)["depths"]
    rows = depths["rows"]
    assert len(rows) == 8
    assert rows[7]["speedup"] == pytest.approx(rows[7]["expected_tokens"] / 1.905)
    assert depths["best_depth"] == 3


def test_plan_as_json_holds_numbers_only() -> None:
    depths = run_json("plan", "--alpha", "1", "--cost", "0", "--max-depth", "4")["depths"]
    assert depths["best_depth"] == 4
    assert depths["oracle_speedup"] is None  # no bound
    assert [row["expected_tokens"] for row in depths["rows"]] == [1, 2, 3, 4, 5]


def test_operations_use_the_drafters_arithmetic_or_its_cost() -> None:
    given = run_json("plan", "--alpha", "0.8", "--cost", "0.1", "--operations-cost", "0")
    assumed = run_json("plan", "--alpha", "0.8", "--cost", "0.1")
    assert given["depths"]["rows"][5]["operations_factor"] == pytest.approx(6 / 3.68928)
    assert assumed["depths"]["rows"][5]["operations_factor"] == pytest.approx(6.5 / 3.68928)


def test_budget_of_two_models() -> None:
    budget = run_json("plan", "--budget", "llama-3.2-3b", "llama-3.2-1b")["budget"]
    assert budget["target"]["kv_bytes_per_token"] == 114_688
    assert budget["draft"]["kv_bytes_per_token"] == 32_768
    assert budget["total_bytes"] == 13_728_966_656
    shown = run("plan", "--budget", "llama-3.2-3b", "llama-3.2-1b").stdout
    assert "3,212,749,824" in shown
    assert "13.73 GB (12.79 GiB)" in shown


def test_budget_options() -> None:
    budget = run_json(
        *("plan", "--budget", "llama-3.2-3b", "llama-3.2-1b", "--dtype", "float32"),
        *("--draft-dtype", "q8_0", "--kv-dtype", "float8", "--sequences", "2", "--max-len", "100"),
    )["budget"]
    assert budget["target"]["weight_bytes"] == 4 * 3_212_749_824
    assert budget["draft"]["weight_bytes"] < 1.07 * 1_235_814_400
    assert budget["target"]["kv_bytes"] == 114_688 // 2 * 200


def test_plot_writes_the_figures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "theory.png"
    assert run_json("plan", "--plot", str(file))["figures"] == str(file)
    assert file.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("args", "part"),
    [
        ("--alpha 1.2 --cost 0.1", "alpha is 1.2; give a probability between 0 and 1."),
        ("--alpha nan --cost 0.1", "alpha is nan"),
        ("--alpha high --cost 0.1", "--alpha"),
        ("--alpha 0.5 --cost -1", "cost is -1.0"),
        ("--alpha 0.5 --cost inf", "cost is inf"),
        ("--alpha 0.7 --cost 1e308", "cost is 1e+308; give a number from 0 to 1,000,000."),
        ("--alpha 0.7 --cost 1e308 --json", "cost is 1e+308; give a number from 0 to 1,000,000."),
        ("--alpha 0.7 --cost 0 --operations-cost 1e308 --json", "operations cost is 1e+308; give"),
        ("--alpha 0.5", "--alpha needs --cost"),
        ("--cost 0.1", "--cost has no effect without --alpha"),
        ("--sequences 4 --alpha 0.5 --cost 0", "--sequences has no effect without --budget"),
        ("--alpha 0.5 --cost 0 --max-depth 0", "max depth is 0"),
        ("--alpha 0.5 --cost 0 --max-depth 100000", "max depth is 100000; give at most"),
        ("--alpha 0.5 --cost 0 --max-depth 2.5", "--max-depth"),
        ("--alpha 0.5 --cost 0 --operations-cost -2", "operations cost is -2.0"),
        ("--alpha 0.5 --cost 0 --verify-cost cheap", "cannot read the verify cost 'cheap'"),
        ("--alpha 0.5 --cost 0 --verify-cost 1.1,1.2 --max-depth 3", "measured up to depth 2"),
        ("", "nothing to plan"),
        ("--alfa 0.5", "--alfa"),
        ("--budget llama-3.2-3b", "requires 2 arguments"),
        ("--budget llama-3.2-3b llama-3.2-1", "did you mean 'llama-3.2-1b'"),
        ("--budget llama-3.2-3b llama-3.2-1b --dtype int3", "unknown dtype 'int3'"),
        ("--budget llama-3.2-3b llama-3.2-1b --max-len 0", "max_len is 0"),
        ("--plot theory.gif", "end it in .png, .pdf, .svg"),
    ],
)
def test_plan_refuses_in_one_sentence(args: str, part: str) -> None:
    assert_refused(run("plan", *args.split()), part)


@pytest.mark.parametrize(
    ("args", "part"),
    [
        (
            "generate one two",
            "unexpected argument 'two' for forerun generate; put the whole prompt in quotes.",
        ),
        (
            "chat smollm2-135m",
            "unexpected argument 'smollm2-135m' for forerun chat; to name a model, use",
        ),
        (
            "doctor x y",
            "unexpected argument 'x y' for forerun doctor; drop it, or see forerun doctor --help.",
        ),
        ("generate hi --bogus", "No such option: --bogus; see forerun generate --help."),
        ("bench show", "Missing argument 'path'; see forerun bench show --help."),
        ("proof --tokens 0", "--tokens 0 is not allowed; give 1 or more."),
        ("proof --seed -1", "--seed -1 is not allowed; give 0 or more."),
        ("proof --prompts 0", "0 named prompts are not to be had; give 1 to 200."),
        ("proof --prompts 1 --model absent", "neither a path nor a pulled model"),
        ("generate hi --chat-template /", "cannot be read: Is a directory; give a jinja2 file."),
        ("generate hi --speculative-config {", 'write it like {"method": "auto"}.'),
        (
            'generate hi --speculative-config {"method":3}',
            "method=3 is not allowed; it must be a name.",
        ),
    ],
)
def test_slips_are_answered_with_what_to_do(args: str, part: str) -> None:
    assert_refused(run(*args.split()), part)


def test_an_unknown_command_names_the_nearest() -> None:
    assert_refused(run("pln"), "'plan'")


def test_a_bug_is_not_hidden_as_misuse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "depth_table", lambda *_: 1 / 0)
    assert isinstance(run("plan", "--alpha", "0.5", "--cost", "0").exception, ZeroDivisionError)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `doctor` read the extras as if the package were installed, even if it is not."""
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    requirements = [
        f"{package}; extra == '{extra}'"
        for extra, packages in extras.items()
        for package in packages
    ]
    monkeypatch.setattr(importlib.metadata, "requires", lambda _name: requirements)


def test_doctor_on_the_path_but_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    findings = {item["subject"]: item for item in run_json("doctor")}
    assert findings["extras"]["found"] == "unknown: forerun is not installed"
    assert findings["extras"]["remedy"] == "pip install forerun"


@pytest.mark.usefixtures("installed")
def test_doctor_reports_every_subject() -> None:
    findings = {item["subject"]: item for item in run_json("doctor")}
    assert findings["forerun"]["found"] == VERSION
    assert findings["python"]["found"].startswith(sys.version.split()[0])
    assert "GiB free of" in findings["memory"]["found"] or sys.platform != "linux"
    assert findings["numba"]["remedy"] is None
    for extra in ("serve", "gpu", "train", "plot", "bench"):
        finding = findings[f"extra [{extra}]"]
        assert (finding["found"] == "installed") == (finding["remedy"] is None)
    assert run("doctor").exit_code == 0


@pytest.mark.usefixtures("installed")
def test_doctor_names_the_command_for_a_missing_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    present = {"starlette", "uvicorn", "llguidance", "matplotlib"}
    monkeypatch.setattr(machine, "is_importable", present.__contains__)
    findings = {item["subject"]: item for item in run_json("doctor")}
    assert findings["extra [serve]"]["found"] == "missing: prometheus-client"
    assert findings["extra [serve]"]["remedy"] == 'pip install "forerun[serve]"'
    assert findings["extra [gpu]"]["found"] == "missing: torch"
    assert findings["extra [plot]"]["remedy"] is None
    assert 'pip install "forerun[gpu]"' in run("doctor").stdout


def test_doctor_survives_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "numba_version", lambda: None)
    assert _numba_finding().remedy == "pip install numba"


def test_doctor_asks_for_no_threading_layer() -> None:
    """The CPU kernels bring their own threads, so Numba's threading layers do not matter."""
    assert not any("thread" in f"{item}".lower() for item in run_json("doctor"))


def test_doctor_sees_a_gpu_without_asking_torch(tmp_path: Path) -> None:
    card = tmp_path / "driver/nvidia/gpus/0000:01:00.0"
    card.mkdir(parents=True)
    (card / "information").write_text("Model: \t\t NVIDIA H200\nIRQ: 11\n")
    names = machine.gpu_names(tmp_path)
    assert names == ("NVIDIA H200",)
    assert _gpu_finding(names, "torch").remedy == 'pip install "forerun[gpu]"'
    found = _gpu_finding(names, "torch with CUDA")
    assert found.found.endswith("but no torch with CUDA")
    assert found.remedy == 'pip install --force-reinstall "forerun[gpu]"'
    assert (_gpu_finding(names, "C compiler").remedy or "").startswith("install gcc")
    assert _gpu_finding(names, None).remedy is None


def test_the_container_limits_what_the_machine_has(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("model name\t: Fast CPU\nflags\t\t: fpu avx2 avx512_vnni\n")
    (tmp_path / "meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 900 kB\n")
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "memory.max").write_text("512000\n")
    (tmp_path / "memory.current").write_text("112000\n")
    cpu = machine.read_cpu(tmp_path, tmp_path)
    assert (cpu.name, cpu.quota) == ("Fast CPU", 1.5)
    assert {"avx2", "avx512vnni"} <= set(cpu.features)
    assert machine.read_memory(tmp_path, tmp_path) == machine.Memory(512_000, 400_000)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert machine.read_cpu(tmp_path, tmp_path).quota is None
    assert machine.read_memory(tmp_path, tmp_path) == machine.Memory(1_024_000, 921_600)


def test_the_cache_folder_follows_the_environment(tmp_path: Path) -> None:
    assert default_cache_dir({}) == Path.home() / ".cache" / "forerun"
    assert default_cache_dir({"XDG_CACHE_HOME": "/x"}) == Path("/x/forerun")
    assert default_cache_dir({"XDG_CACHE_HOME": "/x", "FORERUN_CACHE": "/y"}) == Path("/y")
    assert machine.free_disk(tmp_path / "not" / "yet") > 0


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['forerun', '--help']\n"
        "from forerun.cli import main\n"
        "try: main()\n"
        "except SystemExit as done: assert done.code == 0\n"
        "heavy = {'numba', 'llvmlite', 'matplotlib', 'torch', 'transformers'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_module_is_the_command() -> None:
    command = [sys.executable, "-m", "forerun", "plan", "--alpha", "1.2", "--cost", "0"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == "forerun: alpha is 1.2; give a probability between 0 and 1.\n"
