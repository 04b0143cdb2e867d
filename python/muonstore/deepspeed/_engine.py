"""Where a live DeepSpeed engine keeps its state, read off the engine.

Nothing is guessed from the config: order, offsets, paddings, sub-groups and the
form of the momentum are those of the optimizer's own buffers.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

import torch

from muonstore._load import _core
from muonstore.deepspeed._ranks import Ranks

# Optimizers whose state is known, and the kinds that they keep.
MUON, ADAM = "muon", "adam"


@dataclass
class Placed:
    """A parameter in a flat group. Elements [begin, begin + length) of it are
    elements [at, at + length) of this rank's flat buffers."""
    name: str
    parameter: Any
    numel: int
    shape: tuple
    begin: int
    at: int
    length: int
    pad_after: int = 0
    # Where its full momentum starts on this rank, where that is kept whole.
    whole_at: Optional[int] = None


@dataclass
class FlatGroup:
    """Buffers of one rank: a param group, at stage 3 a sub-group."""
    group: int  # Index of the param group.
    optimizer: str
    master: torch.Tensor  # 1-D, of this rank; padding included.
    weight: torch.Tensor  # The low-precision counterpart of `master`.
    parameters: list[Placed] = field(default_factory=list)
    whole_elements: int = 0  # Of whole momentum on this rank.
    private_momentum: bool = False  # A second buffer that the step reads.


@dataclass
class Layout:
    ranks: Ranks
    stage: int
    optimizer_class: str
    precision: str
    offload: str
    momentum_is_whole: bool
    flat_groups: list[FlatGroup]

    @property
    def momentum_is_scaled(self) -> bool:
        """In units of the loss scale, as fp16 without offload keeps it."""
        return self.precision == "fp16" and self.offload == "none"

    def names(self) -> set[str]:
        return {p.name for flat in self.flat_groups for p in flat.parameters}


def refuse(message: str, *, found: str = "", expected: str = "",
           tensor: str = "") -> None:
    """Raises UnsupportedError: this engine is not one that can be filled."""
    _core.fail("Unsupported", message, found=found, expected=expected,
               tensor=tensor)


def read(engine: Any) -> Layout:
    """Describes the engine; UnsupportedError for one that is not known."""
    if not hasattr(engine, "zero_optimization_stage"):
        _core.fail("InvalidArgument", "this is no engine: give the first thing "
                   "that deepspeed.initialize returns",
                   expected="DeepSpeedEngine", found=type(engine).__name__)
    _require_one_group_of_ranks(engine)
    optimizer = engine.optimizer
    kind = type(optimizer).__name__
    readers = {"DeepSpeedZeroOptimizer": _read_zero12,
               "BF16_Optimizer": _read_bf16,
               "DeepSpeedZeroOptimizer_Stage3": _read_zero3}
    if kind not in readers:
        refuse("this engine's optimizer is not one that can be filled",
               expected=", ".join(readers), found=kind)
    _require_known_base(optimizer.optimizer)
    ranks = Ranks(optimizer.dp_process_group)
    names = {id(p): n for n, p in engine.module.named_parameters()}
    layout = Layout(ranks=ranks, stage=3 if kind.endswith("3") else 1,
                    optimizer_class=kind, precision=_precision_of(engine),
                    offload=_offload_of(optimizer), momentum_is_whole=False,
                    flat_groups=[])
    readers[kind](optimizer, names, layout)
    return layout


def _require_one_group_of_ranks(engine):
    if getattr(engine, "has_moe_layers", False):
        refuse("engines with experts (MoE) cannot be filled yet")
    if type(engine).__name__ == "PipelineEngine":
        refuse("pipeline engines cannot be filled yet")
    if getattr(engine, "mp_world_size", 1) != 1:
        refuse("engines with tensor parallelism cannot be filled yet",
               found=f"{engine.mp_world_size} ranks a tensor")
    config = engine.zero_optimization_stage() and engine._config.zero_config
    for option in ("zero_hpz_partition_size", "mics_shard_size"):
        if config and getattr(config, option, 1) > 1:
            refuse(f"engines with {option} cannot be filled yet",
                   found=str(getattr(config, option)))


def adam_of(base: Any) -> Any:
    """The optimizer of the groups without Muon, or None: Muon's own update."""
    if type(base).__name__ == "MuonWithAuxAdam":
        return base.aux_optimizer
    return base


