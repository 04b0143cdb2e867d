"""Client state of many types, and an engine that gets it back.

In each rank's process, of deepspeed_save_test.py.
"""
import argparse
import collections
import datetime
import pathlib
import types

import muonstore
import numpy as np
import torch
from muonstore import Opaque
from muonstore.deepspeed import resume, save
from torch.optim import lr_scheduler


class Own:
    """Nobody's but the run's: it is not made anew."""

    def __init__(self):
        self.steps = 7


def own_default():
    return 1


def client_state(rank):
    """What DeepSpeed's own load gives back as it was."""
    tensor = torch.arange(4.0) + rank
    return {
        "counter": collections.Counter("aab"),
        "ordered": collections.OrderedDict(b=tensor, a=[tensor]),
        "default": collections.defaultdict(list, {1: [rank], None: []}),
        "plain_default": collections.defaultdict(None, a=1),
        "queue": collections.deque([1, "b", 2.5], maxlen=3),
        "array": np.arange(6, dtype=">i4").reshape(2, 3) + rank,
        "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "empty": np.zeros((0, 3), np.float16),
        "words": np.array(["a", "bcd"]),
        "scalars": (np.float32(1.5), np.bool_(True), np.complex64(1j)),
        "rng": np.random.RandomState(rank).get_state(),
        "dtypes": {torch.bfloat16: torch.float32, "size": torch.Size([2, 3])},
        "device": torch.device("cpu", 0),
        "times": [datetime.datetime(2024, 2, 29, 1, 2, 3, 4,
                                    datetime.timezone.utc),
                  datetime.date(2024, 2, 29), datetime.time(5, 6),
                  datetime.timedelta(1, 2, 3)],
        "paths": [pathlib.Path("/runs/7"), pathlib.PureWindowsPath("c:/x")],
        "args": argparse.Namespace(lr=0.1, out=pathlib.Path("x"),
                                   dtype=torch.float16),
        "simple": types.SimpleNamespace(a={"b": 1j}),
        "sets": [{1, 2}, frozenset([3]), range(1, 9, 2)],
        "bytes": (b"\x00\xff", bytearray(b"12"), b""),
        3: {(1, None): -1 << 90, 2.5: "\u00e4"},
    }


def differences(want, got, where=""):
    """Where two values are not of one type and equal."""
    if type(want) is not type(got):
        return [f"{where}: {type(got)} for {type(want)}"]
    if isinstance(want, torch.Tensor):
        return [] if torch.equal(want, got) else [f"{where}: {got}"]
    if isinstance(want, (np.ndarray, np.generic)):
        same = want.dtype == got.dtype and np.array_equal(want, got) and \
            want.flags["F_CONTIGUOUS"] == got.flags["F_CONTIGUOUS"]
        return [] if same else [f"{where}: {got!r}"]
    if isinstance(want, (argparse.Namespace, types.SimpleNamespace)):
        return differences(vars(want), vars(got), where)
    if isinstance(want, dict):
        if getattr(want, "default_factory", None) != \
                getattr(got, "default_factory", None):
            return [f"{where}: {got!r}"]
        want, got = list(want.items()), list(got.items())
    if isinstance(want, (list, tuple, collections.deque)):
        if len(want) != len(got) or getattr(want, "maxlen", 0) != \
                getattr(got, "maxlen", 0):
            return [f"{where}: {got!r}"]
        return [problem for i, (a, b) in enumerate(zip(want, got))
                for problem in differences(a, b, f"{where}[{i}]")]
    return [] if want == got else [f"{where}: {got!r} for {want!r}"]


def scheduler_of(engine):
    """Its state has a Counter, two levels down."""
    base = engine.optimizer.optimizer
    return lr_scheduler.SequentialLR(
        base, [lr_scheduler.ConstantLR(base, 0.5, 2),
               lr_scheduler.MultiStepLR(base, [1, 1, 3])], milestones=[4])


def require_kept(engine, root, rank):
    engine.lr_scheduler = scheduler_of(engine)
    resumed = resume(engine, root, "types")
    client = dict(resumed.client_state)
    shared = client.pop("shared")
    assert shared[0] is shared[1], shared
    own, inner = client.pop("own"), client.pop("inner")
    assert isinstance(own, Opaque) and own.attributes == {"steps": 7}, own
    assert isinstance(inner.value, Opaque), inner
    other = client.pop("other_default")
    assert type(other) is dict and other == {"a": 1}, other
    found = differences(client_state(rank), client)
    assert not found, found
    for words in ("own is a ", "inner.value is a ", "other_default is a "):
        assert any(note.startswith(words) for note in resumed.notes), (
            words, resumed.notes)
    assert not any("counter" in note for note in resumed.notes), resumed.notes
    for _ in range(5):
        engine.lr_scheduler.step()
    assert engine.lr_scheduler._schedulers[1].milestones == \
        collections.Counter([1, 1, 3])


def keep_types(engine, root, rank):
    """As DeepSpeed saves it, and as we do."""
    engine.lr_scheduler = scheduler_of(engine)
    shared = collections.Counter("x")
    state = {**client_state(rank), "shared": [shared, shared], "own": Own(),
             "inner": argparse.Namespace(value=Own()),
             "other_default": collections.defaultdict(own_default, a=1)}
    # Below stage 3 DeepSpeed keeps rank 0's alone.
    by_deepspeed = rank if engine.zero_optimization_stage() == 3 else 0
    handle = save(engine, root + "/native", "types", client_state=state)
    handle.wait()
    assert repr(handle) == (
        "<muonstore.deepspeed.SaveHandle tag='types' "
        f"path='{root}/native/types' done=True>"), handle
    engine.save_checkpoint(root + "/deepspeed", "types", client_state=state)
    engine.lr_scheduler.step()
    require_kept(engine, root + "/native", rank)
    require_kept(engine, root + "/deepspeed", by_deepspeed)
    if rank == 0:
        muonstore.convert(root + "/deepspeed", root + "/converted", to="native")
    torch.distributed.barrier()
    require_kept(engine, root + "/converted", by_deepspeed)
