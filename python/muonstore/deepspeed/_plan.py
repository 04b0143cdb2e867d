"""Which tensor of a checkpoint goes where in an engine, and what forbids it.

Decided by headers alone, alike on every rank, before anything is changed.
"""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

from muonstore._load import _core
from muonstore.deepspeed import _engine, _values
from muonstore.deepspeed._engine import ADAM, MUON

KINDS = {MUON: ("momentum",), ADAM: ("exp_avg", "exp_avg_sq")}
# What DeepSpeed's optimizers call them.
STATE_NAMES = {"momentum": "momentum_buffer", "exp_avg": "exp_avg",
               "exp_avg_sq": "exp_avg_sq"}
_NAMED = 3  # In a note.
# Not taken from the checkpoint: they name the group or are the step's.
_OWN_KEYS = {"params", "name", "use_muon", "step", "amsgrad"}


@dataclass
class GroupPlan:
    """Of a param group of the engine."""
    step: Optional[int]
    hyper_parameters: dict


@dataclass
class Plan:
    # (parameter, kind) -> the checkpoint's entry; None: zeros.
    entries: dict[tuple[str, str], Optional[dict]] = field(default_factory=dict)
    # name -> the checkpoint's entry, of what has no optimizer state.
    frozen: dict[str, dict] = field(default_factory=dict)
    buffers: dict[str, dict] = field(default_factory=dict)
    groups: dict[int, GroupPlan] = field(default_factory=dict)
    momentum_factor: float = 1.0
    # "float32", or the 16-bit dtype that all of the stored momentum has.
    momentum_dtype: str = "float32"
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass
class Options:
    allow_missing_state: bool
    momentum_scale: str


