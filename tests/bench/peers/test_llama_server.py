"""llama.cpp as a build of its own, with a stand-in for `llama-server`."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forerun.bench.peers import Peer, PeerContender, open_peer
from forerun.bench.peers import peer as peer_module
from forerun.bench.peers.peer import PeerFailed
from forerun.bench.prompts.workloads import BenchPrompt
from forerun.bench.records.record import read_record
from forerun.bench.records.summary import labelled, peer_label
from forerun.cli import app
from forerun.cli.bench.peer_options import peer_options
from forerun.errors import InvalidOption

FAKE = Path(__file__).with_name("fake_llama_server.py")
BY_WHEEL = Path(__file__).parents[2] / "golden" / "records"


@pytest.fixture
def server(tmp_path: Path) -> Path:
    """A fake `llama-server`, beside which lies the description that `make peers` writes."""
    program = tmp_path / "llama-server"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {FAKE} "$@"\n')
    program.chmod(0o755)
    about = {"build": "native build", "from": {"llama-cpp-python": "1.2"}}
    (tmp_path / "about.json").write_text(json.dumps(about))
    return program


def opened(server: Path, content: bytes = b"GGUF", name: str = "toy.gguf") -> Peer:
    model = server.with_name(name)
    model.write_bytes(content)
    return open_peer("llamacpp", model, threads=1, max_len=64, llama_server=server)


def test_a_build_tells_of_itself_and_answers_in_each_mode(server: Path) -> None:
    peer = opened(server)
    try:
        modes = ["plain", "ngram_simple", "ngram_mod"]
        assert peer.modes == [*modes, *(f"{mode}_fa_off" for mode in modes)]
        assert peer.about["build"] == "native build"
        assert peer.about["system_info"] == "n_threads = 2 | CPU : ABACUS = 1 |"
        assert peer.about["versions"] == {"llama.cpp": "7 (c0ffee)", "llama-cpp-python": "1.2"}
        plain, guessing = PeerContender(peer, "plain"), PeerContender(peer, "ngram_mod")
        run = plain.answer([5, 6, 7, 8], 3)
        assert (run.tokens, len(run.arrivals), run.num_guesses) == ((5, 6, 7), 3, 0)
        asked = BenchPrompt("a", "a", json_schema='{"enum": [7, 8, 9]}')
        assert plain.answer([5, 6], 9, asked).tokens == (7, 8, 9)
        run = guessing.answer([5, 6], 2)
        assert (run.num_guesses, run.num_accepted) == (8, 6)
        run = PeerContender(peer, "ngram_mod_fa_off").answer([5, 6], 2)
        assert (run.num_guesses, run.num_accepted) == (4, 2)
        seconds, tokens = plain.answer_all([[1, 2], [3, 4]], [1, 2])
        assert (seconds > 0, tokens) == (True, [[1], [3, 4]])
    finally:
        peer.close()


def test_its_servers_end_with_it(server: Path) -> None:
    peer = opened(server)
    PeerContender(peer, "plain").answer([1], 1)
    address = ("127.0.0.1", int(server.with_name("toy.gguf.port").read_text()))
    socket.create_connection(address).close()  # the server listens
    peer.close()
    with pytest.raises(ConnectionRefusedError):
        connect_for_seconds(10, address)


def test_its_servers_end_where_its_owner_was_killed(server: Path) -> None:
    """All that the worker notices is that the owner's end of the pipe closes."""
    model = server.with_name("toy.gguf")
    model.write_bytes(b"GGUF")
    setup = {"model": str(model), "threads": 1, "max_len": 8, "slots": 1, "server": str(server)}
    question = {"mode": "plain", "prompt": [1], "num_tokens": 1}
    worker = Path(peer_module.__file__).with_name("llamacpp_worker.py")
    lines = f"{json.dumps(setup)}\n{json.dumps(question)}\n"
    done = subprocess.run([sys.executable, worker], input=lines, capture_output=True, text=True)
    assert json.loads(done.stdout.splitlines()[1])["tokens"] == [1]
    address = ("127.0.0.1", int(server.with_name("toy.gguf.port").read_text()))
    with pytest.raises(ConnectionRefusedError):
        connect_for_seconds(10, address)


def connect_for_seconds(seconds: int, address: tuple[str, int]) -> None:
    for _ in range(20 * seconds):
        socket.create_connection(address).close()
        time.sleep(0.05)


def test_a_server_that_does_not_start_is_one_sentence(server: Path) -> None:
    peer = opened(server, content=b"")
    try:
        with pytest.raises(PeerFailed, match="llama-server ended: the model is empty; mend it, or"):
            PeerContender(peer, "plain").answer([1], 1)
    finally:
        peer.close()


def test_a_server_that_crashes_says_of_what(server: Path) -> None:
    peer = opened(server, name="crash.gguf")
    try:
        with pytest.raises(PeerFailed, match="llama-server ended: Illegal instruction, with this"):
            PeerContender(peer, "plain").answer([1], 1)
    finally:
        peer.close()


def test_what_was_not_built_by_us_is_an_own_build(server: Path) -> None:
    server.with_name("about.json").unlink()
    peer = opened(server)
    peer.close()
    assert peer.about["build"] == "own build"


def test_the_built_server_is_taken_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert peer_options(peers="llamacpp").server() is None
    built = tmp_path / ".peers" / "llama-server"
    built.parent.mkdir()
    built.write_text("")
    assert peer_options(peers="llamacpp").server() == built
    assert peer_options(peers="llamacpp", llama_server="wheel").server() is None
    with pytest.raises(InvalidOption, match="is not a file; run `make peers`"):
        peer_options(peers="llamacpp", llama_server="elsewhere")


def test_a_wheel_is_named_in_every_line_with_its_ratio() -> None:
    path = BY_WHEEL / "generic-wheel.json"
    shown = CliRunner().invoke(app, ["bench", "show", str(path)]).stdout
    lines = [line for line in shown.splitlines() if "llamacpp" in line]
    assert len(lines) >= 8
    assert all("llamacpp generic wheel" in line for line in lines)
    path = BY_WHEEL / "batch-generic-wheel.json"
    offline = CliRunner().invoke(app, ["bench", "show", str(path)])
    assert "llamacpp generic wheel/plain's" in offline.stdout
    assert "3.496 [3.085, 4.846]" in offline.stdout


def test_labels_keep_who_is_whose() -> None:
    record = labelled(read_record(BY_WHEEL / "generic-wheel.json"))
    assert {cell.contender for cell in record.cells} == set(record.contenders)
    assert peer_label("llamacpp/plain", {"build": "native build"}) == "llamacpp native build/plain"
    assert peer_label("transformers/plain", {"versions": {"torch": "2"}}) == "transformers/plain"
    assert peer_label("default", {"engine": "forerun"}) == "default"
