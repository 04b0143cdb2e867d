"""Counters, schedulers, loss scalers and client state of a run."""
from __future__ import annotations

from typing import Any

from muonstore._arrays import Opaque
from muonstore.deepspeed import _engine, _values

# What DeepSpeed itself keeps in model_states; the rest is the client's.
OWN_KEYS = {
    "module", "buffer_names", "optimizer", "param_shapes",
    "frozen_param_shapes", "shared_params", "frozen_param_fragments",
    "lr_scheduler", "data_sampler", "random_ltd",
    "sparse_tensor_module_names", "skipped_steps", "global_steps",
    "global_samples", "dp_world_size", "mp_world_size",
    "checkpoint_parallel_dimensions", "ds_config", "ds_version",
    "universal_checkpoint_info", "ds_autoep_layers",
}
# Of these, what is given back to the objects of the engine.
_RESTORED_KEYS = {"lr_scheduler", "data_sampler", "random_ltd"}


def carried_of(checkpoint: Any, layout: _engine.Layout,
               notes: list[str]) -> tuple[dict, dict]:
    """(model_states, optim_states) that this rank goes on with; of rank 0 where
    the ranks are others than those that saved."""
    rank = layout.ranks.rank
    if checkpoint.summary["num_ranks"] != layout.ranks.size:
        rank = 0
        notes.append("values that each rank keeps for itself, such as the "
                     "state of random number generators, are those of rank 0")
    values = checkpoint.carried(rank, torch=True)
    model = values["model_states"]
    if model is None and rank != 0:
        # In stages 1 and 2 only rank 0 writes one.
        rank = 0
        model = checkpoint.carried(0, torch=True)["model_states"]
    if model:
        keys = [key for key, value in model.items() if value is not None
                and (key not in OWN_KEYS or key in _RESTORED_KEYS)]
        model = _values.with_types(model, keys, checkpoint.path, rank, notes)
    return model or {}, values["optim_states"] or {}


def restore(engine: Any, summary: dict, model: dict, optim: dict,
            notes: list[str]) -> dict:
    """Sets what the engine counts and schedules; returns the client state."""
    counters = summary["counters"]
    for name in ("global_steps", "global_samples", "skipped_steps"):
        value = model.get(name, counters.get(name))
        if value is None and name == "global_steps":
            value = summary["step"]
        if value is None:
            notes.append(f"the checkpoint does not tell {name}; it stays "
                         f"{getattr(engine, name)}")
        else:
            setattr(engine, name, value)
    engine.loaded_checkpoint_dp_world_size = summary["num_ranks"]
    engine.loaded_checkpoint_mp_world_size = 1
    _restore_scheduler(engine, model, notes)
    _restore_data(engine, model)
    _restore_loss_scale(engine, optim, counters, notes)
    return {key: value for key, value in model.items() if key not in OWN_KEYS}


def _restore_scheduler(engine, model, notes):
    state = model.get("lr_scheduler")
    if engine.lr_scheduler is None:
        if state is not None:
            notes.append("the checkpoint has the state of an lr_scheduler, and "
                         "the engine has no lr_scheduler")
    elif state is None:
        notes.append("the checkpoint has no state of an lr_scheduler; the "
                     "engine's starts anew")
    else:
        engine.lr_scheduler.load_state_dict(state)


def _restore_data(engine, model):
    if model.get("random_ltd") is not None and engine.random_ltd_enabled() and \
            engine.random_ltd_scheduler is not None:
        engine.random_ltd_scheduler.load_state_dict(model["random_ltd"])
    if model.get("data_sampler") is not None and \
            engine.training_dataloader is not None and \
            engine.curriculum_learning_enabled():
        engine.training_dataloader.data_sampler.load_state_dict(
            model["data_sampler"])


def _restore_loss_scale(engine, optim, counters, notes):
    if not engine.fp16_enabled():
        return
    scaler = engine.optimizer.loss_scaler
    # The states of an optimizer stand one level below the file's.
    stored = optim.get("optimizer_state_dict", optim).get("loss_scaler")
    attributes = stored.attributes if isinstance(stored, Opaque) else {}
    if not attributes and "loss_scale" in counters:
        attributes = {"cur_scale": counters["loss_scale"]}
    if not attributes:
        notes.append("the checkpoint tells no loss scale; it starts at "
                     f"{scaler.cur_scale}")
    elif attributes.get("dynamic", scaler.dynamic) != scaler.dynamic:
        notes.append("the loss scale stays the engine's: the checkpoint's is "
                     + ("dynamic" if attributes["dynamic"] else "static")
                     + ", unlike the engine's")
    else:
        for name, value in attributes.items():
            if hasattr(scaler, name):
                setattr(scaler, name, value)
