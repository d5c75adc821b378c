"""Where Numba does not work, `auto` goes on without it."""

from __future__ import annotations

import sys

import pytest

from forerun.engine.kernel_choice import CpuOptions, choose_kernels
from forerun.errors import CannotCompile, InvalidOption
from forerun.kernels import ReferenceKernels


@pytest.fixture
def _no_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "forerun.kernels.cpu", None)  # importing it now fails


@pytest.mark.usefixtures("_no_numba")
def test_without_numba_auto_takes_the_reference_kernels_and_says_so() -> None:
    with pytest.warns(RuntimeWarning, match=r"Numba cannot be imported .* The reference kernels"):
        assert choose_kernels("auto", CpuOptions(), None, None).name == "reference"


@pytest.mark.usefixtures("_no_numba")
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("cpu", CpuOptions()),
        ("auto", CpuOptions(quantization="int8")),
        ("auto", CpuOptions(activations="int8")),
    ],
)
def test_without_numba_what_needs_it_is_refused(name: str, options: CpuOptions) -> None:
    with pytest.raises(CannotCompile, match=r"reinstall numba, or use the reference kernels\."):
        choose_kernels(name, options, None, None)


@pytest.mark.parametrize(
    "options",
    [CpuOptions(num_threads=1), CpuOptions(quantization="int4"), CpuOptions(activations="int8")],
)
def test_the_reference_kernels_take_no_options_of_the_cpu_kernels(options: CpuOptions) -> None:
    with pytest.raises(InvalidOption, match="are for the cpu kernels; drop them"):
        choose_kernels("reference", options, None, None)
    with pytest.raises(InvalidOption, match="are set in the kernel set that you give; drop them"):
        choose_kernels(ReferenceKernels(), options, None, None)


def test_a_kernel_set_is_itself() -> None:
    given = ReferenceKernels()
    assert choose_kernels(given, CpuOptions(), None, None) is given
