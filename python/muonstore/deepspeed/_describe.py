"""A live engine in the library's words: what a checkpoint of it says."""
from __future__ import annotations

import sys
from typing import Any, Optional

import torch

from muonstore._load import _core
from muonstore.deepspeed import _engine
from muonstore.deepspeed._engine import ADAM, FlatGroup
from muonstore.deepspeed._plan import KINDS, STATE_NAMES, persistent_buffers


def describe(engine: Any, layout: _engine.Layout) -> Any:
    """A LiveRun; the same on every rank, but for `rank`."""
    run = _core.LiveRun()
    run.stage, run.rank = layout.stage, layout.ranks.rank
    run.num_ranks = layout.ranks.size
    index = _add_parameters(run, engine, layout)
    for flat in layout.flat_groups:
        run.add_flat_group(flat.group,
                           [index[p.name] for p in flat.parameters],
                           [p.pad_after for p in flat.parameters],
                           flat.master.numel())
        run.add_state("master", "float32")
        for kind in KINDS[flat.optimizer]:
            state = state_of(engine, flat, kind)
            run.add_state(kind, "float32" if state is None
                          else _dtype(state))
    for name, tensor in singles(engine, layout):
        kind = "buffer" if not isinstance(tensor, torch.nn.Parameter) \
            else "weight"
        run.add_single(name, kind, _shape(tensor), _dtype(tensor))
    _add_groups(run, engine, layout)
    _set_run(run, engine, layout)
    return run


def state_of(engine: Any, flat: FlatGroup, kind: str) -> Optional[torch.Tensor]:
    """This rank's buffer of a kind; None before the first step."""
    if kind == "master":
        return flat.master.detach()
    state = engine.optimizer.optimizer.state.get(flat.master, {})
    return state.get(STATE_NAMES[kind])


def singles(engine: Any, layout: _engine.Layout) -> list:
    """(name, tensor) of what is not cut: frozen parameters, buffers."""
    trained = layout.names()
    frozen = [(name, p) for name, p in engine.module.named_parameters()
              if name not in trained]
    return frozen + list(persistent_buffers(engine.module))


def loss_scale_of(engine: Any) -> Optional[float]:
    return float(engine.optimizer.loss_scaler.cur_scale) \
        if engine.fp16_enabled() else None


def _shape(tensor):
    return list(getattr(tensor, "ds_shape", tensor.shape))


def _dtype(tensor):
    return str(tensor.dtype).removeprefix("torch.")


def _add_parameters(run, engine, layout):
    place = {p.name: flat for flat in layout.flat_groups
             for p in flat.parameters}
    kept, index = {}, {}
    for name, p in engine.module.named_parameters(remove_duplicate=False):
        if id(p) in kept:
            run.add_alias(name, kept[id(p)])
            continue
        kept[id(p)] = name
        flat = place.get(name)
        index[name] = len(index)
        run.add_parameter(name, _shape(p), _dtype(p),
                          flat.group if flat else 0,
                          flat.optimizer if flat else "none")
    return index


def _add_groups(run, engine, layout):
    flat_of = {flat.group: flat for flat in layout.flat_groups}
    for i, group in enumerate(engine.optimizer.optimizer.param_groups):
        flat = flat_of[i]
        step = None
        if flat.optimizer == ADAM:
            state = engine.optimizer.optimizer.state.get(flat.master, {})
            step = int(state.get("step", 0))
        run.add_group(group.get("name", f"group {i}"), flat.optimizer, step,
                      list(_scalars(group)))


def _scalars(group):
    for key, value in group.items():
        if isinstance(value, (list, tuple)) and key != "params":
            value = [float(item) for item in value]
        if value is None or isinstance(value, (bool, int, float, str, list)):
            if key != "params":
                yield key, value


def _set_run(run, engine, layout):
    counters = [("global_steps", int(engine.global_steps)),
                ("skipped_steps", int(engine.skipped_steps)),
                ("global_samples", int(engine.global_samples))]
    scale = loss_scale_of(engine)
    if scale is not None:
        counters.append(("loss_scale", scale))
        counters += [("loss_scaler." + key, value) for key, value in
                     vars(engine.optimizer.loss_scaler).items()
                     if isinstance(value, (bool, int, float))]
    version = getattr(sys.modules.get("deepspeed"), "__version__", "")
    run.set_run(f"DeepSpeed {version}".strip(), int(engine.global_steps),
                counters)
    run.set_module_order(list(engine.module.state_dict(keep_vars=True)))
    run.set_form(layout.precision, layout.offload, layout.optimizer_class)
    if any("momentum" in KINDS[flat.optimizer] for flat in layout.flat_groups):
        run.set_momentum(scale if layout.momentum_is_scaled else None)
