"""muonstore.orthogonalize: what Muon's step makes of a matrix."""
from __future__ import annotations

from typing import Any

import numpy as np

from muonstore import _numbers
from muonstore._load import _core


def orthogonalize(matrices: Any, *, coefficients: str = "jordan5",
                  precision: str = "f32", num_threads: int = 0) -> np.ndarray:
    """U V^T, by Newton-Schulz iteration, of each matrix U S V^T.

    matrices: [..., rows, cols] of floating point that float32 holds, such as
        what `Checkpoint.read` gives of a momentum: an array, or a tensor of
        torch on the CPU. A head's matrices are qkv.reshape(heads, -1, cols).
    coefficients: "jordan5" (DeepSpeed's and torch's) or "polar_express5".
    precision: "f32", or "bf16" for operands of products in bf16.
    Returns float32 of the same shape; the same bits for any number of threads.
    Raises InvalidArgumentError for a matrix that is not finite, and for
    integers, which are the raw bits where bf16 was read without ml_dtypes.
    """
    array = _as_float32(matrices)
    if array.ndim < 2:
        _core.fail("InvalidArgument", "a matrix has two dimensions",
                   found=str(list(array.shape)))
    batch = array.reshape(-1, *array.shape[-2:])
    out = np.empty_like(batch)
    _core.orthogonalize(batch, out, coefficients, precision,
                        _numbers.num_threads("num_threads", num_threads))
    return out.reshape(array.shape)


def _as_float32(matrices: Any) -> np.ndarray:
    if hasattr(matrices, "detach"):  # Of torch; NumPy has no bf16 to take.
        matrices = matrices.detach().float().numpy()
    array = np.asarray(matrices)
    if array.dtype.kind in "biu":
        _core.fail("InvalidArgument",
                   "whole numbers are no matrix: bf16 that was read without "
                   "ml_dtypes is raw bits; install ml_dtypes, or read with "
                   "torch=True", expected="floating point",
                   found=str(array.dtype))
    return np.ascontiguousarray(array.astype(np.float32))
