"""state_dict and load_state_dict."""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Iterable, Iterator, Sequence, Union

import torch

from muonstore._load import _core
from muonstore.optimizer._groups import (LACKING, are_generated, bare_names,
                                         invalid)
from muonstore.optimizer._members import Member
from muonstore.optimizer._options import values_of

# torch's keys and the store's kinds.
_KINDS = {"muon": {"momentum_buffer": "momentum"},
          "adam": {"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"},
          "none": {}}
_VALUES = ("lr", "initial_lr", "weight_decay", "momentum", "nesterov",
           "adjust_lr_fn", "betas", "eps")

# What torch.optim.Muon's step asks of a group, as it is here.
_TORCH_MUON = {"ns_coefficients": (3.4445, -4.7750, 2.0315), "eps": 1e-7,
               "ns_steps": 5}


class InStore(defaultdict):
    """`Optimizer.state`, between calls of state_dict: it lies in the store.
    Never empty, so that nobody makes a step to fill it; of each parameter it
    tells the keys, which torch.distributed.checkpoint unflattens by."""

    def __init__(self, members: Iterable[Member]):
        super().__init__(dict)
        self._keys = {member.param: _keys_of(member) for member in members}

    def __bool__(self) -> bool:
        return True

    def __missing__(self, param: torch.Tensor) -> Mapping:
        return _Elsewhere(self._keys.get(param, ()))


