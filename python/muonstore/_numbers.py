"""Whole numbers that callers give."""
from __future__ import annotations

import os
from typing import Any, Optional

from muonstore._load import _core


def num_threads(name: str, value: Optional[int]) -> int:
    """Of the argument `name`; None and 0: one a processor."""
    return count(name, value or 0) or os.cpu_count() or 1


def count(name: str, value: Any) -> int:
    """InvalidArgumentError unless it is a whole number of 0 or more."""
    if not hasattr(value, "__index__") or value < 0:
        _core.fail("InvalidArgument", f"{name} is a whole number",
                   expected="0 or more", found=repr(value))
    return int(value)
