"""OffloadMuon: a torch.optim.Optimizer over a store."""
from __future__ import annotations

import os
import threading
import weakref
import zlib
from typing import Any, Iterable, Optional, Sequence, Union

import torch

from muonstore._errors import Error
from muonstore._load import _core
from muonstore.optimizer import _groups, _saves, _state
from muonstore.optimizer._members import Member, Targets, members_of
from muonstore.optimizer._options import (StoreSettings, make_options,
                                          values_of)
from muonstore.optimizer._placement import Placement, find_placement
from muonstore.optimizer._scaling import (found_overflow, loss_scale_of,
                                          tell_scaler)

# What ranks tell one another before they do something together.
_CHANGED, _OWES, _REFUSED, _HAS_GRADIENT = 1, 2, 4, 8
_FLAG_BITS, _PATTERN_BITS = 4, 28
_FLAGS, _PATTERN = (1 << _FLAG_BITS) - 1, (1 << _PATTERN_BITS) - 1


class OffloadMuon(torch.optim.Optimizer):
    """Muon for matrices, AdamW for the rest; state outside of the model.

    FP32 masters, momentum and moments lie in a store in host memory or on NVMe,
    shared out over the ranks of a job: with DDP as ZeRO cuts, with FSDP2 as its
    DTensors are cut. Each matrix is orthogonalized once over all ranks. The
    model keeps its weights, of any of float32, bfloat16 and float16.

    params: `model.named_parameters()`, or groups of them as dicts. Matrices go
        to Muon, but for those whose name holds "embed" or "lm_head"; a group's
        "use_muon" decides for all of it. A mixed group is split in two: `lr` is
        for Muon's half, "adam_lr", "adam_betas", "adam_eps" and
        "adam_weight_decay" for the other; `weight_decay` for both, where
        nobody says another one for Adam.
    lr, weight_decay, momentum, nesterov, adjust_lr_fn: Muon's, as in
        torch.optim.Muon ("original" or "match_rms_adamw").
    adam_lr, adam_betas, adam_eps, adam_weight_decay: AdamW's; the decay is
        Muon's where it is None.
    use_muon: names -> bool, or a function of name and parameter, in place of
        the rule by names.
    layouts: names -> layout, or a function of name and parameter:
        "per_head[8]", "packed_rows[64,64,64]", "experts",
        "interleaved_heads[8 x (1 + 2)]". Each block is a matrix of its own.
    convention: "lerp" (torch, DeepSpeed) or "accumulate" (dion, Moonlight).
    coefficients, form, precision: of Newton-Schulz: "jordan5" or
        "polar_express5"; "auto", "standard" or "gram"; "f32" or "bf16".
    max_norm: gradients are clipped by their global norm; 0: not.
    fold_in_backward: gradients are added to the store as they come and freed
        (not with DDP, whose gradients are not averaged yet by then).
    grad_scaler: the torch.amp.GradScaler; needed with fold_in_backward alone.
    process_group: whose ranks have the same parameters and gradients; None: the
        mesh of DTensors, or all ranks where torch.distributed is initialized.
    nvme_dir: a folder on the disk that takes the kinds of state in nvme_kinds.
    max_snapshot_bytes: memory for asynchronous saves; 0: what they need.
    timeout_s: how long ranks wait for one another.

    Collective, where there are several ranks: the constructor, step, save,
    resume, state_dict and close. Failures are
    muonstore.Error; one on any rank before a step has begun is all ranks'.
    """

    _step_supports_amp_scaling = True

    def __init__(self, params: Iterable[Any], lr: float = 0.02,
                 weight_decay: float = 0.1, momentum: float = 0.95,
                 nesterov: bool = True, adjust_lr_fn: Optional[str] = None, *,
                 adam_lr: float = 3e-4,
                 adam_betas: tuple[float, float] = (0.9, 0.95),
                 adam_eps: float = 1e-8,
                 adam_weight_decay: Optional[float] = None,
                 use_muon: _groups.UseMuon = None,
                 layouts: _groups.Layouts = None, convention: str = "lerp",
                 coefficients: str = "jordan5", form: str = "auto",
                 precision: str = "f32", max_norm: float = 0.0,
                 fold_in_backward: bool = False, grad_scaler: Any = None,
                 process_group: Any = None,
                 nvme_dir: Union[None, str, "os.PathLike[str]"] = None,
                 nvme_kinds: Sequence[str] = ("exp_avg", "exp_avg_sq",
                                              "momentum", "master"),
                 resident_below_bytes: int = 1 << 20,
                 max_snapshot_bytes: int = 0,
                 num_threads: Optional[int] = None, timeout_s: float = 600):
        muon = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum,
                "nesterov": nesterov, "adjust_lr_fn": adjust_lr_fn}
        adam = {"lr": adam_lr, "betas": tuple(adam_betas), "eps": adam_eps}
        if adam_weight_decay is not None:
            adam["weight_decay"] = adam_weight_decay
        groups = _groups.split_groups(_groups.named_groups(params), use_muon,
                                      {True: muon, False: adam})
        self._core = None  # add_param_group asks.
        super().__init__(groups, {})
        for group in self.param_groups:
            values_of(group)
        self._members, self._group_of = members_of(self.param_groups, layouts)
        self.state = _state.InStore(self._members)
        self._placement = find_placement(
            ((member.name, member.param) for member in self._members),
            process_group)
        self._folds = fold_in_backward
        self._scaler = grad_scaler
        self._max_norm = max_norm
        if not max_norm >= 0:
            _groups.invalid("gradients are clipped to a norm",
                            expected="0 (not) or more",
                            found=f"max_norm={max_norm}")
        self._hooks: list = []
        self._fold_lock = threading.Lock()
        self._report = None
        if fold_in_backward:
            _require_foldable(self._placement)
        self._open_store(StoreSettings(
            convention, coefficients, form, precision, nvme_dir, nvme_kinds,
            resident_below_bytes, max_snapshot_bytes, num_threads, timeout_s))
        if fold_in_backward:
            self._register_hooks()

    def _open_store(self, settings: StoreSettings) -> None:
        self._core = _core.OffloadOptimizer(
            [member.spec() for member in self._members],
            make_options(self._placement, len(self._group_of), settings))
        self._close = weakref.finalize(self, _close_quietly, self._core)
        with torch.no_grad():
            self._take_weights()

    @property
    def report(self) -> Any:
        """Of the last step: overflow, num_nonfinite, norm, clip_factor,
        num_orthogonalized, bytes and seconds; None before the first."""
        return self._report

    @property
    def state_bytes(self) -> tuple[int, int]:
        """Of this rank: in memory, on NVMe."""
        return self._core.memory_bytes, self._core.swapped_bytes

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One update of all parameters. A parameter without a gradient has a
        gradient of zeros; without any gradient at all nothing happens."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        flags = self._settle(lambda: _HAS_GRADIENT * self._has_gradients(),
                             self._agree)
        if not flags & _HAS_GRADIENT:
            return loss
        try:
            self._report = self._step_together(self._trained())
            if self._scaler is not None:
                tell_scaler(self._scaler, self, self._report.overflow)
        except BaseException:
            if self._folds:
                self._discard_folded()
            raise
        finally:
            self._give_owed()
        return loss

    def _settle(self, own_flags: Any = lambda: 0, agree: Any = None) -> int:
        """Before anything else that ranks do together: all of them refuse what
        one of them must, and model and store have the same weights."""
        flags, refusal = 0, None
        try:
            for member in self._members:
                member.require_as_made()
            flags = (_CHANGED * self._has_changed()
                     | _OWES * self._core.owes_weights | own_flags())
        except Exception as error:
            flags, refusal = _REFUSED, error
        told = (agree or self._core.or_ranks)(flags)
        if refusal is not None:
            raise refusal
        if told & _REFUSED:
            _groups.invalid("another rank refused it; nothing was changed")
        if told & _OWES:
            self._give_weights()
        elif told & _CHANGED:
            self._take_weights()
        return told

    def _agree(self, flags: int) -> int:
        """The flags that any rank has. With DDP all ranks have gradients of the
        same parameters, or none of them steps: a pattern is every rank's where
        neither it nor its complement gets a bit from another."""
        if self._placement.row_shards:
            return self._core.or_ranks(flags)
        pattern = zlib.crc32(bytes(m.param.grad is None for m in self._members))
        pattern &= _PATTERN
        told = self._core.or_ranks(
            flags | pattern << _FLAG_BITS
            | (pattern ^ _PATTERN) << _FLAG_BITS + _PATTERN_BITS)
        patterns = (told >> _FLAG_BITS & _PATTERN,
                    told >> _FLAG_BITS + _PATTERN_BITS)
        if not told & _REFUSED and patterns != (pattern, pattern ^ _PATTERN):
            _groups.invalid("ranks have gradients of different parameters; with "
                            "DDP all have all (find_unused_parameters=True)")
        return told & _FLAGS

    def _step_together(self, trained: list[Member]) -> Any:
        begun = False
        try:
            self._push_groups()
            if not self._folds:
                self._discard_folded()
            for member in trained:
                if member.param.grad is not None:
                    self._fold(member)
            self._fill_up(trained)
            scale = loss_scale_of(self, self._scaler if self._folds else None)
            begun = True
            return self._core.step(scale, found_overflow(self))
        except BaseException:
            if not begun:
                # The other ranks hear of it in the step, which is refused.
                self._core.refuse_step()
            raise
        finally:
            for member in trained:
                member.num_folded = 0

    def _fill_up(self, trained: list[Member]) -> None:
        """Zeros for what was in fewer backward passes than others."""
        most = max([1] + [member.num_folded for member in trained])
        for member in trained:
            for _ in range(most - member.num_folded):
                self._core.accumulate_zero(member.index)

    def _fold(self, member: Member) -> None:
        self._core.accumulate(member.index, member.gradient())
        member.num_folded += 1
        if self._folds:
            member.param.grad = None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Of gradients that were folded in already nothing is left, either."""
        super().zero_grad(set_to_none)
        if self._folds:
            self._discard_folded()

    def _discard_folded(self) -> None:
        self._core.discard_gradients()
        for member in self._members:
            member.num_folded = 0

    def add_param_group(self, param_group: dict) -> None:
        if self._core is not None:
            _core.fail("Unsupported",
                       "the store is laid out when the optimizer is made; make "
                       "a new one with all param groups")
        super().add_param_group(param_group)

    def state_dict(self) -> dict:
        """In the keys of torch.optim.Muon and AdamW, tensors on the host; and
        "master", where the weights are not float32. With whole parameters
        every rank gets all of it; with DTensors its own parts, as DTensors."""
        with torch.no_grad():
            self._settle()
            self.state.update(_state.read_all(self))
        try:
            return _state.with_torch_keys(super().state_dict())
        finally:
            self.state.clear()

    def load_state_dict(self, state_dict: Union[dict, Sequence[dict]]) -> None:
        """Of this class, of torch.optim.Muon or AdamW; or several of these,
        whose groups are put one behind the other."""
        with torch.no_grad():
            _state.load(self, state_dict)
        self._discard_folded()

    def save(self, root: Union[str, "os.PathLike[str]"], tag: str, *,
             asynchronous: bool = False, overwrite: bool = False,
             client_state: Any = None, zstd_level: int = 0,
             keep: int = 0) -> Any:
        """The native checkpoint `root`/`tag`, that any number of ranks resumes.

        asynchronous: returns when the state is pinned; the handle has `done`
            and `wait()`, which gives the report or raises what went wrong.
        client_state: what resume gives back, as it was: a scheduler's state,
            samples seen. Numbers, text, lists, tuples, sets, dicts with any
            keys, Counter, OrderedDict, small tensors; anything else is refused.
        """
        with torch.no_grad():
            self._settle()
        return _saves.save(self, os.fspath(root), tag,
                           {"asynchronous": asynchronous,
                            "overwrite": overwrite, "zstd_level": zstd_level,
                            "keep": keep}, client_state)

    def resume(self, root: Union[str, "os.PathLike[str]"],
               tag: Optional[str] = None, *,
               allow_missing_state: bool = False) -> _saves.Resumed:
        """Goes on from a checkpoint of any format, stage and number of ranks:
        masters, momentum, moments, steps, the model's weights, and of an own
        checkpoint the hyper-parameters of each parameter's group. None: the
        newest good tag."""
        try:
            resumed = _saves.resume(self, os.fspath(root), tag or "",
                                    allow_missing_state)
            self._discard_folded()
            return resumed
        finally:
            with torch.no_grad():
                self._give_owed()

    def close(self) -> None:
        """Frees the store; waits for a save that is under way."""
        self._core.close()
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        self._close.detach()

    def __reduce__(self) -> Any:
        _core.fail("Unsupported", "an optimizer over a store cannot be copied "
                   "or sent to another process; state_dict() can")

    def _trained(self) -> list[Member]:
        return [member for member in self._members
                if member.optimizer != "none"]

    def _has_gradients(self) -> bool:
        return any(member.num_folded or member.param.grad is not None
                   for member in self._members)

    def _has_changed(self) -> bool:
        return any(member.is_changed(self._core) for member in self._trained())

    def _take_weights(self) -> None:
        for member in self._trained():
            self._core.take_weights(member.index, member.weights())
            member.note_weights()

    def _give_weights(self) -> None:
        targets = Targets(self._trained())
        self._core.give_weights([m.index for m in self._trained()],
                                targets.memory)
        targets.up()

    def _give_owed(self) -> None:
        """A signal's exception after a step must not leave the model behind the
        store, whose masters would follow the old weights."""
        if self._core.owes_weights:
            self._give_weights()

    def _push_groups(self) -> None:
        self._core.set_max_norm(self._max_norm)
        values = [values_of(group) for group in self.param_groups]
        for index, group_index in enumerate(self._group_of):
            group = self.param_groups[group_index]
            self._core.set_group(index, float(group["lr"]),
                                 float(group["weight_decay"]),
                                 values[group_index])

    def _register_hooks(self) -> None:
        this = weakref.ref(self)
        for member in self._trained():
            def fold(param, member=member):
                optimizer = this()
                if optimizer is None:
                    return
                # Parameters of other devices have a thread of their own.
                with member.folding(), optimizer._fold_lock, torch.no_grad():
                    if param.grad is not None:
                        optimizer._fold(member)
            self._hooks.append(
                member.param.register_post_accumulate_grad_hook(fold))


def _require_foldable(placement: Placement) -> None:
    if placement.size > 1 and not placement.row_shards:
        _core.fail("Unsupported",
                   "DDP averages gradients after the hooks of parameters "
                   "have run; fold_in_backward is for one rank and FSDP2")


def _close_quietly(core: Any) -> None:
    """When the optimizer is dropped, or the interpreter ends."""
    try:
        core.close()
    except Error:
        pass  # A peer is gone, or this process was forked off.
