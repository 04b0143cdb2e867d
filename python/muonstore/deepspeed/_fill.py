"""Writes a checkpoint's values into a live engine, by an agreed plan.

Every rank reads the elements that its buffers hold and no others. What is
filled is remembered by its CRC-32, so that it can be compared with the engine
afterwards.
"""
from __future__ import annotations

from typing import Any

import torch

from muonstore._load import _core
from muonstore.deepspeed import _engine
from muonstore.deepspeed._checksum import BLOCK_ELEMENTS, Checksum
from muonstore.deepspeed._engine import ADAM, FlatGroup
from muonstore.deepspeed._plan import KINDS, STATE_NAMES, Plan, \
    persistent_buffers

# How torch's optimizers run, not what they compute.
_EXECUTION_KEYS = {"foreach", "fused", "capturable", "differentiable"}


class Filler:
    def __init__(self, engine: Any, layout: _engine.Layout, plan: Plan,
                 checkpoint: Any):
        self._engine = engine
        self._optimizer = engine.optimizer
        self._base = engine.optimizer.optimizer
        self._layout = layout
        self._plan = plan
        self._checkpoint = checkpoint
        self._core = checkpoint._full()
        # (parameter, kind) -> of this rank's elements.
        self.filled: dict[tuple[str, str], Checksum] = {}

    def fill_state(self) -> None:
        for index, flat in enumerate(self._layout.flat_groups):
            self._fill(flat.master.data, flat, "master")
            state = self._base.state[flat.master]
            for kind in KINDS[flat.optimizer]:
                buffer = self._buffer(index, flat, kind, state)
                self._fill(buffer, flat, kind)
                state[STATE_NAMES[kind]] = buffer
            if flat.optimizer == ADAM:
                state["step"] = self._step_of(flat)
        self._fill_frozen()
        self._fill_buffers()

    def fill_hyper_parameters(self) -> None:
        for index, plan in self._plan.groups.items():
            group = self._base.param_groups[index]
            for key, value in plan.hyper_parameters.items():
                if key in _EXECUTION_KEYS:
                    continue
                if key not in group:
                    self._plan.notes.append(
                        f"param group {index} has no {key}; the checkpoint's "
                        f"is {value}")
                    continue
                if isinstance(group[key], tuple):
                    value = tuple(value)
                group[key] = value
            if group.get("use_muon") and hasattr(self._optimizer, "muon_beta"):
                self._optimizer.muon_beta = group["momentum"]
                self._optimizer.muon_ns_method = group.get("ns_method", "gram")

    def _buffer(self, index: int, flat: FlatGroup, kind: str,
                state: dict) -> torch.Tensor:
        """Zeros where this rank keeps the state of a kind."""
        old = state.get(STATE_NAMES[kind])
        if kind != "momentum":
            return old.zero_() if _fits(old, flat.master) \
                else torch.zeros_like(flat.master.data)
        dtype = getattr(torch, self._plan.momentum_dtype)
        numel = flat.whole_elements if self._layout.momentum_is_whole \
            else flat.master.numel()
        private = getattr(self._optimizer, "muon_momentum_buffer_partitioned_"
                          "groups_flat", {}) if flat.private_momentum else {}
        if _fits(old, torch.empty(numel, dtype=dtype, device="meta")):
            buffer = old.zero_()
        else:
            buffer = torch.zeros(numel, dtype=dtype, device=flat.master.device)
        if flat.private_momentum:
            # The buffer that the step reads is the one that is saved.
            buffer.swappable = False
            buffer.ds_id = flat.master.ds_id
            private[index] = buffer
        return buffer

    def _step_of(self, flat):
        step = self._plan.groups[flat.group].step
        adam = type(_engine.adam_of(self._base)).__name__
        return torch.tensor(float(step)) if adam in ("Adam", "AdamW") else step

    def _fill(self, buffer, flat, kind):
        if kind == "master":
            buffer.zero_()  # Paddings, too.
        factor = self._plan.momentum_factor if kind == "momentum" else 1.0
        for placed, begin, values in pieces(self._layout, flat, kind, buffer):
            entry = self._plan.entries[placed.name, kind]
            if entry is not None:
                read = self._read(entry["index"], begin, values, factor)
                self.filled[placed.name, kind] = read
                if read.has_nan:
                    self._plan.notes.append(
                        f"{placed.name}/{kind} has NaN, as the checkpoint has; "
                        "`ckpt-inspect momentum` finds an earlier tag without")

    def _read(self, index, begin, values, factor=1.0):
        """Elements from `begin` on into a 1-D tensor; their checksum."""
        checksum = Checksum()
        for at in range(0, values.numel(), BLOCK_ELEMENTS):
            part = values[at:at + BLOCK_ELEMENTS]
            direct = part.dtype == torch.float32 and part.device.type == "cpu"
            floats = part if direct else torch.empty(part.numel())
            array = floats.numpy()
            _core.read_floats(self._core, index, begin + at, array, factor)
            checksum.add(floats)
            if not direct:
                part.copy_(floats)
        return checksum

    def _fill_frozen(self):
        rank = self._layout.ranks.rank
        for name, parameter in self._engine.module.named_parameters():
            entry = self._plan.frozen.get(name)
            if entry is None:
                continue
            begin, values = 0, parameter.data.reshape(-1)
            if hasattr(parameter, "ds_tensor"):
                piece = parameter.partition_numel()
                begin = min(rank * piece, parameter.ds_numel)
                values = parameter.ds_tensor.data[:min(
                    piece, parameter.ds_numel - begin)]
            self._read(entry["index"], begin, values)

    def _fill_buffers(self):
        for name, buffer in persistent_buffers(self._engine.module):
            if name in self._plan.buffers:
                buffer.copy_(self._checkpoint.read(name, "buffer", torch=True))


def _fits(old, like):
    return torch.is_tensor(old) and old.shape == like.shape and \
        old.dtype == like.dtype


def pieces(layout: _engine.Layout, flat: FlatGroup, kind: str,
           buffer: torch.Tensor):
    """(parameter, first element, 1-D view) of what this rank's buffer holds."""
    for placed in flat.parameters:
        if kind == "momentum" and layout.momentum_is_whole:
            if placed.whole_at is not None:
                yield placed, 0, buffer[placed.whole_at:placed.whole_at +
                                        placed.numel]
        elif placed.length:
            yield placed, placed.begin, buffer[placed.at:placed.at +
                                               placed.length]


def refresh_weights(optimizer: Any, layout: _engine.Layout) -> None:
    """The compute weights from the masters, on all ranks. Collective."""
    if layout.stage != 3:
        optimizer.update_lp_params()
        return
    for i, flat in enumerate(layout.flat_groups):
        flat.weight.data.copy_(flat.master.data)
        group = optimizer.fp16_partitioned_groups[i]
        for part, values in zip(group, optimizer.unflatten(flat.weight, group)):
            part.data = values.data


def forget_old_links(optimizer: Any) -> None:
    """What DeepSpeed keeps beside its state and would not look up again."""
    if hasattr(optimizer, "_muon_pending_momentum"):
        optimizer._muon_pending_momentum.clear()
    if hasattr(optimizer, "_link_all_hp_params"):
        optimizer._link_all_hp_params()
        optimizer._hp_optimizer_states_linked = False