class Planner:
    def __init__(self, engine: Any, layout: _engine.Layout, checkpoint: Any,
                 options: Options):
        self._engine = engine
        self._layout = layout
        self._checkpoint = checkpoint
        self._core = checkpoint._full()
        self._options = options
        self._summary = checkpoint.summary
        self._plan = Plan()

    def make(self) -> Plan:
        for flat in self._layout.flat_groups:
            for placed in flat.parameters:
                self._add_parameter(flat, placed)
        self._add_frozen()
        self._add_buffers()
        self._require_all_used()
        self._add_groups()
        self._set_momentum()
        self._note_layouts()
        return self._plan

    def _lookup(self, name, kind):
        return _core.lookup(self._core, name, kind)

    def _fail(self, code, message, **place):
        _core.fail(code, message, file=self._checkpoint.path, **place)

    def _add_parameter(self, flat, placed):
        entry = self._lookup(placed.name, "master")
        if entry is None:
            self._fail("NotFound", "this parameter of the engine has no master "
                       "in the checkpoint; is it another model, or was it "
                       "frozen?", tensor=placed.name)
        if tuple(entry["shape"]) != placed.shape:
            self._fail("InvalidArgument", "the shapes differ",
                       tensor=placed.name, expected=str(list(placed.shape)),
                       found=str(entry["shape"]))
        if entry["optimizer"] not in (flat.optimizer, "other"):
            self._fail("InvalidArgument", "the engine updates this parameter "
                       "with another optimizer than the run that saved it",
                       tensor=placed.name, expected=flat.optimizer,
                       found=entry["optimizer"])
        self._plan.entries[placed.name, "master"] = self._whole(entry, placed,
                                                                "master")
        for kind in KINDS[flat.optimizer]:
            state = self._lookup(placed.name, kind)
            if state is None:
                self._miss(f"{placed.name}/{kind}", "the checkpoint has no "
                           f"{kind} of this parameter")
            self._plan.entries[placed.name, kind] = \
                state and self._whole(state, placed, kind)

    def _whole(self, entry, placed, kind):
        if not entry["is_whole"]:
            self._fail("DataLoss", "elements are missing that the writer lost; "
                       "ckpt-convert --allow-loss missing makes a checkpoint "
                       "with zeros in their place",
                       tensor=f"{placed.name}/{kind}")
        if tuple(entry["shape"]) != placed.shape:
            self._fail("InvalidArgument", "the state has another shape than "
                       "the parameter", tensor=f"{placed.name}/{kind}",
                       expected=str(list(placed.shape)),
                       found=str(entry["shape"]))
        return entry

    def _miss(self, what, message):
        if not self._options.allow_missing_state:
            self._fail("NotFound", f"{message}; allow_missing_state=True "
                       "starts it as zeros, or leaves it as it is", tensor=what)
        self._plan.missing.append(what)

    def _add_frozen(self):
        trained = self._layout.names()
        for name, parameter in self._engine.module.named_parameters():
            if name in trained:
                continue
            entry = self._lookup(name, "weight")
            if entry is None:
                self._miss(f"{name}/weight",
                           "the checkpoint lacks this frozen parameter")
                continue
            if self._lookup(name, "master") is not None:
                self._fail("InvalidArgument", "the engine does not train this "
                           "parameter, and the run that saved it did",
                           tensor=name)
            shape = tuple(getattr(parameter, "ds_shape", parameter.shape))
            if tuple(entry["shape"]) != shape:
                self._fail("InvalidArgument", "the shapes differ", tensor=name,
                           expected=str(list(shape)),
                           found=str(entry["shape"]))
            self._plan.frozen[name] = entry

    def _add_buffers(self):
        for name, buffer in persistent_buffers(self._engine.module):
            entry = self._lookup(name, "buffer")
            if entry is None:
                self._miss(f"{name}/buffer", "the checkpoint lacks this buffer")
                continue
            if tuple(entry["shape"]) != tuple(buffer.shape):
                self._fail("InvalidArgument", "the shapes differ", tensor=name,
                           expected=str(list(buffer.shape)),
                           found=str(entry["shape"]))
            self._plan.buffers[name] = entry

    def _require_all_used(self):
        entries = self._plan.entries.items()
        used = {(entry["name"], kind) for (_, kind), entry in entries if entry}
        trained = {name for name, kind in used if kind == "master"}
        frozen = {entry["name"] for entry in self._plan.frozen.values()}
        for tensor in self._checkpoint.select():
            name, kind = tensor["parameter"], tensor["state"]
            if kind == "buffer":
                is_used = name in self._plan.buffers
            elif kind == "weight":
                is_used = name in trained or name in frozen
            else:
                is_used = (name, kind) in used
            if not is_used:
                self._fail("InvalidArgument", "the engine has no place for "
                           "this tensor of the checkpoint",
                           tensor=f"{name}/{kind}")

    def _add_groups(self):
        stored = self._summary["groups"]
        sources = {}
        for flat in self._layout.flat_groups:
            for placed in flat.parameters:
                entry = self._plan.entries[placed.name, "master"]
                sources.setdefault((flat.group, flat.optimizer), {}).setdefault(
                    entry["group"], placed.name)
        for (index, optimizer), groups in sources.items():
            plans = [self._group_plan(stored[g], optimizer, name)
                     for g, name in groups.items()]
            if any(plan != plans[0] for plan in plans):
                self._fail("InvalidArgument", f"param group {index} of the "
                           "engine holds parameters whose groups differ in the "
                           "checkpoint: keep its groups",
                           tensor=list(groups.values())[-1],
                           expected=str(plans[0].hyper_parameters),
                           found=str(plans[-1].hyper_parameters))
            self._plan.groups[index] = plans[0]

    def _group_plan(self, stored, optimizer, name):
        values = {key: value for key, value in
                  stored["hyper_parameters"].items() if key not in _OWN_KEYS}
        step = stored["step"]
        if optimizer == ADAM and step is None:
            what = f"{stored['name']}/step"
            if what not in self._plan.missing:
                self._miss(what, "the checkpoint does not tell the step that "
                           "Adam's bias correction counts")
            step = 0
        return GroupPlan(step if optimizer == ADAM else None, values)

    def _set_momentum(self):
        entries = [entry for (_, kind), entry in self._plan.entries.items()
                   if kind == "momentum" and entry is not None]
        if not entries:
            return
        layout, plan = self._layout, self._plan
        plan.momentum_factor, notes = _core.momentum_factor(
            self._core, layout.precision, layout.offload,
            self._options.momentum_scale)
        plan.notes += notes
        dtypes = {entry["torch_dtype"] for entry in entries}
        keeps_it = layout.stage == 3 or layout.momentum_is_whole
        if dtypes in ({"bfloat16"}, {"float16"}) and keeps_it and \
                plan.momentum_factor == 1:
            plan.momentum_dtype = dtypes.pop()
        convention = (self._summary["momentum"] or {}).get("convention")
        if convention not in (None, "lerp"):
            self._fail("Unsupported", "the momentum follows another recurrence "
                       "than DeepSpeed's", expected="lerp", found=convention)

    def _note_layouts(self):
        layouts = _values.layouts_of(self._checkpoint.path)
        names = {entry["name"]: None for (_, kind), entry in
                 self._plan.entries.items() if kind == "momentum" and entry}
        packed = [f"{name} ({layouts[name]})" for name in names
                  if name in layouts]
        if packed:
            more = f" and {len(packed) - _NAMED} more" * (len(packed) > _NAMED)
            self._plan.notes.append(
                "DeepSpeed orthogonalizes each parameter as one matrix, and "
                "the run that saved this had several in: "
                + ", ".join(packed[:_NAMED]) + more)


def persistent_buffers(module):
    """(name, tensor) of what the module's state_dict has beside parameters."""
    for prefix, child in module.named_modules():
        for name, buffer in child._buffers.items():
            if buffer is not None and \
                    name not in child._non_persistent_buffers_set:
                yield (f"{prefix}.{name}" if prefix else name), buffer
