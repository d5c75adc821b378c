"""Peers on the command line: who takes part, in which modes, and how they are started."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from forerun.cli.bench.options import ALL, split
from forerun.cli.bench.record_head import model_path
from forerun.cli.machine import read_cpu
from forerun.cli.options.shared import bundle
from forerun.engine_config import EngineConfig
from forerun.errors import InvalidOption
from forerun.option_checks import require_known
from forerun.option_fields import option

if TYPE_CHECKING:
    from forerun.bench.peers import Peer, PeerContender

BUILT: Final = Path(".peers", "llama-server")  # where `make peers` puts it
WHEEL: Final = "wheel"


@dataclass(frozen=True)
class PeerOptions:
    peers: str = option("", "transformers, llamacpp, or both by comma.")
    peer_modes: str = option(ALL, "Their modes, by comma; or all.")
    peer_python: Path | None = option(None, "A Python that has them; this one by default.")
    llama_server: str = option(str(BUILT), "A llama-server; or wheel, the generic wheel.")

    def __post_init__(self) -> None:
        given = (self.peers, self.peer_modes, self.peer_python, self.llama_server)
        if not split(self.peers) and given != ("", ALL, None, str(BUILT)):
            raise InvalidOption(
                "--peers names nobody; give transformers, llamacpp, or both by comma."
            )
        self.server()  # what is not there is told before anything is loaded

    def server(self) -> Path | None:
        """What `make peers` built is taken where it is, else the generic wheel (None); what a user
        names must be there."""
        path = Path(self.llama_server)
        if self.llama_server == WHEEL or (path == BUILT and not path.exists()):
            return None
        if not path.is_file():
            raise InvalidOption(
                f"--llama-server {path} is no file; run `make peers`, or give another."
            )
        return path.resolve()


peer_options = bundle(PeerOptions, "Peers")


def open_peers(
    stack: ExitStack, engine: EngineConfig, wanted: PeerOptions, max_len: int, slots: int = 1
) -> list[PeerContender]:
    """Started before our own model is loaded, so that a missing peer is told at once."""
    from forerun.bench.peers import PEERS, PeerContender, open_peer
    from forerun.engine.setup.kernel_choice import is_on_gpu

    opened: list[Peer] = []
    model, names = model_path(engine.model), split(wanted.peers)
    require_known("peer", PEERS, *names)
    for name in names:
        # transformers expands a GGUF of 1.5 billion weights for minutes.
        print(f"starting {name} with {model.name} …", file=sys.stderr, flush=True)
        peer = open_peer(
            name,
            model,
            threads=num_threads(engine),
            max_len=max_len,
            slots=slots,
            python=wanted.peer_python,
            llama_server=wanted.server(),
            device="cuda" if is_on_gpu(engine) else "cpu",
        )
        stack.callback(peer.close)
        opened.append(peer)
    return [PeerContender(peer, mode) for peer, mode in peer_modes(opened, wanted.peer_modes)]


def peer_modes(peers: list[Peer], wanted: str) -> list[tuple[Peer, str]]:
    """Each peer with each of its modes that is wanted."""
    known = [(peer, mode) for peer in peers for mode in peer.modes]
    if wanted == ALL:
        return known
    names = split(wanted)
    require_known("peer mode", [mode for _, mode in known], *names)
    for peer in peers:
        if not set(peer.modes) & set(names):
            valid = ", ".join(peer.modes)
            raise InvalidOption(f"--peer-modes names none of {peer.name}'s: {valid}.")
    return [(peer, mode) for peer, mode in known if mode in names]


def peer_versions(peers: list[PeerContender]) -> dict[str, str]:
    return {name: version for one in peers for name, version in one.peer.about["versions"].items()}


def num_threads(engine: EngineConfig) -> int:
    """Theirs are as many as ours."""
    return engine.num_threads or read_cpu().num_threads
