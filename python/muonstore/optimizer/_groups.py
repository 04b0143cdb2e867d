"""Which parameters Muon updates, under which names, in which groups."""
from __future__ import annotations

import re
from typing import Any, Callable, Iterable, Mapping, Optional, Union

import torch

from muonstore._load import _core

UseMuon = Union[None, Mapping[str, bool], Callable[[str, torch.Tensor], bool]]
Layouts = Union[None, Mapping[str, str],
                Callable[[str, torch.Tensor], Optional[str]]]

# What wrappers of modules put before or into the names of parameters.
_PREFIX = "module."
_INFIXES = ("_orig_mod.", "_checkpoint_wrapped_module.",
            "_fsdp_wrapped_module.")


def invalid(message: str, tensor: str = "", expected: str = "",
            found: str = "") -> None:
    _core.fail("InvalidArgument", message, tensor=tensor, expected=expected,
               found=found)


def named_groups(params: Iterable[Any]) -> list[dict]:
    """Groups whose "params" are (name, parameter); "named" says whether the
    names are the module's."""
    entries = list(params)
    if not entries:
        invalid("the optimizer was given no parameters")
    groups = ([dict(entry) for entry in entries]
              if isinstance(entries[0], dict) else [{"params": entries}])
    for index, group in enumerate(groups):
        _name_all(group, index)
    _strip_wrappers(groups)
    _require_once(groups)
    return groups


def _name_all(group: dict, index: int) -> None:
    members = group["params"]
    members = [members] if isinstance(members, torch.Tensor) else list(members)
    group["named"] = all(isinstance(member, tuple) for member in members)
    if group["named"]:
        group["params"] = members
        return
    if any(isinstance(member, tuple) for member in members):
        invalid("some parameters of a group have names and others have none")
    if group.get("use_muon") is None:
        invalid("which of these parameters are embeddings or heads, which Muon "
                "does not update, shows in their names: give "
                "model.named_parameters(), or \"use_muon\" in each group",
                expected="(name, parameter)", found="parameters without names")
    names = group.get("param_names") or [
        f"group{index}.{i}" for i in range(len(members))]
    group["params"] = list(zip(names, members, strict=True))


def _strip_wrappers(groups: list[dict]) -> None:
    named = [group for group in groups if group["named"]]
    bare = iter(bare_names([name for group in named
                            for name, _ in group["params"]]))
    for group in named:
        group["params"] = [(next(bare), param)
                           for _, param in group["params"]]


def bare_names(names: list[str]) -> list[str]:
    wrapped = bool(names) and all(n.startswith(_PREFIX) for n in names)
    return [_bare(name, wrapped) for name in names]


def are_generated(names: list[str]) -> bool:
    """Whether these stand for parameters that were given without names."""
    return all(re.fullmatch(r"group\d+\.\d+", name) for name in names)


def _bare(name: str, wrapped: bool) -> str:
    name = name[len(_PREFIX):] if wrapped else name
    for infix in _INFIXES:
        name = name.replace(infix, "")
    return name


def _require_once(groups: list[dict]) -> None:
    names, seen = set(), set()
    for group in groups:
        for name, param in group["params"]:
            if not isinstance(param, torch.Tensor):
                invalid("an optimizer takes tensors", name, "a tensor",
                        type(param).__name__)
            if name in names or id(param) in seen:
                invalid("this parameter comes twice", name)
            names.add(name)
            seen.add(id(param))


def split_groups(groups: list[dict], use_muon: UseMuon,
                 defaults: Mapping[bool, dict]) -> list[dict]:
    """As torch wants them: each group all Muon's or all Adam's."""
    rule = _rule(groups, use_muon)
    result = []
    for group in groups:
        asked = group.pop("use_muon", None)
        if asked not in (None, True, False):
            invalid("use_muon of a param group is a boolean", found=repr(asked))
        del group["named"]
        parts = {True: [], False: []}
        for name, param in group.pop("params"):
            muon = rule(name, param) if asked is None else bool(asked)
            parts[muon].append((name, param))
        is_mixed = bool(parts[True] and parts[False])
        for muon, members in parts.items():
            if members:
                result.append(_part(group, muon, members, defaults,
                                    is_mixed))
    return result


def _rule(groups: list[dict], use_muon: UseMuon):
    if callable(use_muon):
        return lambda name, param: _is_muon(name, use_muon(name, param))
    chosen = {name: _is_muon(name, value)
              for name, value in dict(use_muon or {}).items()}
    require_names(chosen, (name for group in groups
                           for name, _ in group["params"]), "use_muon")
    return lambda name, param: chosen.get(
        name, _core.is_muon(name, list(param.shape)))


def _is_muon(name: str, value: Any) -> bool:
    if value not in (True, False):
        invalid("use_muon says True or False of a parameter", name,
                "a boolean", repr(value))
    return bool(value)


def require_names(chosen: Mapping[str, Any], names: Iterable[str],
                  what: str) -> None:
    known = set(names)
    for name in chosen:
        if name not in known:
            _core.fail("NotFound",
                       f"{what} names a parameter that there is not",
                       tensor=name)


# A group's values for Adam alone, as the constructor's.
_ADAMS = ("adam_lr", "adam_betas", "adam_eps", "adam_weight_decay")
# Settings of torch's optimizers that this one does not have.
LACKING = ("amsgrad", "maximize")


def _part(group: dict, muon: bool, members: list,
          defaults: Mapping[bool, dict], is_mixed: bool) -> dict:
    """A group's own values count; for Adam its "adam_..." before those. The lr
    of a mixed group is Muon's, its decay both halves' where Adam has no
    default of its own."""
    _require_known(group, members[0][0])
    own = {key: value for key, value in group.items()
           if key not in _ADAMS and key != "param_names"}
    if not muon:
        if is_mixed:
            own.pop("lr", None)
            if "weight_decay" in defaults[False]:
                own.pop("weight_decay", None)
        own.update({key.removeprefix("adam_"): group[key] for key in _ADAMS
                    if key in group})
    return {"weight_decay": defaults[True]["weight_decay"], **defaults[muon],
            **own, "use_muon": muon,
            "params": [param for _, param in members],
            "param_names": [name for name, _ in members]}


def _require_known(group: dict, name: str) -> None:
    for key, value in group.items():
        if key.startswith("adam_") and key not in _ADAMS:
            invalid("no such value of a param group", name,
                    ", ".join(_ADAMS), key)
        if key in LACKING and value:
            invalid(f"this optimizer has no {key}", name)


def layout_rule(layouts: Layouts, param_groups: list[dict]
                ) -> Callable[[str, torch.Tensor], str]:
    """How a parameter of Muon is seen as matrices: "whole" where nothing is
    said."""
    if callable(layouts):
        return lambda name, param: layouts(name, param) or "whole"
    chosen = dict(layouts or {})
    require_names(chosen, (name for group in param_groups
                           for name in group["param_names"]), "layouts")
    for group in param_groups:
        for name in group["param_names"]:
            if name in chosen and not group["use_muon"]:
                invalid("layouts names a parameter of Adam, which sees no "
                        "matrices; use_muon gives it to Muon", name)
    return lambda name, param: chosen.get(name, "whole")
