"""The ranks that share an engine's state, and errors that all hear of."""
from __future__ import annotations

from typing import Any, Callable, TypeVar

import torch.distributed as dist

from muonstore._errors import Error, UnavailableError, make

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
        """Runs `work`; where it fails on any rank, it fails on every one. The
        class is that of the first rank with an Error, so that all ranks can
        handle it alike; what is no Error, such as Ctrl-C, stays its rank's."""
        result, error = None, None
        try:
            result = work()
        except BaseException as caught:  # noqa: B902 All must hear of it.
            error = caught
        told = self.gather(_portable(error))
        if error is not None and not isinstance(error, Error):
            raise error
        errors = [(rank, other) for rank, other in enumerate(told) if other]
        if not errors:
            return result
        # Those of the library first: the others end their own rank.
        rank, (is_ours, code, text, place) = min(
            errors, key=lambda told: not told[1][0])
        if error is not None and error.code == code:
            raise error
        text = f"rank {rank}: {text}"
        if is_ours:
            raise make(code, text, *place) from error
        raise UnavailableError("Unavailable", text, found=code) from error


def _portable(error):
    """(is it the library's, code, text, what comes after these in an Error)"""
    if error is None:
        return None
    if isinstance(error, Error):
        code, text, *place = error.args
        return True, code, text, place
    code = type(error).__name__
    return False, code, str(error) or code, []
