"""The ranks that share an engine's state, and errors that all hear of."""
from __future__ import annotations

from typing import Any, Callable, TypeVar

import torch.distributed as dist

from muonstore._errors import Error, UnavailableError

T = TypeVar("T")


class Ranks:
    """The data-parallel group of an engine. Every method is collective."""

    def __init__(self, group):
        self.group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)

    def gather(self, value: Any) -> list:
        """Every rank's value, by rank."""
        values = [None] * self.size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def of_first(self, value: Callable[[], Any]) -> Any:
        """Rank 0's value on every rank."""
        made = self.together(value if self.rank == 0 else lambda: None)
        return self.gather(made)[0]

    def together(self, work: Callable[[], T]) -> T:
        """Runs `work`; where it fails on any rank, it fails on every one: with
        its own error, or with that of the first rank that met one."""
        result, error = None, None
        try:
            result = work()
        except BaseException as caught:  # noqa: B902 All must hear of it.
            error = caught
        told = self.gather(_portable(error))
        if error is not None:
            raise error
        for rank, other in enumerate(told):
            if other is not None:
                code, text = other
                raise UnavailableError("Unavailable", f"rank {rank}: {text}",
                                       found=code)
        return result


def _portable(error):
    if error is None:
        return None
    code = error.code if isinstance(error, Error) else type(error).__name__
    return code, str(error) or code
