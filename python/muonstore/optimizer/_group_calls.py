"""The collectives of a process group, as the C++ communicator calls them.

They come from a thread of its own. A group must not be used by anybody else
meanwhile, since collectives are matched by their order: it is a copy.
"""
from __future__ import annotations

import datetime
from typing import Any, Optional

import torch
import torch.distributed as dist

# How long to wait before a look at whether somebody aborted.
_LOOK = datetime.timedelta(milliseconds=50)


class GroupCalls:
    """Over the ranks of `group`; made by all of them at the same time."""

    def __init__(self, group: Any, timeout_s: float):
        self._timeout_s = timeout_s
        self._ranks = dist.get_process_group_ranks(group)
        self._group = dist.new_group(
            self._ranks, timeout=datetime.timedelta(seconds=timeout_s),
            use_local_synchronization=True)
        self.rank = dist.get_rank(self._group)
        self.size = len(self._ranks)
        self.backend = dist.get_backend(self._group)
        self._device = (torch.device("cpu") if _has_cpu(self._group)
                        else torch.device("cuda", torch.cuda.current_device()))
        self._store = dist.distributed_c10d._get_process_group_store(
            self._group)

    def all_gather(self, own: torch.Tensor, everything: torch.Tensor) -> None:
        with _on(self._device, everything) as out:
            self._await(dist.all_gather_into_tensor(
                out, own.to(self._device), group=self._group, async_op=True))

    def all_to_all(self, out: torch.Tensor, sent: list[int],
                   into: torch.Tensor, received: list[int]) -> None:
        with _on(self._device, into) as target:
            self._await(dist.all_to_all_single(
                target, out.to(self._device), received, sent,
                group=self._group, async_op=True))

    def broadcast(self, data: torch.Tensor, root: int) -> None:
        with _on(self._device, data) as target:
            self._await(dist.broadcast(target, self._ranks[root],
                                       group=self._group, async_op=True))

    def split(self) -> GroupCalls:
        return GroupCalls(self._group, self._timeout_s)

    def abort(self, text: str) -> str:
        """The first one on any rank counts, and is returned."""
        try:
            return self._store.compare_set("muonstore-abort", "", text).decode()
        except RuntimeError:
            return text  # The rank that serves the store is gone.

    def look(self) -> Optional[str]:
        try:
            if self._store.check(["muonstore-abort"]):
                return self._store.get("muonstore-abort").decode()
        except RuntimeError:
            pass  # As above.
        return None

    def _await(self, work: Any) -> None:
        """Work of a device has no wait that ends early."""
        if self._device.type != "cpu":
            work.wait()
            return
        while True:
            try:
                work.wait(_LOOK)
                return
            except RuntimeError:
                if work.is_completed():
                    work.wait()
                    return
            told = self.look()
            if told is not None:
                raise RuntimeError(told)


class _on:
    """A tensor on the group's device whose values come back to `host`."""

    def __init__(self, device: torch.device, host: torch.Tensor):
        self._host = host
        self._there = host.to(device)

    def __enter__(self) -> torch.Tensor:
        return self._there

    def __exit__(self, *_: Any) -> None:
        if self._there is not self._host:
            self._host.copy_(self._there)


def _has_cpu(group: Any) -> bool:
    try:
        group._get_backend(torch.device("cpu"))
    except RuntimeError:
        return False
    return True
