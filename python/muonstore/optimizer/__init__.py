"""muonstore.OffloadMuon: Muon and Adam whose state the store holds.

Needs torch, and takes the one that is installed.
"""
from muonstore.optimizer._optimizer import OffloadMuon
from muonstore.optimizer._saves import Resumed

__all__ = ["OffloadMuon", "Resumed"]
