"""One parameter between the model and the store."""
from __future__ import annotations

from typing import Any, Optional

import torch

from muonstore.optimizer._groups import Layouts, invalid, layout_rule
from muonstore.optimizer._placement import is_shard, local

_DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}


class Member:
    """A parameter, its index in the store and what is known of its weights.

    Memory is the model's own where that is contiguous host memory; for other
    devices and strides there is a host copy, in pinned memory for CUDA.
    """

    def __init__(self, index: int, name: str, param: torch.Tensor, group: int,
                 optimizer: str, layout: str):
        self.index = index
        self.name = name
        self.param = param
        self.group = group  # Of the store.
        self.optimizer = optimizer
        self.layout = layout
        self.num_folded = 0
        self._version: Optional[tuple] = None

    def spec(self) -> tuple:
        dtype = _DTYPES.get(self.param.dtype, str(self.param.dtype))
        return (self.name, list(self.param.shape), dtype, self.group,
                self.optimizer, self.layout)

    def local(self) -> torch.Tensor:
        return local(self.param).detach()

    def is_changed(self, core: Any) -> bool:
        """Whether somebody else wrote to the weights since `note_weights`. On
        the host they are compared with the store's, since writes through
        `.data` leave no trace; on a device, traces count."""
        if self._versions() != self._version:
            return True
        weights = self.local()
        return (weights.device.type == "cpu"
                and not core.has_weights(self.index, on_host(weights)))

    def note_weights(self) -> None:
        self._version = self._versions()

    def _versions(self) -> tuple:
        # A DTensor counts what is written to it, its part what to that.
        part = local(self.param)
        return self.param._version, part._version, part.data_ptr()

    def forget_weights(self) -> None:
        self._version = None

    def weights(self) -> torch.Tensor:
        """Weights as they are, on the host."""
        return on_host(self.local())

    def gradient(self) -> Optional[torch.Tensor]:
        gradient = self.param.grad
        if gradient is None:
            return None
        if gradient.is_sparse:
            gradient = gradient.coalesce().to_dense()
        return on_host(local(gradient).detach())

    def like(self, values: torch.Tensor) -> torch.Tensor:
        """This rank's `values` as a tensor of the parameter's placement."""
        if not is_shard(self.param):
            return values
        from torch.distributed.tensor import DTensor
        return DTensor.from_local(
            values, self.param.device_mesh, self.param.placements,
            run_check=False, shape=self.param.shape,
            stride=self.param.stride())

    def own_part(self, values: torch.Tensor, begin: int,
                 end: int) -> torch.Tensor:
        """Elements [begin, end) of a tensor of the parameter's shape, on the
        host; of a DTensor what this rank has."""
        if is_shard(values):
            return on_host(local(values).detach())
        if tuple(values.shape) != tuple(self.param.shape):
            invalid("the state has another shape than its parameter", self.name,
                    str(list(self.param.shape)), str(list(values.shape)))
        return on_host(values.detach()).reshape(-1)[begin:end]


def members_of(param_groups: list[dict],
               layouts: Layouts) -> tuple[list[Member], list[int]]:
    """All parameters; and of each group of the store, whose parameters have one
    dtype, the index of its param group."""
    layout = layout_rule(layouts, param_groups)
    numbers: dict = {}
    owners: dict[int, str] = {}
    members = []
    for index, group in enumerate(param_groups):
        optimizer = "muon" if group["use_muon"] else "adam"
        for name, param in zip(group["param_names"], group["params"]):
            trained = param.requires_grad
            _require_own_elements(name, param)
            _require_own_memory(name, param, owners)
            key = (index, param.dtype)
            number = numbers.setdefault(key, len(numbers)) if trained else 0
            members.append(Member(
                len(members), name, param, number,
                optimizer if trained else "none",
                layout(name, param) if group["use_muon"] and trained
                else "whole"))
    return members, [index for index, _ in numbers]


def _require_own_elements(name: str, param: torch.Tensor) -> None:
    part = local(param)
    if any(stride == 0 and size > 1
           for stride, size in zip(part.stride(), part.shape)):
        invalid("elements of this parameter share memory (expand); give its "
                "contiguous copy", name)


def _require_own_memory(name: str, param: torch.Tensor,
                        owners: dict[int, str]) -> None:
    """Two names of one memory would each be updated, and the last one kept."""
    address = local(param).data_ptr()  # 0: no elements, or no memory at all.
    if address and owners.setdefault(address, name) != name:
        invalid("this parameter shares its memory with another; tie them as "
                "one parameter", name, found=owners[address])


class Targets:
    """Host memory that takes new weights; `up` brings them to the model."""

    def __init__(self, members: list[Member]):
        self._pairs = [(member, member.local()) for member in members]
        self.memory = [place if _is_plain(place) else _host_like(place)
                       for _, place in self._pairs]

    def up(self) -> None:
        devices = set()
        for (member, place), memory in zip(self._pairs, self.memory):
            if memory is not place:
                place.copy_(memory, non_blocking=True)
                devices.add(place.device)
            else:
                torch.autograd.graph.increment_version(place)
            member.note_weights()
        for device in devices:
            if device.type == "cuda":
                torch.cuda.synchronize(device)


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.device.type == "cpu" and tensor.is_contiguous()


def _host_like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype,
                       pin_memory=tensor.device.type == "cuda")


def on_host(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.device.type == "cpu":
        return tensor.contiguous()
    host = _host_like(tensor)
    host.copy_(tensor)
    return host
