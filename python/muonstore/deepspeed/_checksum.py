"""One number for what a tensor holds."""
from __future__ import annotations

import zlib

import torch

BLOCK_ELEMENTS = 16 << 20


def crc_of(values: torch.Tensor, crc: int = 0) -> int:
    """CRC-32 of the elements as float32, going on from `crc`.

    Every NaN counts as the same: torch keeps no NaN's bits when it rounds.
    """
    for at in range(0, values.numel(), BLOCK_ELEMENTS):
        part = values[at:at + BLOCK_ELEMENTS].detach().float().cpu()
        nan = part.isnan()
        if nan.any():
            part = part.masked_fill(nan, float("nan"))
        crc = zlib.crc32(part.contiguous().numpy(), crc)
    return crc
