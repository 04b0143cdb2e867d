"""torch.amp.GradScaler: the scale that gradients come with."""
from __future__ import annotations

from typing import Any

import torch


def loss_scale_of(optimizer: Any, scaler: Any) -> float:
    """1 where gradients have been unscaled, or there is no scaler."""
    if scaler is not None:
        return float(scaler.get_scale())
    scale = getattr(optimizer, "grad_scale", None)
    return 1.0 if scale is None else float(scale)


def found_overflow(optimizer: Any) -> bool:
    """What an unscaler found in gradients that may show it no more; those that
    come with their scale still do."""
    found = getattr(optimizer, "found_inf", None)
    return (found is not None and getattr(optimizer, "grad_scale", None) is None
            and float(found) > 0)


def tell_scaler(scaler: Any, optimizer: Any, overflow: bool) -> None:
    """What all ranks found, for scaler.update(); gradients that were folded in
    it cannot look at, and of shards each rank has its own."""
    if not scaler.is_enabled():
        return
    found = torch.tensor(float(overflow))
    state = scaler._per_optimizer_states[id(optimizer)]
    state["found_inf_per_device"] = {found.device: found}
