"""How the ranks of a job talk about state."""
from __future__ import annotations

import os
import uuid
from typing import Any

from muonstore._load import _core
from muonstore.optimizer._placement import Placement


def connect(placement: Placement, timeout_s: float) -> Any:
    """Collective: shared memory within a node; between nodes the caller's
    process group carries the bytes."""
    if placement.size == 1:
        return _core.single_communicator()
    import torch.distributed as dist
    members: list = [None] * placement.size
    dist.all_gather_object(members, (_node(), uuid.uuid4().hex),
                           group=placement.group)
    own = members[placement.rank][0]
    neighbours = [rank for rank, (node, _) in enumerate(members)
                  if node == own]
    # Of the first rank of this node; nobody else has that text.
    here = (neighbours.index(placement.rank), len(neighbours),
            "muonstore/" + members[neighbours[0]][1])
    if len(neighbours) == placement.size:
        return _core.connect_node(*here, timeout_s)
    from muonstore.optimizer._group_calls import GroupCalls
    return _core.connect_nodes(GroupCalls(placement.group, timeout_s), *here,
                               timeout_s)


def _node() -> tuple:
    """Alike where shared memory joins two processes: the running kernel and
    the name space of abstract sockets."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot = file.read().strip()
    return boot, os.readlink("/proc/self/ns/net"), os.readlink(
        "/proc/self/ns/pid")
