"""What ckpt-inspect tells: faults and differences."""
from __future__ import annotations

import json
import os
from typing import Optional, Union

from muonstore._checkpoint import Checkpoint, open as open_checkpoint
from muonstore._load import _core
from muonstore._numbers import num_threads
from muonstore._progress import Progress, callback_of

Path = Union[str, "os.PathLike[str]"]


def verify(path: Path, tag: Optional[str] = None, *, quick: bool = False,
           progress: Progress = None) -> dict:
    """Is the checkpoint whole? Every fault, not only the first.

    Checks every byte against its checksum, that the ranks' pieces cover every
    element exactly once, and that ranks agree; `quick`: names, sizes and
    directories only. Returns what `ckpt-inspect verify --json` prints: "whole",
    "findings", ... Raises Error only where there is nothing to verify.
    """
    return json.loads(_core.verify_json(os.fspath(path), tag or "", quick,
                                        callback_of(progress)))


def diff(a: Union[Path, Checkpoint], b: Union[Path, Checkpoint], *,
         param: str = "", state: str = "", rtol: float = 0, atol: float = 0,
         jobs: int = 0, progress: Progress = None) -> dict:
    """Do two checkpoints hold the same state, by name and bit for bit?

    a, b: paths, or what `open` gave (with a tag, for example).
    param: a glob; state: a kind; both empty: everything, counters and
        hyper-parameters too. Close is |a - b| <= atol + rtol * |b|.
    Returns what `ckpt-inspect diff --json` prints; "same_state" is the answer.
    """
    choice = _core.DiffChoice()
    choice.param, choice.state = param, state
    choice.rtol, choice.atol = rtol, atol
    choice.jobs = num_threads("jobs", jobs)
    first, second = (it if isinstance(it, Checkpoint) else open_checkpoint(it)
                     for it in (a, b))
    return json.loads(_core.diff_json(first._full(), second._full(), choice,
                                      callback_of(progress)))
