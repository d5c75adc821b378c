"""What `import forerun` offers, and what it must not drag in."""

import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

import forerun

PUBLIC = {
    "Acceptance",
    "AsyncEngine",
    "CompletionOutput",
    "DiskFull",
    "DownloadFailed",
    "Draw",
    "EngineClosed",
    "EngineConfig",
    "EngineHung",
    "EngineOverloaded",
    "ForerunError",
    "InvalidDistribution",
    "InvalidGrammar",
    "InvalidOption",
    "InvalidProposal",
    "InvalidTemplate",
    "InvalidTokenizer",
    "InvalidWeights",
    "LLM",
    "MissingExtra",
    "Origin",
    "PromptTooLong",
    "Proposal",
    "RequestFailed",
    "RequestOutput",
    "RequestSpeculation",
    "RequestTooLarge",
    "SamplingParams",
    "Span",
    "SpeculativeConfig",
    "StreamEvent",
    "StructuredOutputsParams",
    "TokenizerMismatch",
    "Tree",
    "UnknownModel",
    "UnsupportedModel",
    "Verdict",
    "__version__",
}


def test_public_names_are_pinned() -> None:
    """A name added or lost here is a change that users see: put it into the CHANGELOG."""
    assert set(forerun.__all__) == PUBLIC
    assert all(hasattr(forerun, name) for name in PUBLIC)


def test_the_cpu_path_never_imports_torch(tmp_path: Path) -> None:
    """Every module but those of the GPU and training rooms, imported in a fresh interpreter in
    which `import torch` would exit."""
    heavy = ("torch", "triton", "transformers", "matplotlib")
    for name in heavy:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('imported: {name}')")
    source = Path(forerun.__path__[0])
    files = [path.relative_to(source.parent).with_suffix("") for path in source.rglob("*.py")]
    skipped = ("__main__", "__init__", "worker")  # workers run in a peer's own Python
    names = [
        ".".join(file.parts)
        for file in files
        if not file.name.endswith(skipped) and not {"cuda", "training"} & set(file.parts)
    ]
    code = f"import importlib\nfor name in {names}: importlib.import_module(name)"
    paths = [str(tmp_path), str(source.parent), os.environ.get("PYTHONPATH", "")]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_names_of_0_1_work_once_more() -> None:
    with pytest.warns(DeprecationWarning, match=r"forerun\.theory now"):
        old = importlib.import_module("forerun.planning.closed_forms")
    assert (
        old.expected_tokens
        is importlib.import_module("forerun.theory.closed_forms").expected_tokens
    )
    with pytest.warns(DeprecationWarning, match=r"forerun\.speculation\.methods now"):
        assert "suffix" in importlib.import_module("forerun.engine").METHODS
