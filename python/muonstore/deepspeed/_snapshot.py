"""Copies of what a rank saves, taken at once, written later."""
from __future__ import annotations

import io
from typing import Any

import torch
import torch.distributed as dist

from muonstore.deepspeed import _engine
from muonstore.deepspeed._describe import singles, state_of


def take(engine: Any, layout: _engine.Layout, segments: list) -> list:
    """One array of bytes a segment, in host memory. Collective."""
    wanted = {name for _, flat_group, name, _ in segments if flat_group < 0}
    whole = {}
    for name, tensor in singles(engine, layout):
        value = _whole(tensor, layout)
        if name in wanted:
            whole[name] = value
    arrays = []
    for kind, flat_group, name, num_elements in segments:
        if flat_group < 0:
            arrays.append(_bytes_of(whole[name]))
        else:
            flat = layout.flat_groups[flat_group]
            arrays.append(_bytes_of(_own(engine, layout, flat, kind,
                                         num_elements)))
    return arrays


def _own(engine, layout, flat, kind, num_elements):
    """What this rank owns of a flat group, zeros in the paddings."""
    buffer = state_of(engine, flat, kind)
    if buffer is None:
        return torch.zeros(num_elements, dtype=torch.float32)
    pin = buffer.device.type == "cuda"
    out = torch.zeros(num_elements, dtype=buffer.dtype, pin_memory=pin)
    is_whole = kind == "momentum" and layout.momentum_is_whole
    for placed in flat.parameters:
        at = placed.whole_at + placed.begin if is_whole and placed.length \
            else placed.at
        out[placed.at:placed.at + placed.length].copy_(
            buffer[at:at + placed.length])
    return out


def _whole(tensor, layout):
    """A tensor that is not cut, on the host; its pieces gathered at stage 3."""
    if not hasattr(tensor, "ds_tensor"):
        return tensor.detach().cpu().clone()
    piece = tensor.ds_tensor.detach().contiguous().view(torch.uint8)
    parts = [torch.empty_like(piece) for _ in range(layout.ranks.size)]
    dist.all_gather(parts, piece, group=layout.ranks.group)
    values = torch.cat(parts).view(tensor.ds_tensor.dtype)
    return values[:tensor.ds_numel].cpu()


def _bytes_of(tensor):
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy()


def carried_bytes(engine: Any, client_state: dict) -> bytes:
    """What a checkpoint carries beside tensors, as torch.save writes it."""
    optimizer = engine.optimizer
    model = {
        **client_state,
        "lr_scheduler": engine.lr_scheduler.state_dict()
        if hasattr(engine.lr_scheduler, "state_dict") else None,
        "skipped_steps": engine.skipped_steps,
        "global_steps": engine.global_steps,
        "global_samples": engine.global_samples,
        "ds_config": engine.config,
    }
    optim = {"optimizer_state_dict": {
        name: getattr(optimizer, name) for name in
        ("loss_scaler", "dynamic_loss_scale", "overflow", "clip_grad")
        if hasattr(optimizer, name)}}
    out = io.BytesIO()
    torch.save({"model_states": model, "optim_states": optim}, out)
    return out.getvalue()
