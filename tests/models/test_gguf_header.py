"""Corrupt GGUF files: a sentence that names the field or tensor, never a crash."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from forerun.errors import ForerunError, InvalidWeights, UnsupportedModel
from forerun.models.gguf.header import read_gguf_header
from forerun.models.opening import load_tokenizer, open_checkpoint
from tests.models.tiny_files import write_tiny_gguf

HUGE = struct.pack("<Q", 2**62)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("tiny") / "m.gguf"
    write_tiny_gguf(path)
    return path.read_bytes()


def _read(data: bytes) -> None:
    read_gguf_header(np.frombuffer(data, np.uint8), Path("m.gguf"))


def _after(data: bytes, marker: bytes, offset: int, new: bytes) -> bytes:
    """`data` with `new` written `offset` bytes after the end of `marker`."""
    at = data.index(marker) + len(marker) + offset
    return data[:at] + new + data[at + len(new) :]


def _rename(data: bytes, old: bytes, new: bytes) -> bytes:
    assert len(old) == len(new)
    return data.replace(old, new, 1)


TENSOR = b"blk.0.attn_q.weight"
DIMS = 4  # bytes after a tensor's name: the dimension count, two dimensions, format, offset
CASES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "magic": (lambda d: b"GGML" + d[4:], "not a GGUF file"),
    "no bytes after magic": (lambda d: d[:4], "the version"),
    "tensor count": (lambda d: d[:8] + HUGE + d[16:], "tensor count"),
    "field count": (lambda d: d[:16] + HUGE + d[24:], "field count"),
    "name length": (lambda d: d[:24] + HUGE + d[32:], "name of field 0"),
    "string length": (lambda d: _after(d, b"general.architecture", 4, HUGE), "architecture"),
    "field type": (
        lambda d: _after(d, b"general.architecture", 0, struct.pack("<I", 99)),
        "'general.architecture' has the unknown type 99",
    ),
    "array length": (
        lambda d: _after(d, b"tokenizer.ggml.tokens", 8, HUGE),
        r"ggml\.tokens' claims 4611686018427387904 strings",
    ),
    "number array length": (lambda d: _after(d, b"tokenizer.ggml.scores", 8, HUGE), "ggml.scores"),
    "array of arrays": (
        lambda d: _after(d, b"tokenizer.ggml.scores", 4, struct.pack("<I", 9)),
        "ggml.scores",
    ),
    "field twice": (
        lambda d: d.replace(b"ggml.bos_token_id", b"ggml.eos_token_id"),
        "'tokenizer.ggml.eos_token_id' appears twice",
    ),
    "tensor twice": (
        lambda d: _rename(d, b"blk.0.attn_k.weight", TENSOR),
        "attn_q.weight' appears",
    ),
    "dimension count": (lambda d: _after(d, TENSOR, 0, b"\xff"), "255 dimensions"),
    "no dimensions": (lambda d: _after(d, TENSOR, 0, b"\0"), "0 dimensions"),
    "huge dimension": (lambda d: _after(d, TENSOR, DIMS, HUGE), "attn_q.weight"),
    "zero dimension": (lambda d: _after(d, TENSOR, DIMS, bytes(8)), r"attn_q.weight.*\[0, 32\]"),
    "format": (lambda d: _after(d, TENSOR, DIMS + 16, b"\xfe"), "unknown format 254"),
    "format that does not divide": (lambda d: _after(d, TENSOR, DIMS + 16, b"\x0c"), "Q4_K"),
    "offset": (lambda d: _after(d, TENSOR, DIMS + 20, b"\x01"), "attn_q.weight' has offset"),
    "truncated data": (lambda d: d[:-1], r"blk\.1\..* ends at byte"),
    "not utf-8": (
        lambda d: _rename(d, b"llama.block_count", b"llama.block_c\xff\xff\xfft"),
        "UTF-8",
    ),
}


@pytest.mark.parametrize(("damage", "names"), CASES.values(), ids=CASES)
def test_damage_is_named(tiny: bytes, damage: Callable[[bytes], bytes], names: str) -> None:
    damaged = damage(tiny)
    assert damaged != tiny
    with pytest.raises(InvalidWeights, match=names):
        _read(damaged)


def test_a_sound_header_is_read(tiny: bytes) -> None:
    _read(tiny)


def test_other_versions_are_refused(tiny: bytes) -> None:
    with pytest.raises(UnsupportedModel, match="version 1"):
        _read(tiny[:4] + struct.pack("<I", 1) + tiny[8:])


def test_a_missing_or_empty_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(InvalidWeights, match="does not exist"):
        open_checkpoint(tmp_path / "none.gguf")
    (tmp_path / "empty.gguf").touch()
    with pytest.raises(InvalidWeights, match="is empty"):
        open_checkpoint(tmp_path / "empty.gguf")


def _mutate(data: bytes, rng: random.Random) -> bytes:
    """One to three random injuries, most of them in the header."""
    damaged = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(min(len(damaged), rng.choice([64, 2500, len(damaged)])))
        kind = rng.randrange(5)
        if kind == 0:
            damaged[at] = rng.randrange(256)
        elif kind == 1:
            damaged[at : at + 8] = struct.pack("<Q", rng.choice([0, 1, 2**31, 2**62, 2**64 - 1]))
        elif kind == 2:
            del damaged[at + 1 : at + rng.randint(2, 40)]
        elif kind == 3:
            damaged[at:at] = rng.randbytes(rng.randint(1, 40))
        else:
            del damaged[max(at, 1) :]
    return bytes(damaged)


@pytest.mark.parametrize("seed", [2026, pytest.param(2027, marks=pytest.mark.slow)])
def test_no_mutation_crashes_or_allocates_much(tiny: bytes, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = tmp_path / "m.gguf"
    num_refused = 0
    tracemalloc.start()
    for _ in range(300):
        path.write_bytes(_mutate(tiny, rng))
        try:
            checkpoint = open_checkpoint(path)
            load_tokenizer(checkpoint).encode("ab a\n")
            for name in checkpoint.names():
                checkpoint.float32(name)
        except ForerunError:
            num_refused += 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert num_refused > 150
    assert peak < 8 * 2**20, peak