class _Elsewhere(Mapping):
    """Keys of values that state_dict() reads."""

    def __init__(self, keys: Iterable[str]):
        self._keys = tuple(keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        _core.fail("Unsupported", f"{key} lies in the store; state_dict() "
                   "reads it")


def _keys_of(member: Member) -> list[str]:
    """Of a parameter's state in state_dict()."""
    keys = list(_KINDS[member.optimizer])
    if member.optimizer == "adam":
        keys.insert(0, "step")
    if keys and member.param.dtype != torch.float32:
        keys.append("master")
    return keys


def with_torch_keys(state_dict: dict) -> dict:
    """So that torch.optim.Muon takes it over and steps on."""
    for group in state_dict["param_groups"]:
        if group["use_muon"]:
            group.update(_TORCH_MUON)
    return state_dict


def read_all(optimizer: Any) -> dict[torch.Tensor, dict]:
    steps = optimizer._core.group_steps
    return {member.param: _read(optimizer._core, member, steps)
            for member in optimizer._members if member.optimizer != "none"}


def _read(core: Any, member: Member, steps: list[int]) -> dict:
    kinds = dict(_KINDS[member.optimizer])
    if member.param.dtype != torch.float32:
        kinds["master"] = "master"
    state = {}
    if member.optimizer == "adam":
        state["step"] = torch.tensor(float(steps[member.group]))
    shape = member.local().shape
    for key, kind in kinds.items():
        values = torch.empty(shape, dtype=torch.float32)
        core.read_state(member.index, kind, values)
        state[key] = member.like(values)
    return state


def load(optimizer: Any, state_dict: Union[dict, Sequence[dict]]) -> None:
    given = ([state_dict] if isinstance(state_dict, dict) else
             list(state_dict or []))
    if not given or not all({"state", "param_groups"} <= set(each)
                            for each in given):
        invalid("this is not what state_dict gives",
                expected="state and param_groups")
    merged = _merge(given)
    for hook in optimizer._optimizer_load_state_dict_pre_hooks.values():
        merged = hook(optimizer, merged) or merged
    pairs = list(_pairs(optimizer, merged["param_groups"]))
    steps = _require(optimizer, merged["param_groups"], merged["state"], pairs)
    for member, key in pairs:
        _write(optimizer._core, member, merged["state"].get(key, {}))
    optimizer._core.group_steps = steps
    for group, saved in zip(optimizer.param_groups, merged["param_groups"]):
        group.update(_values(saved, group))
    for hook in optimizer._optimizer_load_state_dict_post_hooks.values():
        hook(optimizer)


def _merge(dicts: list[dict]) -> dict:
    state, groups, first = {}, [], 0
    for each in dicts:
        keys = [key for group in each["param_groups"]
                for key in group["params"]]
        place = {key: first + i for i, key in enumerate(keys)}
        first += len(keys)
        state.update({place[key]: value for key, value in
                      each["state"].items() if key in place})
        for group in each["param_groups"]:
            groups.append({**group, "params": [place[key] for key in
                                               group["params"]]})
    return {"state": state, "param_groups": groups}


def _pairs(optimizer: Any, saved: list[dict]) -> Iterator[tuple[Member, int]]:
    """By place in the groups, as torch does it; by name where both have one."""
    bare = _bare_where_wrapped(optimizer, saved)
    counts = [len(group["params"]) for group in optimizer.param_groups]
    found = [len(group["params"]) for group in saved]
    if counts != found:
        invalid("the state dict has other param groups: by use_muon each is "
                "cut in two, Muon's parameters first", expected=str(counts),
                found=str(found))
    members = iter(optimizer._members)
    for group, own in zip(saved, optimizer.param_groups):
        names = group.get("param_names")
        has_names = names and not are_generated([*names, *own["param_names"]])
        by_name = (_by_name([bare[name] for name in names], group["params"],
                            own["param_names"]) if has_names else {})
        for key, member in zip(group["params"], members):
            yield member, by_name.get(member.name, key)


def _bare_where_wrapped(optimizer: Any, saved: list[dict]) -> dict[str, str]:
    """Saved names -> without what wrappers added. A module may be called
    "module" itself."""
    names = [name for group in saved for name in group.get("param_names") or []]
    own = {name for group in optimizer.param_groups
           for name in group["param_names"]}
    return dict(zip(names, names if set(names) == own else bare_names(names)))


def _by_name(names: list[str], keys: list[int], own: list[str]
             ) -> dict[str, int]:
    by_name = dict(zip(names, keys))
    if len(names) != len(keys) or set(by_name) != set(own):
        lacking = sorted(set(own) - set(by_name))
        invalid("the state dict names other parameters",
                tensor=lacking[0] if lacking else "",
                expected=", ".join(own), found=", ".join(map(str, names)))
    return by_name


def _require(optimizer: Any, groups: list[dict], state: dict,
             pairs: list[tuple[Member, int]]) -> list[int]:
    """Steps by group of the store; refuses, before anything is written, what
    cannot be taken over."""
    for group, own in zip(groups, optimizer.param_groups):
        for name in LACKING:
            if group.get(name):
                invalid(f"this optimizer has no {name}")
        if own["use_muon"]:
            _require_torch_muon(group)
        values_of({**own, **_values(group, own)})
    steps: dict[int, float] = {}
    for member, key in pairs:
        values = state.get(key, {})
        known = {*_KINDS[member.optimizer], "master", "step"}
        for name, value in values.items():
            if name not in known:
                invalid("the state dict has state that this parameter has no "
                        "place for", member.name, ", ".join(sorted(known)),
                        name)
            if name != "step":
                _own_part(optimizer._core, member, value)
            elif not float(value).is_integer() or float(value) < 0:
                invalid("this is no number of steps", member.name,
                        found=str(value))
        if member.optimizer == "adam" and "step" in values:
            step = float(values["step"])
            if steps.setdefault(member.group, step) != step:
                invalid("parameters of one group have taken different numbers "
                        "of steps", member.name, str(steps[member.group]),
                        str(step))
    # Adam without state starts anew; Muon's state has no steps.
    for member, key in pairs:
        if member.optimizer != "adam":
            continue
        if steps.setdefault(member.group, 0) and \
                "step" not in state.get(key, {}):
            invalid("this parameter has no state while others of its group "
                    "have taken steps, which are counted by group here; give "
                    "it a group of its own", member.name, "state",
                    f"{int(steps[member.group])} steps of its group")
    old = optimizer._core.group_steps
    return [int(steps.get(i, old[i])) for i in range(len(old))]


def _require_torch_muon(group: dict) -> None:
    for name, value in _TORCH_MUON.items():
        found = group.get(name, value)
        found = tuple(found) if isinstance(found, list) else found
        if found != value:
            invalid(f"torch.optim.Muon ran with another {name} than this "
                    "optimizer has", expected=str(value), found=str(found))


def _values(saved: dict, own: dict) -> dict:
    """The hyper-parameters of a saved group that count here."""
    kept = (set(own) | set(_VALUES)) - {"params", "param_names", "use_muon"}
    if own["use_muon"]:
        kept.discard("eps")
    return {key: deepcopy(value) for key, value in saved.items()
            if key in kept}


def _own_part(core: Any, member: Member, value: torch.Tensor) -> torch.Tensor:
    begin, end = core.own_range(member.index)
    if not (isinstance(value, torch.Tensor) and value.is_floating_point()):
        invalid("state is a tensor of floating point", member.name,
                found=str(getattr(value, "dtype", type(value).__name__)))
    part = member.own_part(value, begin, end)
    if part.numel() != end - begin:
        invalid("the state is cut in another way than its parameter",
                member.name, f"{end - begin} elements", f"{part.numel()}")
    return part


def _write(core: Any, member: Member, values: dict) -> None:
    for key, kind in _KINDS[member.optimizer].items():
        begin, end = core.own_range(member.index)
        part = (_own_part(core, member, values[key]) if key in values
                else torch.zeros(end - begin))
        core.write_state(member.index, kind, part)
    if "master" in values:
        master = _own_part(core, member, values["master"])
        core.write_state(member.index, "master", master)
        core.write_state(member.index, "weight", master)
        # The model's weights count, where they are others.
        member.forget_weights()
