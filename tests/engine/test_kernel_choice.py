"""Where Numba does not work, `auto` goes on without it."""

from __future__ import annotations

import sys

import pytest

from forerun.engine.kernel_choice import choose_kernels
from forerun.errors import CannotCompile


@pytest.fixture
def _no_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "forerun.kernels.cpu", None)  # importing it now fails


@pytest.mark.usefixtures("_no_numba")
def test_without_numba_auto_takes_the_reference_kernels_and_says_so() -> None:
    with pytest.warns(RuntimeWarning, match=r"Numba cannot be imported .* The reference kernels"):
        assert choose_kernels("auto", None, None, None, None).name == "reference"


@pytest.mark.usefixtures("_no_numba")
@pytest.mark.parametrize(("name", "quantization"), [("cpu", None), ("auto", "int8")])
def test_without_numba_what_needs_it_is_refused(name: str, quantization: str | None) -> None:
    with pytest.raises(CannotCompile, match=r"reinstall numba, or use the reference kernels\."):
        choose_kernels(name, None, quantization, None, None)
