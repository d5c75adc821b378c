"""The options of an engine: each of them once, with its type, its default and its meaning.

`LLM` takes them as keywords; the command line and the server make their options from those with a
help text, and from their annotations, which are therefore evaluated. Nothing heavy is imported
here, so that help appears at once.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from forerun.errors import unknown_name
from forerun.kernels import Kernels
from forerun.option_checks import known_keywords, require, require_known, require_whole
from forerun.option_fields import option
from forerun.usable_cores import resolved_num_threads

if TYPE_CHECKING:
    from forerun.speculation.config import SpeculativeConfig

KERNEL_SETS: Final = ("auto", "cpu", "cuda", "reference")
# The valid names of options that are names. The kernels know some, but are heavy to import.
KNOWN_NAMES: Final = {
    "kv_cache_dtype": ("auto", "float16", "float32"),
    "kv_cache_backend": ("paged", "slotted"),
    "device": ("auto", "cpu", "cuda"),
    "dtype": ("auto", "bfloat16", "float16", "float32"),
    "quantization": (None, "int8", "int4"),
    "activations": (None, "int8", "int16"),
    "tool_call_parser": (None, "hermes", "llama3_json", "mistral"),
    "reasoning_parser": (None, "qwen3", "deepseek_r1", "mistral", "none"),
}
DEFAULT_ACTIVATIONS: Final = "int8"
Progress = Callable[[str, int, int], None]  # what, how many of how many; 0 of 0: unknown


def _auto() -> "SpeculativeConfig":
    from forerun.speculation.config import AUTO

    return AUTO


@known_keywords
@dataclass(frozen=True)
class EngineConfig:
    """The options of an engine, which are the keywords of `LLM`.

    `model` is a GGUF file, a Hugging Face directory, or the name of a pulled model.
    `speculative_config=None` is plain decoding. `chat_template` is the text or the file of a jinja2
    template. If the template does not tell, `tool_call_parser` says how the model writes tool calls
    ("hermes", "llama3_json", "mistral"), and `reasoning_parser` how it marks its reasoning
    ("qwen3", "deepseek_r1", "mistral"; "none" leaves the reasoning in the answer). `cache_dir`
    holds pulled models and compiled code.

    `kernels` is a name or a kernel set. `device="auto"` is the GPU if torch sees one; there `dtype`
    is "bfloat16", "float16" or "float32" (docs/gpu.md). `quantization` ("int8", "int4") packs float
    weights on load, and on a GPU "int8" packs any. `activations` are multiplied with packed weights
    as 8 bits ("int8", the default) or, closer to float32 and slower, as 16 ("int16";
    docs/cpu-kernels.md). `progress` is called with what is being compiled or packed, and how far.

    `kv_cache_memory` (bytes, or like "512MB") bounds the caches of target and draft models
    together; by default there is room for `max_num_seqs` texts of `max_model_len` tokens.
    `kv_cache_backend` is "paged", or "slotted": one long slot for each request. On the processor,
    `kv_cache_dtype="auto"` is "float16" if the target's weights are packed and activations have 8
    bits, else "float32"; draft models use the target's.
    """

    model: str | Path
    _: KW_ONLY
    speculative_config: "SpeculativeConfig | Mapping[str, Any] | None" = field(
        default_factory=_auto
    )
    max_model_len: int | None = option(None, "Context length to reserve. Default: the model's.")
    max_num_seqs: int = option(8, "Maximum concurrent requests.")
    kv_cache_memory: int | str | None = option(
        None,
        "Limit of the KV caches of target and draft models, like 512MB. Default: what "
        "requests of full length need.",
    )
    kv_cache_dtype: str = option(
        "auto",
        "KV cache on the CPU: float16, float32, or auto (float16 with packed weights and "
        "int8 activations).",
    )
    kv_cache_backend: str = option(
        "paged", "KV cache: paged, or slotted (each request reserves its whole context)."
    )
    chat_template: str | None = option(
        None, "File with a Jinja chat template to use in place of the model's own."
    )
    tool_call_parser: str | None = option(
        None,
        "Format of the model's tool calls: hermes, llama3_json or mistral. Default: from "
        "the chat template.",
    )
    reasoning_parser: str | None = option(
        None,
        "Format of the model's reasoning: qwen3, deepseek_r1 or mistral; none leaves it "
        "in the answer. Default: from the chat template.",
    )
    kernels: str | Kernels = option("auto", "Kernel set: auto, cpu, cuda or reference.")
    device: str = option("auto", "Device: auto (a GPU if torch sees one), cpu or cuda.")
    dtype: str = option("auto", "Data type on a GPU: bfloat16 (auto), float16 or float32.")
    num_threads: int | None = option(
        None,
        "CPU threads. Default: all usable cores, up to a container's limit.",
        "--threads",
    )
    quantization: str | None = option(None, "Quantize weights on load: int8, or int4 (CPU only).")
    activations: str | None = option(
        None,
        "Activations with packed weights on the CPU: int8 (default) or int16 (closer to "
        "float32, slower).",
    )
    instruction_set: str | None = None
    cache_dir: str | Path | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        """Check what can be checked before the model is loaded."""
        require(isinstance(self.model, str | Path), "model", self.model, "a name or a path")
        good = isinstance(self.kernels, str) or hasattr(self.kernels, "load_matrix")
        require(good, "kernels", self.kernels, "a name or a kernel set")
        good = isinstance(self.cache_dir, str | Path | None)
        require(good, "cache_dir", self.cache_dir, "a path, or None")
        good = self.progress is None or callable(self.progress)
        require(good, "progress", self.progress, "a function, or None")
        require_whole("max_num_seqs", self.max_num_seqs, least=1)
        if isinstance(self.kernels, str):
            require_known("kernels", KERNEL_SETS, self.kernels)
        for name, known in KNOWN_NAMES.items():
            if (value := getattr(self, name)) not in known:
                raise unknown_name(name, str(value), [each for each in known if each])
        if self.num_threads is not None:
            resolved_num_threads(self.num_threads)
        if self.max_model_len is not None:
            require_whole("max_model_len", self.max_model_len, least=2)

    @property
    def cache_folder(self) -> Path | None:
        """`cache_dir` as a path."""
        return None if self.cache_dir is None else Path(self.cache_dir)

    @property
    def speculation(self) -> "SpeculativeConfig | None":
        """`speculative_config` as a checked `SpeculativeConfig`; None: plain decoding."""
        from forerun.speculation.config import SpeculativeConfig

        return SpeculativeConfig.of(self.speculative_config)

    @property
    def cpu_options(self) -> dict[str, Any]:
        """The options that only the cpu kernels take, as far as they are set."""
        names = ("num_threads", "quantization", "activations", "kv_cache_dtype", "instruction_set")
        asked = {name: getattr(self, name) for name in names}
        return {name: value for name, value in asked.items() if value not in (None, "auto")}


Keywords = ParamSpec("Keywords")
Config = TypeVar("Config")
Made = TypeVar("Made")


def configured_by(
    config: Callable[Keywords, Config],
) -> Callable[[Callable[[Made, Config], None]], Callable[Concatenate[Made, Keywords], None]]:
    """Decorate an `__init__` that takes a `config`, so that it is called with its keywords."""

    def decorate(
        init: Callable[[Made, Config], None],
    ) -> Callable[Concatenate[Made, Keywords], None]:
        @functools.wraps(init)
        def called(self: Made, /, *args: Keywords.args, **keywords: Keywords.kwargs) -> None:
            init(self, config(*args, **keywords))

        own = next(iter(inspect.signature(init).parameters.values()))
        signature = inspect.signature(config)
        called.__signature__ = signature.replace(  # type: ignore[attr-defined]
            parameters=[own, *signature.parameters.values()]
        )
        return called

    return decorate
