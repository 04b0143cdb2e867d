"""Values of a training loop as text of a checkpoint: JSON, and what it lacks.

A value that JSON has no form for is an object with the one key "__type__" and
what it is made of: {"__type__": "tuple", "of": [1, 2]}. Nothing is ever
imported or called by name when such a text is read.
"""
from __future__ import annotations

import json
from collections import Counter, OrderedDict
from typing import Any

import torch

from muonstore.optimizer._groups import invalid

_TYPE, _OF = "__type__", "of"
_SEQUENCES = {"tuple": tuple, "set": set, "frozenset": frozenset}
_MAPPINGS = {"dict": dict, "Counter": Counter, "OrderedDict": OrderedDict}
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (
    torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64,
    torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)}
# Larger ones belong in a file of their own.
_MAX_ELEMENTS = 1 << 16


def encode(name: str, value: Any) -> str:
    return json.dumps(_encoded(value, name))


def decode(text: str) -> Any:
    return _decoded(json.loads(text))


def _encoded(value: Any, place: str) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) is list:
        return [_encoded(each, f"{place}[{i}]") for i, each in enumerate(value)]
    kind = type(value).__name__
    if type(value) in _MAPPINGS.values():
        return _mapping(value, kind, place)
    if type(value) in _SEQUENCES.values():
        return {_TYPE: kind, _OF: [_encoded(each, place) for each in value]}
    if isinstance(value, torch.Tensor):
        return _tensor(value, place)
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return _encoded(value.item(), place)  # A number of NumPy's.
    invalid(f"{place} is of a type that a checkpoint has no text for",
            expected="numbers, text, lists, tuples, sets, dicts, Counter, "
            "OrderedDict, small tensors", found=type(value).__name__)
    raise AssertionError("it fails")


def _mapping(value: Any, kind: str, place: str) -> Any:
    items = [(_encoded(key, place), _encoded(each, f"{place}[{key!r}]"))
             for key, each in value.items()]
    if kind == "dict" and _TYPE not in value and \
            all(type(key) is str for key in value):
        return dict(items)
    return {_TYPE: kind, _OF: items}


def _tensor(value: torch.Tensor, place: str) -> dict:
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype not in _DTYPES or value.numel() > _MAX_ELEMENTS:
        invalid(f"{place} is a tensor that a checkpoint has no text for; save "
                "it to a file of its own",
                expected=f"up to {_MAX_ELEMENTS} numbers",
                found=f"{dtype} {list(value.shape)}")
    # double has every value of the smaller types.
    return {_TYPE: "tensor", "dtype": dtype, "shape": list(value.shape),
            _OF: value.detach().cpu().flatten().tolist()}


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [_decoded(each) for each in value]
    if not isinstance(value, dict):
        return value
    if _TYPE not in value:
        return {key: _decoded(each) for key, each in value.items()}
    kind, of = value[_TYPE], value[_OF]
    if kind == "tensor":
        return torch.tensor(of, dtype=_DTYPES[value["dtype"]]
                            ).reshape(value["shape"])
    if kind in _SEQUENCES:
        return _SEQUENCES[kind](_decoded(each) for each in of)
    return _MAPPINGS[kind]({_decoded(key): _decoded(each) for key, each in of})
