"""Checkpoints and optimizer state of Muon runs under ZeRO, by name and shape.

    import muonstore

    ckpt = muonstore.open("runs/7")
    ckpt.read("blocks.0.attn.qkv.weight", "momentum")   # a NumPy array
    muonstore.convert("runs/7", "out", stage=3, world_size=4, zero_init=False)

Everything happens in the C++ library; failures are `muonstore.Error`. Functions
that need torch or DeepSpeed are in muonstore.deepspeed; `muonstore.OffloadMuon`
needs torch, which is imported with it.
"""
from typing import TYPE_CHECKING

from muonstore._load import _core
from muonstore._arrays import Opaque
from muonstore._checkpoint import Checkpoint, open
from muonstore._convert import convert
from muonstore._errors import (DataLossError, Error, InternalError,
                               InvalidArgumentError, NotFoundError,
                               ResourceExhaustedError, UnavailableError,
                               UnsupportedError)
from muonstore._inspect import diff, verify
from muonstore._orthogonalize import orthogonalize

if TYPE_CHECKING:
    from muonstore.optimizer import OffloadMuon

__version__ = _core.__version__
__all__ = [
    "Checkpoint", "DataLossError", "Error", "InternalError",
    "InvalidArgumentError", "NotFoundError", "Opaque", "ResourceExhaustedError",
    "UnavailableError", "UnsupportedError", "convert", "diff", "open",
    "orthogonalize", "verify",
]


def __getattr__(name):
    if name == "OffloadMuon":
        from muonstore.optimizer import OffloadMuon
        return OffloadMuon
    raise AttributeError(f"module 'muonstore' has no attribute {name!r}")
