"""Other libraries on the same prompts, each in a process of its own."""

from forerun.bench.peers.peer import PEERS, MissingPeer, Peer, PeerContender, open_peer

__all__ = ["PEERS", "MissingPeer", "Peer", "PeerContender", "open_peer"]
