"""Where Numba does not work, `auto` falls back to other kernels."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import pytest

from forerun.engine.setup import device_choice, kernel_choice
from forerun.engine.setup.device_choice import wants_cuda
from forerun.engine.setup.kernel_choice import choose_kernels, is_on_gpu
from forerun.engine_config import EngineConfig
from forerun.errors import CannotCompile, InvalidOption, MissingExtra, NoDevice
from forerun.kernels import ReferenceKernels
from forerun.kernels.cpu.codegen.machine import Machine


@pytest.fixture
def _no_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "forerun.kernels.cpu", None)  # importing it now fails


@pytest.mark.usefixtures("_no_numba")
def test_without_numba_auto_takes_the_reference_kernels_and_says_so() -> None:
    with pytest.warns(RuntimeWarning, match=r"Numba cannot be imported .* The reference kernels"):
        assert choose_kernels(EngineConfig("a model")).name == "reference"


@pytest.mark.usefixtures("_no_numba")
@pytest.mark.parametrize(
    "options",
    [
        {"kernels": "cpu"},
        {"quantization": "int8"},
        {"activations": "int8"},
        {"kv_cache_dtype": "float32"},
    ],
)
def test_without_numba_what_needs_it_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(CannotCompile, match=r"reinstall numba, or use the reference kernels\."):
        choose_kernels(EngineConfig("a model", **options))


class _Refusing:
    """A module finder that fails as Numba does on a setting that it does not accept."""

    def find_spec(self, name: str, *_where: object) -> None:
        if name == "forerun.kernels.cpu":
            raise ValueError("Number of threads specified must be > 0.")


def test_a_setting_that_numba_refuses_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """NUMBA_NUM_THREADS=0 is such a setting."""
    monkeypatch.delitem(sys.modules, "forerun.kernels.cpu")
    monkeypatch.setattr(sys, "meta_path", [_Refusing(), *sys.meta_path])
    sentence = r"\(Number of threads specified must be > 0\); mend the NUMBA_ variables, reinstall"
    with pytest.raises(CannotCompile, match=sentence):
        choose_kernels(EngineConfig("a model", kernels="cpu"))
    with pytest.warns(RuntimeWarning, match=rf"{sentence} .* The reference kernels"):
        assert choose_kernels(EngineConfig("a model")).name == "reference"


@pytest.mark.parametrize(
    "options",
    [
        {"num_threads": 1},
        {"quantization": "int4"},
        {"activations": "int8"},
        {"kv_cache_dtype": "float32"},
    ],
)
def test_the_reference_kernels_take_no_options_of_the_cpu_kernels(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match="the reference kernels do not take"):
        choose_kernels(EngineConfig("a model", kernels="reference", **options))
    with pytest.raises(InvalidOption, match="are set in the kernel set that you give; drop them"):
        choose_kernels(EngineConfig("a model", kernels=ReferenceKernels(), **options))


def test_a_gpu_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_choice, "find_spec", lambda _name: None)
    with pytest.raises(MissingExtra, match=r'pip install "forerun\[gpu\]"'):
        choose_kernels(EngineConfig("a model", device="cuda"))
    monkeypatch.setattr(device_choice, "find_spec", lambda name: name)
    monkeypatch.setattr(device_choice, "has_driver", lambda: False)
    with pytest.raises(NoDevice, match="sees no CUDA device"):
        choose_kernels(EngineConfig("a model", kernels="cuda"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cdua"}, "did you mean 'cuda'"),
        ({"device": "cpu", "dtype": "bfloat"}, "did you mean 'bfloat16'"),
        ({"device": "cpu", "dtype": "bfloat16"}, "is for device 'cuda'"),
        ({"device": "cpu", "kernels": "cuda"}, "drop device 'cpu'"),
        ({"device": "cuda", "kernels": "reference"}, "drop device 'cuda'"),
        ({"device": "cuda", "num_threads": 1}, "the cuda kernels do not take threads 1; drop"),
        ({"device": "cuda", "quantization": "int4"}, "do not take quantization int4; drop"),
        ({"device": "cuda", "instruction_set": "avx2"}, r"instruction set \(FORERUN_CPU\) avx2"),
        ({"device": "cuda", "kv_cache_dtype": "float16"}, "do not take kv_cache_dtype float16"),
        ({"kernels": "reference", "instruction_set": "avx2"}, r"\(FORERUN_CPU\) avx2"),
    ],
)
def test_options_that_exclude_each_other(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        choose_kernels(EngineConfig("a model", **options))


def test_auto_takes_the_gpu_unless_the_processor_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_choice, "sees_gpu", lambda: True)
    for name, device in (("cpu", "auto"), ("auto", "cpu")):
        assert not wants_cuda(device, "auto", name, {})
    assert not wants_cuda("auto", "auto", "auto", {"num_threads": 1})
    assert wants_cuda("auto", "float32", "auto", {})


def test_both_devices_pack_int8_and_the_processor_alone_int4(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_choice, "sees_gpu", lambda: True)
    assert is_on_gpu(EngineConfig("a model", quantization="int8"))
    assert not is_on_gpu(EngineConfig("a model", quantization="int8", device="cpu"))
    assert not is_on_gpu(EngineConfig("a model", quantization="int8", num_threads=1))
    assert not is_on_gpu(EngineConfig("a model", quantization="int4"))
    assert not is_on_gpu(EngineConfig("a model", kernels=ReferenceKernels()))


BEST = Machine.host().instructions.name


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"instruction_set": BEST}, r"an instruction set \(FORERUN_CPU\) is given"),
        ({"kv_cache_dtype": "float32"}, "kv_cache_dtype is given"),
    ],
)
def test_options_that_take_the_gpu_away_unheard_say_so(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], named: str
) -> None:
    monkeypatch.setattr(kernel_choice, "sees_gpu", lambda: True)
    sentence = f"{named}, so the processor runs the model, not the GPU"
    with pytest.warns(RuntimeWarning, match=sentence):
        assert choose_kernels(EngineConfig("a model", **options)).name == "cpu"
    with warnings.catch_warnings(action="error"):
        choose_kernels(EngineConfig("a model", **options, device="cpu"))


def test_a_kernel_set_is_itself() -> None:
    given = ReferenceKernels()
    assert choose_kernels(EngineConfig("a model", kernels=given)) is given
