"""Other libraries on the same prompts, each in its own process."""

from forerun.bench.peers.peer import PEERS, MissingPeer, Peer, PeerContender, open_peer

__all__ = ["PEERS", "MissingPeer", "Peer", "PeerContender", "open_peer"]
