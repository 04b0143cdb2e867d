"""Checkpoints in the native format."""
from __future__ import annotations

import dataclasses
import json
import operator
from typing import Any, Optional

import torch

from muonstore.optimizer import _texts
from muonstore.optimizer._groups import invalid

_GROUPS, _CLIENT = "torch_param_groups", "torch_client_state"


@dataclasses.dataclass(frozen=True)
class Resumed:
    """What was resumed from."""
    tag: str
    step: Optional[int]
    client_state: Any            # Of `save`.
    missing: list[str]           # State that started as zeros.
    passed_over: list[tuple[str, str]]  # Newer tags, damaged, and why.
    notes: list[str]


def save(optimizer: Any, root: str, tag: str, options: dict,
         client_state: Any) -> Any:
    error, texts = None, {}
    try:
        optimizer._push_groups()
        texts = {_GROUPS: _groups_text(optimizer),
                 _CLIENT: _texts.encode("client_state", client_state)}
        _require_text("tag", tag)
        _require_text("root", root)
        options = {key: operator.index(value)
                   if not isinstance(value, bool) else value
                   for key, value in options.items()}
    except Exception as mine:
        error = mine
    if optimizer._core.or_ranks(error is not None):
        if error is not None:
            raise error
        invalid("another rank cannot save what it was given")
    return _finish(optimizer._core.save(root, tag, options, texts),
                   options["asynchronous"])


def _require_text(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value:
        invalid(f"{name} is a text that is not empty", found=repr(value))


def _groups_text(optimizer: Any) -> str:
    groups = [{key: value for key, value in group.items() if key != "params"}
              for group in optimizer.param_groups]
    return _texts.encode("param_groups", groups)


def _finish(handle: Any, asynchronous: bool) -> Any:
    if not asynchronous:
        handle.wait()
    return handle


def resume(optimizer: Any, root: str, tag: str,
           allow_missing_state: bool) -> Resumed:
    found = optimizer._core.resume(root, tag, allow_missing_state)
    notes = list(found["notes"])
    if any(member.optimizer == "none" for member in optimizer._members):
        notes.append("frozen parameters are as they were: the store has none "
                     "of them; the model's state_dict does")
    texts = found["texts"]
    if _GROUPS not in texts:
        notes.append("hyper-parameters are as the optimizer was made: the "
                     "checkpoint is another program's")
    else:
        notes += _take_groups(optimizer, _texts.decode(texts[_GROUPS]))
    return Resumed(tag=found["tag"], step=found["step"],
                   client_state=_texts.decode(texts.get(_CLIENT, "null")),
                   missing=found["missing"], passed_over=found["passed_over"],
                   notes=notes)


def _take_groups(optimizer: Any, saved: list[dict]) -> list[str]:
    """Each group goes on with the values of its parameters; notes on those that
    cannot."""
    notes = []
    owners = {name: values for values in saved
              for name in values.get("param_names", ())}
    for index, group in enumerate(optimizer.param_groups):
        if owners:
            found = [owners[name] for name in group["param_names"]
                     if name in owners]
        else:  # Of a version that did not keep names.
            found = saved[index:index + 1] \
                if len(saved) == len(optimizer.param_groups) else []
        values = found[0] if found else None
        if values is None or any(other is not values for other in found) or \
                values["use_muon"] != group["use_muon"]:
            notes.append(f"hyper-parameters of param group {index} are as the "
                         "optimizer was made: in the checkpoint its parameters "
                         "are in other groups, or in none")
            continue
        _update(group, values)
    return notes


def _update(group: dict, values: dict) -> None:
    for key, value in values.items():
        if key == "param_names":
            continue
        if key == "betas":
            value = tuple(value)
        old = group.get(key)
        if isinstance(old, torch.Tensor) and isinstance(value, (int, float)):
            value = torch.full_like(old, value)
        group[key] = value
