"""reasoning-gym, Gymnasium, TextArena and verifiers, each run by an interpreter of its own."""

from flightschool.environments.peers.importing import PeerSettings, import_peer, load_knobs
from flightschool.environments.peers.process import ECOSYSTEMS, PeerProcess, PeerSession, close_peers, connect_peer

__all__ = [
    "ECOSYSTEMS",
    "PeerProcess",
    "PeerSession",
    "PeerSettings",
    "close_peers",
    "connect_peer",
    "import_peer",
    "load_knobs",
]
