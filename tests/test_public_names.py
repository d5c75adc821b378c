"""What `import forerun` offers, and what it must not drag in."""

import subprocess
import sys

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


def test_the_cpu_path_never_imports_torch() -> None:
    """In a fresh interpreter: everything but the GPU's room, and torch is still not there."""
    code = (
        "import pkgutil, importlib, sys, forerun\n"
        "for m in pkgutil.walk_packages(forerun.__path__, 'forerun.'):\n"
        "    is_script = m.name.endswith(('__main__', 'worker'))  # run by a peer's own Python\n"
        "    is_gpu = m.name.startswith('forerun.kernels.cuda')\n"
        "    if not is_script and not is_gpu: importlib.import_module(m.name)\n"
        "heavy = {'torch', 'triton', 'transformers', 'matplotlib'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
