"""A container's CPU limit is found in either version of Linux's control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from forerun import usable_cores
from forerun.usable_cores import cpu_quota


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def in_group(proc: Path, text: str) -> None:
    group(proc / "self", cgroup=text)


def test_without_control_groups_there_is_no_limit(tmp_path: Path) -> None:
    assert cpu_quota(tmp_path / "proc", tmp_path / "cgroup") is None


@pytest.mark.parametrize(
    ("text", "quota"), [("200000 100000", 2.0), ("50000 100000", 0.5), ("max 100000", None)]
)
def test_a_container_is_shown_its_group_as_the_outermost(
    tmp_path: Path, text: str, quota: float | None
) -> None:
    in_group(tmp_path / "proc", "0::/")
    group(tmp_path / "cgroup", cpu__max=text)
    assert cpu_quota(tmp_path / "proc", tmp_path / "cgroup") == quota


def test_the_narrowest_of_the_groups_around_it_counts(tmp_path: Path) -> None:
    in_group(tmp_path / "proc", "0::/a.slice/b.service")
    group(tmp_path / "cgroup" / "a.slice", cpu__max="150000 100000")
    group(tmp_path / "cgroup" / "a.slice" / "b.service", cpu__max="400000 100000")
    group(tmp_path / "cgroup" / "other.slice", cpu__max="10000 100000")
    assert cpu_quota(tmp_path / "proc", tmp_path / "cgroup") == 1.5


def test_the_first_version_may_name_its_controllers_in_another_order(tmp_path: Path) -> None:
    in_group(tmp_path / "proc", "4:cpuacct,cpu:/docker/x")
    group(tmp_path / "cgroup" / "cpu", cpu__cfs_quota_us="200000", cpu__cfs_period_us="100000")
    assert cpu_quota(tmp_path / "proc", tmp_path / "cgroup") == 2.0


def test_lines_that_say_nothing_are_passed_over(tmp_path: Path) -> None:
    in_group(tmp_path / "proc", "nothing\n\n0::/a")
    group(tmp_path / "cgroup" / "a", cpu__max="100000 100000")
    assert cpu_quota(tmp_path / "proc", tmp_path / "cgroup") == 1.0


@pytest.mark.parametrize(("spend", "quota"), [("300000", 3.0), ("-1", None)])
def test_the_first_version_has_a_tree_for_each_controller(
    tmp_path: Path, spend: str, quota: float | None
) -> None:
    in_group(tmp_path / "proc", "5:memory:/docker/x\n4:cpu,cpuacct:/docker/x\n0::/")
    files = {"cpu__cfs_quota_us": spend, "cpu__cfs_period_us": "100000"}
    group(tmp_path / "cgroup" / "cpu,cpuacct", **files)
    group(tmp_path / "cgroup" / "memory", cpu__cfs_quota_us="1", cpu__cfs_period_us="100000")
    assert cpu_quota(tmp_path / "proc", tmp_path / "cgroup") == quota


@pytest.mark.parametrize(("quota", "threads"), [(None, 8), (64.0, 8), (2.0, 2), (1.9, 1), (0.1, 1)])
def test_no_more_threads_by_default_than_may_run_at_once(
    monkeypatch: pytest.MonkeyPatch, quota: float | None, threads: int
) -> None:
    monkeypatch.setattr(usable_cores, "num_usable_cores", lambda: 8)
    monkeypatch.setattr(usable_cores, "cpu_quota", lambda: quota)
    assert usable_cores.resolved_num_threads(None) == threads
    assert usable_cores.resolved_num_threads(5) == 5
