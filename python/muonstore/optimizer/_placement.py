"""Where parameters lie: whole on every rank, or rows of them on each."""
from __future__ import annotations

import dataclasses
from typing import Any, Iterable, Optional

import torch

from muonstore._load import _core


@dataclasses.dataclass(frozen=True)
class Placement:
    row_shards: bool  # FSDP2's DTensors, Shard(0); else whole tensors.
    group: Any        # The process group; None: one rank alone.
    rank: int
    size: int


def _distributed():
    import torch.distributed as dist
    return dist if dist.is_available() and dist.is_initialized() else None


def is_shard(tensor: torch.Tensor) -> bool:
    if type(tensor) in (torch.Tensor, torch.nn.Parameter):
        return False
    if not torch.distributed.is_available():
        return False
    from torch.distributed.tensor import DTensor
    return isinstance(tensor, DTensor)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part, without a copy; without gradients enabled."""
    return tensor.to_local() if is_shard(tensor) else tensor


def find_placement(named: Iterable[tuple[str, torch.Tensor]],
                   process_group: Any) -> Placement:
    named = list(named)
    shards = [(name, param) for name, param in named if is_shard(param)]
    if not shards:
        return _replicated(process_group)
    if len(shards) != len(named):
        name = next(name for name, param in named if not is_shard(param))
        _core.fail("Unsupported",
                   "some parameters are DTensors and this one is not; "
                   "fully_shard the whole model", tensor=name)
    mesh = shards[0][1].device_mesh
    for name, param in shards:
        _require_row_shard(name, param, mesh)
    group = mesh.get_group()
    dist = _distributed()
    return Placement(True, group, dist.get_rank(group),
                     dist.get_world_size(group))


def _require_row_shard(name: str, param: Any, mesh: Any) -> None:
    from torch.distributed.tensor import Shard
    placements = tuple(param.placements)
    if param.device_mesh != mesh:
        _core.fail("Unsupported", "parameters lie on different meshes",
                   tensor=name, expected=str(mesh),
                   found=str(param.device_mesh))
    # _StridedShard is a Shard, too, and cuts otherwise.
    if len(placements) != 1 or type(placements[0]) is not Shard or \
            placements[0].dim != 0:
        _core.fail("Unsupported",
                   "only FSDP2's cut by the first dimension over a mesh of one "
                   "dimension is supported", tensor=name,
                   expected="(Shard(dim=0),)", found=str(placements))


def _replicated(process_group: Any) -> Placement:
    dist = _distributed()
    if dist is None:
        return Placement(False, None, 0, 1)
    size = dist.get_world_size(process_group)
    if size == 1:
        return Placement(False, None, 0, 1)
    group: Optional[Any] = process_group or dist.group.WORLD
    return Placement(False, group, dist.get_rank(group), size)
