"""One parameter between the model and the store."""
from __future__ import annotations

import contextlib
import threading
from typing import Any, Iterator, Optional

import torch

from muonstore._load import _core
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
        self._fold_lock = threading.Lock()
        self._version: Optional[tuple] = None
        self._kind = self._seen_kind()

    def spec(self) -> tuple:
        # What is frozen is not in the store, and may be of integers.
        dtype = _DTYPES.get(self.param.dtype, "f32" if self.optimizer == "none"
                            else str(self.param.dtype))
        return (self.name, list(self.param.shape), dtype, self.group,
                self.optimizer, self.layout)

    def local(self) -> torch.Tensor:
        return local(self.param).detach()

    def _seen_kind(self) -> tuple:
        part = local(self.param)
        return list(part.shape), str(part.dtype)

    def require_as_made(self) -> None:
        """The store is laid out for what the parameters were then."""
        if self.optimizer == "none":
            if self.param.grad is not None:
                _core.fail("Unsupported", "this parameter was frozen when the "
                           "optimizer was made and has a gradient now; make a "
                           "new optimizer", tensor=self.name)
        elif self._seen_kind() != self._kind:
            _core.fail("InvalidArgument", "this parameter has another shape or "
                       "dtype than when the optimizer was made; make a new one "
                       "after model.to() and the like", tensor=self.name,
                       expected="{} {}".format(*self._kind),
                       found="{} {}".format(*self._seen_kind()))

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

    @contextlib.contextmanager
    def folding(self) -> Iterator[None]:
        """torch adds to a gradient outside of hooks: one that is freed while
        another thread adds to it would be lost."""
        if not self._fold_lock.acquire(blocking=False):
            _core.fail("Unsupported", "backward runs on two threads at once; "
                       "with fold_in_backward it is for one at a time",
                       tensor=self.name)
        try:
            yield
        finally:
            self._fold_lock.release()

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
    members = []
    for index, group in enumerate(param_groups):
        optimizer = "muon" if group["use_muon"] else "adam"
        for name, param in zip(group["param_names"], group["params"]):
            trained = param.requires_grad
            _require_own_elements(name, param)
            key = (index, param.dtype)
            number = numbers.setdefault(key, len(numbers)) if trained else 0
            members.append(Member(
                len(members), name, param, number,
                optimizer if trained else "none",
                layout(name, param) if group["use_muon"] and trained
                else "whole"))
    _require_own_memory(members)
    return members, [index for index, _ in numbers]


def _require_own_elements(name: str, param: torch.Tensor) -> None:
    if param.is_meta:
        invalid("this parameter is on the meta device and has no values yet; "
                "make the optimizer after to_empty() and its initialization",
                name)
    if param.is_inference():
        invalid("this parameter was made in inference_mode and cannot be "
                "trained", name)
    part = local(param)
    if any(stride == 0 and size > 1
           for stride, size in zip(part.stride(), part.shape)):
        invalid("elements of this parameter share memory (expand); give its "
                "contiguous copy", name)


def _require_own_memory(members: list[Member]) -> None:
    """Two names of one memory would each be updated, and the last one kept."""
    extents = sorted(
        ((*_extent(part), member.name, part) for member in members
         if (part := member.local()).numel() and part.data_ptr()),
        key=lambda extent: extent[:2])
    open_ones: list = []
    for begin, end, name, part in extents:
        open_ones = [other for other in open_ones if other[1] > begin]
        for _, _, other_name, other in open_ones:
            if _share_elements(part, other):
                invalid("this parameter shares its memory with another; tie "
                        "them as one parameter", name, found=other_name)
        open_ones.append((begin, end, name, part))


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """Addresses from the first byte to behind the last."""
    span = sum(stride * (size - 1)
               for stride, size in zip(tensor.stride(), tensor.shape))
    begin = tensor.data_ptr()
    return begin, begin + (span + 1) * tensor.element_size()


def _share_elements(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Of tensors whose extents overlap: columns of one matrix, for example,
    share none."""
    if all(_is_dense(tensor) for tensor in (a, b)):
        return True
    return bool(torch.isin(_addresses(a), _addresses(b)).any())


def _is_dense(tensor: torch.Tensor) -> bool:
    begin, end = _extent(tensor)
    return end - begin == tensor.numel() * tensor.element_size()


def _addresses(tensor: torch.Tensor) -> torch.Tensor:
    """Of each byte that an element begins with."""
    places = torch.zeros((), dtype=torch.int64)
    for stride, size in zip(tensor.stride(), tensor.shape):
        places = places.unsqueeze(-1) + stride * torch.arange(size)
    return (places * tensor.element_size() + tensor.data_ptr()).flatten()


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