def _require_known_base(base):
    adam = adam_of(base)
    known = ("FusedAdam", "DeepSpeedCPUAdam", "Adam", "AdamW")
    if adam is not None and type(adam).__name__ not in known:
        refuse("this engine's base optimizer is not one that can be filled",
               expected="Muon, " + ", ".join(known), found=type(adam).__name__)
    if any(group.get("amsgrad") for group in base.param_groups):
        refuse("amsgrad keeps state that cannot be filled")


def _precision_of(engine):
    if engine.fp16_enabled():
        return "fp16"
    return "bf16" if engine.bfloat16_enabled() else "fp32"


def _offload_of(optimizer):
    if getattr(optimizer, "swap_optimizer", False) or \
            getattr(optimizer, "params_in_nvme_and_cpu", False):
        refuse("engines that keep state on NVMe cannot be filled; offload to "
               "the CPU, or convert with ckpt-convert --offload cpu")
    on_cpu = getattr(optimizer, "cpu_offload", False) or \
        getattr(optimizer, "offload_optimizer", False)
    return "cpu" if on_cpu else "none"


def _optimizer_of(group):
    return MUON if group.get("use_muon", False) else ADAM


def _place(flat, rank, size, placed):
    """Cuts [start, start + numel) of a concatenation to what `rank` owns."""
    start = placed.at
    low, high = max(start, rank * size), min(start + placed.numel,
                                             (rank + 1) * size)
    placed.begin, placed.at = max(low - start, 0), max(low - rank * size, 0)
    placed.length = max(high - low, 0)
    flat.parameters.append(placed)


def _read_zero12(optimizer, names, layout):
    layout.stage = 2 if optimizer.partition_gradients else 1
    layout.momentum_is_whole = not optimizer.cpu_offload
    rank = layout.ranks.rank
    for i, group in enumerate(optimizer.optimizer.param_groups):
        if optimizer.real_dp_process_group[i] is not optimizer.dp_process_group:
            refuse("param groups with ranks of their own cannot be filled yet",
                   found=f"group {i}")
        flat = FlatGroup(
            group=i, optimizer=_optimizer_of(group),
            master=optimizer.single_partition_of_fp32_groups[i],
            weight=optimizer.parallel_partitioned_bit16_groups[i][rank])
        size = int(optimizer.partition_size[i])
        for p, start, pad in zip(optimizer.round_robin_bit16_groups[i],
                                 optimizer.round_robin_bit16_offsets[i],
                                 optimizer.round_robin_bit16_padding[i]):
            _place(flat, rank, size,
                   Placed(names[id(p)], p, p.numel(), tuple(p.shape), 0,
                          int(start), 0, int(pad)))
        if layout.momentum_is_whole and flat.optimizer == MUON:
            at = {id(placed.parameter): placed for placed in flat.parameters}
            for p in optimizer.params_in_partition[i]:
                at[id(p)].whole_at = flat.whole_elements
                flat.whole_elements += p.numel()
        layout.flat_groups.append(flat)


def _read_bf16(optimizer, names, layout):
    layout.stage = 1
    rank = layout.ranks.rank
    for i, group in enumerate(optimizer.optimizer.param_groups):
        flat = FlatGroup(group=i, optimizer=_optimizer_of(group),
                         master=optimizer.fp32_groups_flat_partition[i],
                         weight=optimizer.bf16_partitioned_groups[i][rank])
        start = 0
        for p in optimizer.bf16_groups[i]:
            _place(flat, rank, flat.master.numel(),
                   Placed(names[id(p)], p, p.numel(), tuple(p.shape), 0, start,
                          0))
            start += p.numel()
        layout.flat_groups.append(flat)


def _read_zero3(optimizer, names, layout):
    rank = layout.ranks.rank
    for i, group in enumerate(optimizer.fp16_groups):
        of = optimizer.sub_group_to_group_id[i]
        muon = getattr(optimizer, "use_muon", False) and \
            optimizer.sub_groups_using_muon[i]
        flat = FlatGroup(
            group=of, optimizer=MUON if muon else ADAM,
            master=optimizer.fp32_partitioned_groups_flat[i],
            weight=optimizer.fp16_partitioned_groups_flat[i],
            private_momentum=bool(muon) and
            optimizer.save_muon_momentum_buffer_in_memory)
        at = 0
        for p in group:
            piece = p.partition_numel()
            begin = min(rank * piece, p.ds_numel)
            flat.parameters.append(
                Placed(names[id(p)], p, p.ds_numel, tuple(p.ds_shape), begin,
                       at, min(piece, p.ds_numel - begin)))
            at += piece
        layout.flat_groups.append(flat)
