"""Peers, with a stand-in for their process."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from forerun.bench.measure.contenders import PLAIN
from forerun.bench.measure.timed_run import TimedRun
from forerun.bench.peers import MissingPeer, PeerContender, open_peer
from forerun.bench.peers.divergence import first_difference, margin_at
from forerun.bench.peers.peer import PeerFailed
from forerun.bench.prompts.workloads import BenchPrompt
from forerun.bench.session import Session
from forerun.cli.bench.peer_options import peer_modes
from forerun.engine import LLM
from forerun.errors import InvalidOption
from forerun.types import SamplingParams
from tests.bench.fakes import HEAD, Scripted, side_by_side

ABOUT = '{"versions": {"toy": "1"}, "precision": "exact", "modes": ["plain", "guess"]}'


def stand_in(folder: Path, *replies: str) -> Path:
    """An executable that takes the place of Python and gives these replies, one per line read."""
    script = folder / "python"
    lines = "\n".join(f"sys.stdin.readline(); print({reply!r}, flush=True)" for reply in replies)
    script.write_text(f"#!{sys.executable}\nimport sys\n{lines}\n")
    script.chmod(0o755)
    return script


def model_file(folder: Path) -> Path:
    path = folder / "toy.gguf"
    path.write_bytes(b"GGUF")
    return path


def test_a_peer_answers_with_its_own_times(tmp_path: Path) -> None:
    answer = '{"tokens": [7, 8, 9], "arrivals": [[0.5, 1], [0.75, 2]], "guesses": 4, "accepted": 1}'
    python = stand_in(tmp_path, ABOUT, answer)
    peer = open_peer("llamacpp", model_file(tmp_path), threads=2, max_len=64, python=python)
    try:
        assert peer.modes == ["plain", "guess"]
        contender = PeerContender(peer, "guess")
        run = contender.answer([1, 2], 3)
        assert contender.name == "llamacpp/guess"
        assert contender.about["precision"] == "exact"
        assert (run.tokens, run.ttft, run.seconds_per_token) == ((7, 8, 9), 0.5, 0.125)
        assert (run.num_guesses, run.num_accepted) == (4, 1)
        with pytest.raises(PeerFailed, match="the peer llamacpp died"):
            contender.answer([1, 2], 3)
    finally:
        peer.close()


@pytest.mark.parametrize(
    ("name", "missing", "command"),
    [
        ("llamacpp", "xllamacpp", "make peers"),
        ("transformers", "torch", 'pip install "forerun[bench]" torch'),
    ],
)
def test_a_missing_peer_is_one_sentence_with_its_command(
    tmp_path: Path, name: str, missing: str, command: str
) -> None:
    python = stand_in(tmp_path, f'{{"missing": "{missing}"}}')
    with pytest.raises(MissingPeer) as caught:
        open_peer(name, model_file(tmp_path), threads=1, max_len=8, python=python)
    assert str(caught.value) == (
        f"the peer {name} needs {missing}, which is not installed; run: {command}"
    )


def test_modes_are_chosen_by_name(tmp_path: Path) -> None:
    python = stand_in(tmp_path, ABOUT)
    peer = open_peer("llamacpp", model_file(tmp_path), threads=1, max_len=8, python=python)
    try:
        assert peer_modes([peer], "all") == [(peer, "plain"), (peer, "guess")]
        assert peer_modes([peer], "guess") == [(peer, "guess")]
        with pytest.raises(InvalidOption, match="unknown peer mode 'gues'; did you mean 'guess'"):
            peer_modes([peer], "plain,gues")
        with pytest.raises(InvalidOption, match="names none of llamacpp's: plain, guess"):
            peer_modes([peer], ",")
    finally:
        peer.close()


def test_what_a_peer_cannot_do_is_told(tmp_path: Path) -> None:
    python = stand_in(tmp_path, '{"error": "ValueError: no such layer"}')
    with pytest.raises(PeerFailed, match="no such layer"):
        open_peer("llamacpp", model_file(tmp_path), threads=1, max_len=8, python=python)
    with pytest.raises(InvalidOption, match="did you mean 'llamacpp'"):
        open_peer("llama.cpp", model_file(tmp_path), threads=1, max_len=8, python=python)
    with pytest.raises(InvalidOption, match="GGUF files only"):
        open_peer("llamacpp", tmp_path, threads=1, max_len=8, python=python)
    with pytest.raises(InvalidOption, match="on the processor; give --device cpu"):
        open_peer("llamacpp", model_file(tmp_path), threads=1, max_len=8, device="cuda")


def test_a_python_that_is_none_is_told(tmp_path: Path) -> None:
    for python in (tmp_path / "absent", tmp_path):
        with pytest.raises(MissingPeer, match="give --peer-python a Python that has llamacpp"):
            open_peer("llamacpp", model_file(tmp_path), threads=1, max_len=8, python=python)


def test_a_worker_names_what_it_lacks(tmp_path: Path) -> None:
    """The shipped workers run in a Python that finds none of the libraries, installed or not."""
    python = tmp_path / "bare"
    python.write_text(
        f"#!{sys.executable}\n"
        "import runpy, sys\n"
        "sys.modules.update(torch=None, transformers=None, xllamacpp=None)\n"
        "sys.argv.pop(0)\n"
        "sys.path.insert(0, sys.argv[0].rpartition('/')[0])\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    python.chmod(0o755)
    for name, missing in (("llamacpp", "xllamacpp"), ("transformers", "torch")):
        with pytest.raises(MissingPeer, match=f"needs {missing},"):
            open_peer(name, model_file(tmp_path), threads=1, max_len=8, python=python)


def test_the_first_difference() -> None:
    assert first_difference([1, 2, 3], [1, 2, 4]) == 2
    assert first_difference([1, 2, 3], [1, 2]) is None


def test_where_we_end_a_peer_does_not_leave_our_text(llm: LLM) -> None:
    end = llm.tokenizer.eos_ids[0]

    class Ending(Scripted):
        def answer(
            self, prompt: Sequence[int], max_tokens: int, _: BenchPrompt | None = None
        ) -> TimedRun:
            return super().answer([*prompt[:3], end], max_tokens)

    class Banned(Scripted):
        def answer(
            self, prompt: Sequence[int], max_tokens: int, _: BenchPrompt | None = None
        ) -> TimedRun:
            return super().answer([*prompt[:3], end + 1], max_tokens)

    side = side_by_side(llm, Ending(PLAIN), peers=[Banned("llamacpp/plain")])
    record = Session(side, HEAD, {}).run(llm, lambda _: None)
    assert record.divergences == []


def test_the_margin_is_the_targets_own(llm: LLM) -> None:
    prompt = [1, 2, 3]
    best = llm.generate(prompt)[0].outputs[0].token_ids  # any token will do for the prefix
    prefix = [*prompt, *best[:1]]
    params = SamplingParams(temperature=0, max_tokens=1, logprobs=5)
    shown = llm.generate(prefix, params)[0].outputs[0].logprobs
    assert shown is not None
    first, second = sorted(shown[0], key=lambda token: -shown[0][token])[:2]
    margin = margin_at(llm, prefix, first, second)
    assert shown[0][first] > shown[0][second]
    assert margin == pytest.approx(shown[0][first] - shown[0][second])


def test_a_peers_own_way_is_recorded_once_per_class(llm: LLM) -> None:
    class Stubborn(Scripted):
        def answer(
            self, prompt: Sequence[int], max_tokens: int, _: BenchPrompt | None = None
        ) -> TimedRun:
            return super().answer([*prompt[:2], 0, 0, 0], max_tokens)

    side = side_by_side(llm, Scripted(PLAIN), peers=[Stubborn("llamacpp/plain")])
    record = Session(side, HEAD, {}).run(llm, lambda _: None)
    assert [d.workload for d in record.divergences] == ["chat", "story"]
    assert {d.at for d in record.divergences} <= {2, 3, 4}
