"""How a store is laid out and steps, in the words of the bindings."""
from __future__ import annotations

import dataclasses
import math
import os
from typing import Any, Optional, Sequence, Union

import torch

from muonstore._load import _core
from muonstore._numbers import count
from muonstore.optimizer._groups import invalid
from muonstore.optimizer._placement import Placement
from muonstore.optimizer._ranks import connect


@dataclasses.dataclass(frozen=True)
class StoreSettings:
    """Arguments of OffloadMuon that say nothing about parameters."""
    convention: str
    coefficients: str
    form: str
    precision: str
    nvme_dir: Union[None, str, "os.PathLike[str]"]
    nvme_kinds: Sequence[str]
    resident_below_bytes: int
    max_snapshot_bytes: int
    num_threads: Optional[int]
    timeout_s: float


def make_options(placement: Placement, num_groups: int,
                 settings: StoreSettings) -> Any:
    """Collective: joins the ranks."""
    if not settings.timeout_s > 0:
        invalid("ranks wait for one another for some time", expected="seconds",
                found=f"timeout_s={settings.timeout_s}")
    accumulates = _accumulates(settings.convention)
    options = _core.OffloadOptions(connect(placement, settings.timeout_s),
                                   placement.row_shards, num_groups)
    options.accumulates = accumulates
    options.num_threads = (count("num_threads", settings.num_threads or 0)
                           or torch.get_num_threads())
    options.max_snapshot_bytes = count("max_snapshot_bytes",
                                       settings.max_snapshot_bytes)
    options.set_newton_schulz(settings.coefficients, settings.form,
                              settings.precision)
    if settings.nvme_dir is not None:
        options.set_nvme(os.fspath(settings.nvme_dir),
                         _kinds(settings.nvme_kinds),
                         count("resident_below_bytes",
                               settings.resident_below_bytes))
    return options


def _kinds(kinds: Sequence[str]) -> list[str]:
    if isinstance(kinds, str):
        invalid("nvme_kinds is a list of kinds of state",
                expected=f"[{kinds!r}]", found=repr(kinds))
    return list(kinds)


def _accumulates(convention: str) -> bool:
    if convention not in ("lerp", "accumulate"):
        invalid("no such momentum convention", found=convention,
                expected="lerp or accumulate")
    return convention == "accumulate"


def _require(is_right: bool, name: str, value: Any, expected: str) -> None:
    if not is_right:
        invalid(f"{name} of a param group makes no sense", expected=expected,
                found=str(value))


def values_of(group: dict) -> dict:
    """What the store's group needs of a param group, beside lr and decay.
    Hyper-parameters that torch's optimizers refuse are refused."""
    for name in ("lr", "weight_decay"):
        _require(0 <= _number(group, name) < math.inf, name, group[name],
                 "0 or more")
    return _muon_values(group) if group["use_muon"] else _adam_values(group)


def _number(group: dict, name: str) -> float:
    try:
        return float(group[name])
    except (TypeError, ValueError):
        _require(False, name, group[name], "a number")
        raise


def _adam_values(group: dict) -> dict:
    betas = group["betas"]
    _require(len(betas) == 2 and all(0 <= float(b) < 1 for b in betas),
             "betas", betas, "two from 0 to below 1")
    eps = _number(group, "eps")
    _require(0 <= eps < math.inf, "eps", eps, "0 or more")
    return {"beta1": float(betas[0]), "beta2": float(betas[1]), "eps": eps}


def _muon_values(group: dict) -> dict:
    momentum = _number(group, "momentum")
    _require(0 <= momentum < 1, "momentum", momentum, "from 0 to below 1")
    adjust = group["adjust_lr_fn"] or "original"
    if adjust not in ("original", "match_rms_adamw"):
        invalid("no such adjustment of the learning rate",
                expected="original or match_rms_adamw", found=adjust)
    return {"momentum": momentum,
            "nesterov": bool(group["nesterov"]),
            "match_rms": adjust == "match_rms_adamw"}
