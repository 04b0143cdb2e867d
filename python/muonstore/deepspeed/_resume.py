"""muonstore.deepspeed.resume: from any checkpoint into a live engine."""
from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from muonstore._checkpoint import Checkpoint
from muonstore._load import _core
from muonstore.deepspeed import _check, _engine, _fill, _plan, _run

Path = Union[str, "os.PathLike[str]"]


@dataclass
class Resumed:
    """What `resume` did; the same on every rank, but for client_state."""
    path: str  # Of the tag that was read.
    tag: str
    step: Optional[int]
    # What the caller gave when saving: plain values, tensors, arrays of NumPy,
    # types of collections, datetime, pathlib, argparse. Other types are
    # muonstore.Opaque, and `notes` name them.
    client_state: dict
    # State that started as zeros, or stayed as it was: "name/kind".
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def resume(engine: Any, root: Path, tag: Optional[str] = None, *,
           momentum_scale: Union[None, float, str] = None,
           allow_missing_state: bool = False) -> Resumed:
    """Fills a live DeepSpeed engine from a checkpoint of any stage, number of
    ranks, offload mode, order and format.

    Every rank calls it, between steps. Each reads the elements that its buffers
    hold, by name: masters, momentum in the form that this engine keeps, Adam's
    moments and steps, compute weights, frozen parameters, buffers, hyper-
    parameters of each group, counters, scheduler, loss scaler. Then every
    parameter is compared with what was read.

    engine: of deepspeed.initialize; stages 1, 2, 3 or BF16_Optimizer, state on
        the device or the CPU. All else is refused by name.
    root, tag: as muonstore.open has them.
    momentum_scale: of fp16 only, as `ckpt-convert --momentum-scale`: a loss
        scale or "auto".
    allow_missing_state: state that the checkpoint lacks starts as zeros and is
        listed; otherwise it is an error.

    Raises Error on every rank, of the same class: NotFoundError,
    InvalidArgumentError, UnsupportedError, DataLossError before anything is
    changed. A file that turns out to be damaged while it is read (DataLossError
    too) leaves the engine half filled: make a new one, or resume this one from
    another tag.
    """
    layout = _engine.read(engine)
    options = _plan.Options(
        allow_missing_state,
        "" if momentum_scale is None else str(momentum_scale))
    ranks = layout.ranks
    # One tag for all ranks, whatever happens to `latest` meanwhile.
    path = ranks.of_first(
        lambda: Checkpoint(os.fspath(root), tag or "", False).path)

    def prepare():
        checkpoint = Checkpoint(path, "", False)
        plan = _plan.Planner(engine, layout, checkpoint, options).make()
        carried = _run.carried_of(checkpoint, layout, plan.notes)
        return checkpoint, plan, carried

    checkpoint, plan, carried = ranks.together(prepare)
    _require_same(ranks, checkpoint)
    client_state = _fill_engine(engine, layout, checkpoint, plan, carried)
    return Resumed(checkpoint.path, checkpoint.tag, checkpoint.summary["step"],
                   client_state, plan.missing, plan.notes)


def _require_same(ranks, checkpoint):
    seen = ranks.gather((checkpoint.summary["step"],
                         checkpoint.summary["size_bytes"]))
    if any(other != seen[0] for other in seen):
        _core.fail("InvalidArgument", "the ranks see different checkpoints",
                   file=checkpoint.path, expected=str(seen[0]),
                   found=str(seen))


def _fill_engine(engine, layout, checkpoint, plan, carried):
    optimizer = engine.optimizer
    if hasattr(optimizer, "checkpoint_event_prologue"):
        optimizer.checkpoint_event_prologue()
    filler = _fill.Filler(engine, layout, plan, checkpoint)
    layout.ranks.together(filler.fill_state)
    filler.fill_hyper_parameters()
    _fill.refresh_weights(optimizer, layout)
    _fill.forget_old_links(optimizer)
    client_state = layout.ranks.together(
        lambda: _run.restore(engine, checkpoint.summary, *carried, plan.notes))
    _check.check(engine, _engine.read(engine), plan, filler.filled)
    if hasattr(optimizer, "checkpoint_event_epilogue"):
        optimizer.checkpoint_event_epilogue()
    return client_state
