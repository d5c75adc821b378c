"""Tests that need a CUDA device are skipped where torch sees none."""

from __future__ import annotations

import pytest

from forerun.engine.setup.device_choice import sees_gpu


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if sees_gpu():
        return
    for item in items:
        if item.get_closest_marker("gpu") is not None:
            item.add_marker(pytest.mark.skip(reason="torch sees no CUDA device"))
