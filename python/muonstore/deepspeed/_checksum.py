"""One small value for what a tensor holds."""
from __future__ import annotations

import zlib
from dataclasses import dataclass

import torch

BLOCK_ELEMENTS = 16 << 20


@dataclass
class Checksum:
    """CRC-32 of elements as float32, and whether NaN is among them.

    Every NaN counts as the same: torch keeps no NaN's bits when it rounds.
    """
    crc: int = 0
    has_nan: bool = False

    def add(self, values: torch.Tensor) -> None:
        for at in range(0, values.numel(), BLOCK_ELEMENTS):
            part = values[at:at + BLOCK_ELEMENTS].detach().float().cpu()
            nan = part.isnan()
            if nan.any():
                self.has_nan = True
                part = part.masked_fill(nan, float("nan"))
            self.crc = zlib.crc32(part.contiguous().numpy(), self.crc)


def checksum_of(values: torch.Tensor) -> Checksum:
    checksum = Checksum()
    checksum.add(values)
    return checksum
