"""Compares a filled engine with what was read, parameter by parameter.

The engine is looked at anew: its buffers, not those that were written to. Over
all ranks every element of every parameter must have been filled, this rank's
must be what was read, and the compute weights must be the rounded masters.
"""
from __future__ import annotations

from typing import Any

import torch

from muonstore._load import _core
from muonstore.deepspeed import _engine
from muonstore.deepspeed._checksum import Checksum, checksum_of
from muonstore.deepspeed._fill import pieces
from muonstore.deepspeed._plan import KINDS, STATE_NAMES, Plan


def check(engine: Any, layout: _engine.Layout, plan: Plan,
          filled: dict[tuple[str, str], Checksum]) -> None:
    """Collective. InternalError that names the parameter, on every rank."""
    ranges: dict[tuple[str, str], list] = {}

    def look():
        for flat in layout.flat_groups:
            _check_weights(layout, flat)
            for kind, buffer in _buffers(engine, flat):
                for placed, begin, values in pieces(layout, flat, kind, buffer):
                    key = placed.name, kind
                    if plan.entries[key] is None:
                        continue
                    if filled.get(key) != checksum_of(values):
                        _fail("the engine does not hold what was read", key)
                    ranges[key] = [begin, begin + values.numel()]

    layout.ranks.together(look)
    everyone = layout.ranks.gather(ranges)
    layout.ranks.together(lambda: _require_covered(layout, plan, everyone))
    if layout.stage != 3:
        _require_same_weights(layout)


def _fail(message, key):
    _core.fail("Internal", message, tensor="/".join(key))


def _buffers(engine, flat):
    yield "master", flat.master
    state = engine.optimizer.optimizer.state[flat.master]
    for kind in KINDS[flat.optimizer]:
        yield kind, state[STATE_NAMES[kind]]


def _check_weights(layout, flat):
    for placed in flat.parameters:
        if not placed.length:
            continue
        own = slice(placed.at, placed.at + placed.length)
        weight = flat.weight[own]
        if layout.stage == 3:
            weight = placed.parameter.ds_tensor.data[:placed.length]
        rounded = flat.master.detach()[own].to(weight.dtype).to(weight.device)
        if not torch.allclose(rounded, weight, rtol=0, atol=0,
                              equal_nan=True):
            _fail("the compute weight is not the rounded master",
                  (placed.name, "weight"))


def _require_covered(layout, plan, everyone):
    for flat in layout.flat_groups:
        for placed in flat.parameters:
            for kind in ("master", *KINDS[flat.optimizer]):
                key = placed.name, kind
                if plan.entries[key] is None:
                    continue
                end = 0
                for first, last in sorted(ranges[key] for ranges in everyone
                                          if key in ranges):
                    if first > end:
                        _fail(f"no rank holds elements {end} to {first - 1}",
                              key)
                    end = max(end, last)
                if end != placed.numel:
                    _fail(f"no rank holds elements from {end} on", key)


def _require_same_weights(layout):
    own = [(placed.name, checksum_of(placed.parameter.data.reshape(-1)))
           for flat in layout.flat_groups for placed in flat.parameters]
    everyone = layout.ranks.gather(own)

    def compare():
        for rank, theirs in enumerate(everyone):
            for mine, other in zip(own, theirs):
                if mine != other:
                    _fail(f"the compute weight here and on rank {rank} differ",
                          (mine[0], "weight"))

    layout.ranks.together(compare)
