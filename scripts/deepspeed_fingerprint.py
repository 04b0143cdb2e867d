#!/usr/bin/env python3
"""Checks a live DeepSpeed engine against a checkpoint's fingerprint, by name.

DeepSpeed goes by position: it loads a checkpoint whose parameters stand in
another order without a word. ckpt-convert therefore writes
`<root>/<tag>.fingerprint.json` beside each DeepSpeed tag. After a load:

    from deepspeed_fingerprint import check
    engine.load_checkpoint("ckpts", tag="step5")
    problems = check(engine, "ckpts/step5.fingerprint.json")
    assert not problems, problems

Every rank must call it, right after the load; every rank gets the same list. It
reads ZeRO stages 1, 2 and 3 (state on NVMe cannot be read and is an error) and
holds one parameter at a time. Needs what DeepSpeed needs.

A fingerprint has for each parameter the number of elements and, for `master`
and `momentum`, the CRC-32 of its values as little-endian float32 in row-major
order.
"""
import json
import zlib

import numpy as np
import torch
import torch.distributed as dist


def check(engine, path):
    """What differs, as sentences; the empty list when nothing does."""
    with open(path, encoding="utf-8") as f:
        expected = {p["name"]: p for p in json.load(f)["parameters"]}
    problems, seen = [], set()
    for name, numel, slices in _parameters(engine):
        seen.add(name)
        for kind, (start, values) in slices.items():
            full = _gather(numel, start, values)
            if full is not None:
                problems += _compare(expected.get(name), name, kind, full)
    problems += [f"{name} is in the fingerprint and is not optimized here"
                 for name in expected if name not in seen]
    box = [problems]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def _compare(entry, name, kind, full):
    if entry is None:
        return [f"{name} is not in the fingerprint"] if kind == "master" else []
    if entry["num_elements"] != full.size:
        return [f"{name} has {full.size} elements here and "
                f"{entry['num_elements']} in the fingerprint"]
    want = entry.get(kind)
    have = f"{zlib.crc32(full.astype('<f4').tobytes()):08x}"
    if want is not None and want != have:
        return [f"{name}: the {kind} here is not that of the checkpoint "
                f"(CRC-32 {have}, expected {want})"]
    return []


def _gather(numel, start, values):
    """The whole parameter on rank 0, from every rank's piece; else None."""
    mine = None
    if values is not None and values.numel():
        mine = (start, values.detach().float().cpu().numpy().reshape(-1))
    pieces = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(mine, pieces, dst=0)
    if pieces is None:
        return None
    full = np.full(numel, np.nan, np.float32)
    for piece in pieces:
        if piece is not None:
            full[piece[0]:piece[0] + piece[1].size] = piece[1]
    return full


def _parameters(engine):
    """(name, elements, {kind: (start, this rank's piece or None)}), in an order
    that is the same on all ranks."""
    optimizer = engine.optimizer
    names = {id(p): n for n, p in engine.module.named_parameters()}
    writer = type(optimizer).__name__
    readers = {"DeepSpeedZeroOptimizer": _zero12, "BF16_Optimizer": _bf16,
               "DeepSpeedZeroOptimizer_Stage3": _zero3}
    if writer not in readers:
        raise NotImplementedError(f"no rule for {writer}")
    for parameter, numel, slices in readers[writer](optimizer):
        yield names[id(parameter)], numel, slices


def _cut(flat, rank, size, start, numel, source=None, source_offset=None):
    """The part of [start, start + numel) of a flat group that `rank` owns."""
    low, high = max(start, rank * size), min(start + numel, (rank + 1) * size)
    if flat is None or low >= high:
        return 0, None
    if source is None:
        return low - start, flat[low - rank * size:high - rank * size]
    return low - start, source[source_offset + low - start:
                               source_offset + high - start]


def _momentum(base, flat):
    return base.state.get(flat, {}).get("momentum_buffer")


def _zero12(optimizer):
    rank = dist.get_rank()
    for i, group in enumerate(optimizer.round_robin_bit16_groups):
        flat = optimizer.single_partition_of_fp32_groups[i]
        size = int(optimizer.partition_size[i])
        momentum = _momentum(optimizer.optimizer, flat)
        is_whole = not optimizer.cpu_offload
        at, offset = {}, 0  # Whole matrices: where each starts.
        for p in optimizer.params_in_partition[i]:
            at[id(p)], offset = offset, offset + p.numel()
        for p, start in zip(group, optimizer.round_robin_bit16_offsets[i]):
            slices = {"master": _cut(flat, rank, size, start, p.numel())}
            if _any_rank(momentum is not None):
                whole = (momentum, at.get(id(p))) if is_whole else ()
                slices["momentum"] = _cut(momentum, rank, size, start,
                                          p.numel(), *whole)
            yield p, p.numel(), slices


def _bf16(optimizer):
    rank = dist.get_rank()
    for i, group in enumerate(optimizer.bf16_groups):
        flat = optimizer.fp32_groups_flat_partition[i]
        momentum = _momentum(optimizer.optimizer, flat)
        start = 0
        for p in group:
            slices = {"master": _cut(flat, rank, flat.numel(), start,
                                     p.numel())}
            if momentum is not None:
                slices["momentum"] = _cut(momentum, rank, flat.numel(), start,
                                          p.numel())
            yield p, p.numel(), slices
            start += p.numel()


def _zero3(optimizer):
    rank = dist.get_rank()
    for i, group in enumerate(optimizer.fp16_groups):
        if optimizer._swappable_optimizer_subgroup(i):
            raise NotImplementedError("optimizer state is on NVMe")
        flat = optimizer.fp32_partitioned_groups_flat[i]
        momentum = _momentum(optimizer.optimizer, flat)
        offset = 0
        for p in group:
            piece = p.partition_numel()
            start = min(rank * piece, p.ds_numel)
            real = min(piece, p.ds_numel - start)
            slices = {"master": (start, flat[offset:offset + real])}
            if momentum is not None:
                slices["momentum"] = (start, momentum[offset:offset + real])
            yield p, p.ds_numel, slices
            offset += piece


def _any_rank(value):
    flag = torch.tensor([int(value)])
    if dist.get_backend() == "nccl":
        flag = flag.cuda()
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return bool(flag.item())
