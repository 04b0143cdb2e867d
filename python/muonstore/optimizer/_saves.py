"""Checkpoints in the native format."""
from __future__ import annotations

import dataclasses
import json
import operator
from typing import Any, Optional

from muonstore.optimizer._groups import invalid

_GROUPS, _CLIENT = "torch_param_groups", "torch_client_state"
_NOT_VALUES = ("params", "param_names")


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
        texts = _texts(optimizer, client_state)
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


def _texts(optimizer: Any, client_state: Any) -> dict[str, str]:
    groups = [{key: _plain(value) for key, value in group.items()
               if key not in _NOT_VALUES} for group in optimizer.param_groups]
    try:
        return {_GROUPS: json.dumps(groups), _CLIENT: json.dumps(client_state)}
    except (TypeError, ValueError) as error:
        invalid(f"client_state and param groups are kept as JSON: {error}")
        raise


def _finish(handle: Any, asynchronous: bool) -> Any:
    if not asynchronous:
        handle.wait()
    return handle


def _plain(value: Any) -> Any:
    """A learning rate may be a tensor."""
    return value.item() if hasattr(value, "item") else value


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
    elif not _take_groups(optimizer, json.loads(texts[_GROUPS])):
        notes.append("hyper-parameters are as the optimizer was made: the "
                     "checkpoint has other param groups")
    return Resumed(tag=found["tag"], step=found["step"],
                   client_state=json.loads(texts.get(_CLIENT, "null")),
                   missing=found["missing"], passed_over=found["passed_over"],
                   notes=notes)


def _take_groups(optimizer: Any, saved: list[dict]) -> bool:
    groups = optimizer.param_groups
    if [g["use_muon"] for g in groups] != [g["use_muon"] for g in saved]:
        return False
    for group, values in zip(groups, saved):
        if "betas" in values:
            values["betas"] = tuple(values["betas"])
        group.update(values)
    return True
