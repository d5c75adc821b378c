"""Whole files: read up to a size, written in one step or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from forerun.errors import DiskFull, InvalidOption
from forerun.files import read_bytes, read_text, write_whole


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 64)
    assert read_bytes(file, 64) == b"x" * 64
    with pytest.raises(OSError, match="larger than"):
        read_bytes(file, 63)


def test_lines_end_alike_whoever_wrote_them(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes("één\r\ntwee\rdrie\n".encode())
    assert read_text(tmp_path / "file", 99) == "één\ntwee\ndrie\n"


@pytest.mark.parametrize("name", ["\0", "\ud800"])
def test_a_name_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    with pytest.raises(OSError, match="no file can have such a name"):
        read_bytes(tmp_path / name, 9)
    with pytest.raises(InvalidOption, match="no file can be called"):
        write_whole(tmp_path / name, "text")


def test_a_link_stays_and_what_it_names_is_replaced(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "there" / "file")
    write_whole(link, "text")
    assert link.is_symlink()
    assert (tmp_path / "there" / "file").read_text() == "text\n"


def test_what_is_no_file_is_never_replaced(tmp_path: Path) -> None:
    """A record path that is a pipe or device stays one; os.replace would put a file there."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InvalidOption, match="choose another place"):
        write_whole(pipe, "text")  # the pipe has no reader
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(pipe, "text")
        assert os.read(reader, 99) == b"text\n"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_a_full_disk_leaves_the_old_file_and_no_scraps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_whole(tmp_path / "record", "old")

    def full(_from: Path, _to: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(DiskFull, match="No space left on device; free some space"):
        write_whole(tmp_path / "record", "new")
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"record": "old\n"}
