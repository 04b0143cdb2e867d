"""How far long work is: what callers may give as `progress`."""
from __future__ import annotations

from typing import Callable, Optional, Union

from muonstore._errors import UnavailableError

Callback = Callable[[str, int, int], None]
Progress = Union[None, bool, Callback]


def callback_of(progress: Progress) -> Optional[Callback]:
    """None for None and False; bars of tqdm for True; a callable as it is."""
    if progress is True:
        return _Bars()
    return progress or None


class _Bars:
    """One bar of tqdm for each thing that is being done."""

    def __init__(self):
        try:
            import tqdm.auto
        except ImportError as error:
            raise UnavailableError(
                "Unavailable", "progress=True needs tqdm, which cannot be "
                f"imported ({error}): install the package tqdm, or give a "
                "callable") from error
        self._make = tqdm.auto.tqdm
        self._bar = None

    def __call__(self, what: str, done: int, total: int):
        if self._bar is None or self._bar.desc != what + ": ":
            self.close()
            self._bar = self._make(desc=what, total=total, unit="B",
                                   unit_scale=True)
        self._bar.update(done - self._bar.n)
        if done == total:
            self.close()

    def close(self):
        if self._bar is not None:
            self._bar.close()
        self._bar = None
