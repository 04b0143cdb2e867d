"""muonstore.deepspeed.save: a live engine as a native checkpoint.

The steps are those of the library's own saves (docs/checkpoints.md): every rank
writes its file and reports it, then one rename by rank 0 makes the tag exist.
"""
from __future__ import annotations

import os
import tempfile
import threading
import warnings
from datetime import timedelta
from typing import Any, Optional, Union

import torch.distributed as dist

from muonstore._load import _core
from muonstore._progress import Progress, callback_of
from muonstore.deepspeed import _describe, _engine, _run, _snapshot
from muonstore.deepspeed._ranks import Ranks

Path = Union[str, "os.PathLike[str]"]


class SaveHandle:
    """A save, under way or done."""

    def __init__(self, path: str, tag: str, work):
        self.path = path  # Of the tag.
        self.tag = tag
        # Once it is done, on rank 0: what a user should know, and the tags
        # that `keep` removed.
        self.notes: list[str] = []
        self.pruned: list[str] = []
        self._error = None
        self._told = False
        self._work = work
        self._thread = threading.Thread(target=self._run, name="muonstore save")

    def wait(self) -> None:
        """Until the tag is durable; raises what went wrong, on each call."""
        if self._thread.ident is not None:
            self._thread.join()
        if self._error is not None:
            self._told = True
            raise self._error

    def _end(self):
        """Until it has ended; says what went wrong where nobody waited."""
        told = self._told
        try:
            self.wait()
        except Exception as error:
            if not told:
                warnings.warn(f"the save of {self.tag} failed: {error}",
                              stacklevel=3)

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    def __repr__(self) -> str:
        return (f"<muonstore.deepspeed.SaveHandle tag={self.tag!r} "
                f"path={self.path!r} done={self.done}>")

    def _run(self):
        try:
            self.notes, self.pruned = self._work()
        except BaseException as error:  # noqa: B902 wait() raises it.
            self._error = error
        # It holds the copies of the state.
        self._work = None


def save(engine: Any, root: Path, tag: Optional[str] = None, *,
         asynchronous: bool = True, client_state: Optional[dict] = None,
         overwrite: bool = False, zstd: int = 0, set_latest: bool = True,
         keep: int = 0, progress: Progress = None) -> SaveHandle:
    """Saves a live DeepSpeed engine in the native format. Collective.

    Every rank calls it, between steps, and writes what it owns: masters,
    momentum, moments. What `resume` takes back, on any stage and number of
    ranks; ckpt-convert makes DeepSpeed's own files of it.

    tag: None: "global_step<N>", as DeepSpeed has it.
    asynchronous: return once the state is copied to host memory; files are
        written while training goes on. A second save waits for the first.
    client_state: values of the types that Resumed has; each rank gets its own
        back where the number of ranks stays the same, else those of rank 0.
    overwrite: replace a tag of this name; it stays until the new one is whole.
    zstd: 0: not compressed; 1 to 19.
    set_latest: the file `latest` names the tag.
    keep: afterwards this many native tags stay, the newest, and what `latest`
        names; 0: all. Tags of DeepSpeed's are not touched.
    progress: of a save that is not asynchronous; see muonstore.convert.

    Raises Error, on every rank; what was there before is then untouched. What
    fails after an asynchronous call returned is raised by `wait`.
    """
    layout = _engine.read(engine)
    channel = _channel_of(engine, layout)
    previous = getattr(engine, "_muonstore_save", None)
    if previous is not None:
        previous._end()
    tag = tag or f"global_step{engine.global_steps}"
    optimizer = engine.optimizer
    if hasattr(optimizer, "checkpoint_event_prologue"):
        optimizer.checkpoint_event_prologue()
    job = _prepare(engine, layout, os.fspath(root), tag, client_state or {},
                   dict(overwrite=overwrite, zstd=zstd, set_latest=set_latest,
                        keep=keep))
    if hasattr(optimizer, "checkpoint_event_epilogue"):
        optimizer.checkpoint_event_epilogue()
    job.channel = channel
    job.progress = None if asynchronous else callback_of(progress)
    handle = SaveHandle(job.save.path(), tag, job.finish)
    if asynchronous:
        engine._muonstore_save = handle
        handle._thread.start()
    else:
        handle._run()
        handle.wait()
    return handle


def _channel_of(engine, layout):
    """Ranks that talk beside the steps: a group of their own, made once."""
    if not hasattr(engine, "_muonstore_channel"):
        members = dist.get_process_group_ranks(layout.ranks.group)
        engine._muonstore_channel = dist.new_group(
            members, backend="gloo", timeout=timedelta(hours=1))
    return Ranks(engine._muonstore_channel)


def _prepare(engine, layout, root, tag, client_state, options):
    """A job that holds copies of everything it writes."""
    ranks = layout.ranks

    def start():
        taken = sorted(_run.OWN_KEYS & set(client_state))
        if taken:
            _core.fail("InvalidArgument", "client_state uses keys that are "
                       "DeepSpeed's own", found=", ".join(taken))
        return _core.LiveSave(_describe.describe(engine, layout), root=root,
                              tag=tag, **options)

    live = ranks.together(start)
    try:
        return _fill_job(engine, layout, live, client_state)
    except BaseException:
        live.close()
        raise


def _fill_job(engine, layout, live, client_state):
    ranks = layout.ranks
    save_id = ranks.of_first(live.open)
    digests = ranks.gather(ranks.together(lambda: live.plan(save_id)))
    if any(digest != digests[0] for digest in digests):
        _core.fail("InvalidArgument", "the ranks would save different things",
                   file=live.path())
    carried = ranks.gather(ranks.together(
        lambda: _snapshot.carried_bytes(engine, client_state)))
    arrays = _snapshot.take(engine, layout, live.segments())
    return _Job(live, arrays, carried if ranks.rank == 0 else [])


class _Job:
    """What is left to do once the state is copied."""

    def __init__(self, live, arrays, carried):
        self.save = live
        self.channel: Any = None
        self.progress: Any = None
        self._arrays = arrays
        self._carried = carried

    def finish(self) -> tuple[list[str], list[str]]:
        """Notes, pruned tags."""
        live, channel = self.save, self.channel
        try:
            channel.together(lambda: live.write(self._arrays, self.progress))
            reports = channel.gather(live.report())
            channel.together(
                lambda: self._commit(reports) if channel.rank == 0 else None)
            return live.notes(), live.pruned()
        finally:
            live.close()
            self._arrays = self._carried = None

    def _commit(self, reports):
        with tempfile.TemporaryDirectory() as folder:
            paths = []
            for rank, data in enumerate(self._carried):
                paths.append(os.path.join(folder, f"{rank}.pt"))
                with open(paths[-1], "wb") as f:
                    f.write(data)
            self.save.commit(reports, paths)
