"""Peers on the command line: who takes part, in which modes, and how they are started."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from forerun.cli.bench.options import ALL, panel, split
from forerun.cli.bench.record_head import model_path
from forerun.cli.machine import read_cpu
from forerun.cli.options.engine import EngineOptions
from forerun.errors import InvalidOption, unknown_name

if TYPE_CHECKING:
    from forerun.bench.peers import Peer, PeerContender

BUILT: Final = Path(".peers", "llama-server")  # where `make peers` puts it
WHEEL: Final = "wheel"

_peers = panel("Peers")


@dataclass(frozen=True)
class PeerOptions:
    peers: Annotated[str, _peers("--peers", "transformers, llamacpp, or both by comma.")] = ""
    peer_modes: Annotated[str, _peers("--peer-modes", "Their modes, by comma; or all.")] = ALL
    peer_python: Annotated[
        Path | None, _peers("--peer-python", "A Python that has them; this one by default.")
    ] = None
    llama_server: Annotated[
        str, _peers("--llama-server", "A llama-server; or wheel, the generic wheel.")
    ] = str(BUILT)

    def __post_init__(self) -> None:
        is_default = (self.peer_modes, self.peer_python, self.llama_server) == (
            ALL,
            None,
            str(BUILT),
        )
        if not split(self.peers) and (self.peers or not is_default):
            raise InvalidOption(
                "--peers names nobody; give transformers, llamacpp, or both by comma."
            )
        _ = self.server  # a mistake is told at once

    @property
    def server(self) -> Path | None:
        """What `make peers` built where it is there; what a user names must be. None: the wheel."""
        text, path = self.llama_server, Path(self.llama_server)
        if text == WHEEL or (path == BUILT and not path.exists()):
            return None
        if not path.is_file():
            raise InvalidOption(
                f"--llama-server {text} is no file; run `make peers`, or give another."
            )
        return path.resolve()


def open_peers(
    stack: ExitStack, engine: EngineOptions, wanted: PeerOptions, max_len: int, slots: int = 1
) -> list[PeerContender]:
    """Started before our own model is loaded, so that a missing peer is told at once."""
    from forerun.bench.peers import PeerContender, open_peer

    opened: list[Peer] = []
    for name in split(wanted.peers):
        peer = open_peer(
            name,
            model_path(engine.model),
            threads=num_threads(engine),
            max_len=max_len,
            slots=slots,
            python=wanted.peer_python,
            llama_server=wanted.server,
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
    for name in names:
        if name not in (mode for _, mode in known):
            raise unknown_name("peer mode", name, (mode for _, mode in known))
    for peer in peers:
        if not set(peer.modes) & set(names):
            valid = ", ".join(peer.modes)
            raise InvalidOption(f"--peer-modes names none of {peer.name}'s: {valid}.")
    return [(peer, mode) for peer, mode in known if mode in names]


def peer_versions(peers: list[PeerContender]) -> dict[str, str]:
    return {name: version for one in peers for name, version in one.peer.about["versions"].items()}


def num_threads(engine: EngineOptions) -> int:
    """Theirs are as many as ours."""
    return engine.num_threads or read_cpu().num_cores
