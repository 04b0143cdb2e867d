"""Stored elements as arrays of NumPy and tensors of torch, without a copy."""
from __future__ import annotations

from typing import Any, Sequence

import numpy as np

from muonstore._errors import UnavailableError

# The library's dtype: NumPy's, and that of ml_dtypes which says more.
_DTYPES = {
    "f64": ("float64", None), "f32": ("float32", None),
    "f16": ("float16", None), "bf16": ("uint16", "bfloat16"),
    "f8_e4m3fn": ("uint8", "float8_e4m3fn"),
    "f8_e4m3fnuz": ("uint8", "float8_e4m3fnuz"),
    "f8_e5m2": ("uint8", "float8_e5m2"),
    "f8_e5m2fnuz": ("uint8", "float8_e5m2fnuz"),
    "f8_e8m0fnu": ("uint8", "float8_e8m0fnu"),
    "f4_e2m1fn_x2": ("uint8", None),
    "i64": ("int64", None), "i32": ("int32", None), "i16": ("int16", None),
    "i8": ("int8", None), "u64": ("uint64", None), "u32": ("uint32", None),
    "u16": ("uint16", None), "u8": ("uint8", None), "bool": ("bool", None),
    "c128": ("complex128", None), "c64": ("complex64", None),
    "c32": ("uint32", None),
}


def empty(shape: Sequence[int], dtype: str) -> np.ndarray:
    """Memory for elements of a dtype of the library."""
    return np.empty(shape, _DTYPES[dtype][0])


def as_numpy(array: np.ndarray, dtype: str) -> np.ndarray:
    """With the dtype of ml_dtypes where NumPy has none of its own."""
    name = _DTYPES[dtype][1]
    if name is None:
        return array
    try:
        import ml_dtypes
    except ImportError:
        return array
    return array.view(getattr(ml_dtypes, name, array.dtype))


def require_torch() -> Any:
    """The module; UnavailableError where it is not installed."""
    try:
        import torch
    except ImportError as error:
        raise UnavailableError(
            "Unavailable", "torch=True needs PyTorch, which cannot be "
            f"imported ({error}): install the package torch") from error
    return torch


def as_torch(array: np.ndarray, torch_dtype: str) -> Any:
    """The same memory as a tensor; `torch_dtype` as in "bfloat16"."""
    torch = require_torch()
    dtype = getattr(torch, torch_dtype)
    if array.dtype in (np.uint16, np.uint32, np.uint64):
        # Of the same size; every torch has it.
        array = array.view(array.dtype.str.replace("u", "i"))
    return torch.from_numpy(array).view(dtype)


def scalar(dtype: str, data: bytes) -> Any:
    """A scalar of NumPy from its bytes; Opaque where that is no number."""
    kind = np.dtype(dtype) if dtype[:1] in "biufc" else None
    if kind is None or len(data) != kind.itemsize:
        return Opaque(f"numpy scalar of {dtype}", {})
    return np.frombuffer(data, kind)[0]


class Opaque:
    """A value of a class that is not known here: nothing of it was imported.

    text: what it is, as the file says it; attributes: its plain ones.
    """

    def __init__(self, text: str, attributes: dict):
        self.text = text
        self.attributes = attributes

    def __repr__(self):
        return f"<muonstore.Opaque {self.text}>"
