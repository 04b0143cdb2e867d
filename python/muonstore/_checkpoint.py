"""muonstore.open: one checkpoint of any format."""
from __future__ import annotations

import json
import os
from typing import Any, Optional, Union

from muonstore import _arrays
from muonstore._load import _core
from muonstore._numbers import count, num_threads
from muonstore._progress import Progress, callback_of

Path = Union[str, "os.PathLike[str]"]


def open(path: Path, tag: Optional[str] = None, *,  # noqa: A001
         allow_loss: bool = False) -> Checkpoint:
    """A checkpoint root, tag directory, torch.save file or run folder.

    The format is detected; nothing is written, locked or executed. `tag`: of a
    root; None: the one that `latest` names, or the only one. `allow_loss`: open
    although elements are missing that the writer lost. Raises Error.
    """
    return Checkpoint(os.fspath(path), tag or "", allow_loss)


class Checkpoint:
    """What `open` gives; may be used on many threads at once.

    The files of ranks beyond the first are parsed when something needs them.
    """

    def __init__(self, path: str, tag: str, allow_loss: bool):
        self._head = _core.Checkpoint.open(path, tag=tag, allow_loss=True,
                                           rank_zero_only=True)
        self._allow_loss = allow_loss
        self._whole = None

    @property
    def path(self) -> str:
        """The tag directory or file."""
        return os.fspath(self._head.path)

    @property
    def tag(self) -> str:
        return self._head.tag

    @property
    def summary(self) -> dict:
        """What `ckpt-inspect summary --json` prints: "format", "step", "stage",
        "num_ranks", "precision", "offload", "momentum", "groups" with their
        hyper-parameters, "state" with counts and bytes, "counters", ..."""
        return json.loads(self._head.summary_json())

    @property
    def tensors(self) -> list[dict]:
        """Every stored tensor, by headers only: "parameter", "state", "shape",
        "dtype", "group", "optimizer", "ranks", "stored_bytes", "num_missing".
        """
        return self.select()

    def select(self, param: str = "", state: str = "") -> list[dict]:
        """Those of `tensors` that a glob and a kind of state choose."""
        return json.loads(self._full().tensors_json(param, state))["tensors"]

    def read(self, name: str, state: str = "master",
             rows: Union[None, int, slice, range] = None, *,
             torch: bool = False) -> Any:
        """The values of a tensor in its logical shape, as stored.

        state: "master", "momentum", "exp_avg", "exp_avg_sq", "weight", ...;
            also "fp32", "momentum_buffer", "variance".
        rows: of the first dimension: 3, slice(0, 8), range(0, 8); no other
            bytes are read.
        Returns a NumPy array, or a tensor on the CPU with torch=True. bf16 and
        8-bit floats have the dtypes of ml_dtypes where that is installed, else
        they are the raw uint16 or uint8. Raises NotFoundError with the nearest
        names, DataLossError for elements that the files lack.
        """
        if torch:  # Before anything is read.
            _arrays.require_torch()
        whole = self._full()
        index, shape, dtype, torch_dtype = whole.find(name, state)
        first, shape = _rows_of(shape, rows)
        row_elements = 1
        for size in shape[1:]:
            row_elements *= size
        array = _arrays.empty(shape, dtype)
        whole.read(index, first * row_elements, array)
        if torch:
            return _arrays.as_torch(array, torch_dtype)
        return _arrays.as_numpy(array, dtype)

    def stats(self, state: str = "momentum", param: str = "", *,
              per_head: int = 0, split: tuple[int, ...] = (),
              vs: Optional[Checkpoint] = None, top: int = 3, jobs: int = 0,
              progress: Progress = None) -> list[dict]:
        """Statistics of every matrix, worst first: is the state healthy?

        per_head: equal row blocks, this many; split: rows of each block.
        vs: another checkpoint: "cosine", "norm_ratio", and whether a matrix is identical.
        top: how many singular values.
        One dict a matrix: "parameter", "rows", "cols", "flags" ("nonfinite",
        "zero", ...), "ratio_to_master", and in "stats" "frobenius",
        "stable_rank", "singular_values", ... as `ckpt-inspect stats --json`.
        """
        choice = _core.StatsChoice()
        choice.param, choice.state = param, state
        choice.top = count("top", top)
        choice.per_head = count("per_head", per_head)
        choice.split = list(split)
        choice.jobs = num_threads("jobs", jobs)
        text = _core.stats_json(self._full(), choice, vs and vs._full(),
                                callback_of(progress))
        return [_with_floats(matrix) for matrix in json.loads(text)["matrices"]]

    def verify(self, *, quick: bool = False, progress: Progress = None) -> dict:
        """Is it whole? As muonstore.verify."""
        return json.loads(_core.verify_json(self.path, "", quick,
                                            callback_of(progress)))

    def carried(self, rank: int = 0, *, torch: bool = False) -> dict:
        """What the checkpoint holds beside its tensors, of one rank of the run
        that saved it: client state, schedulers, loss scalers, configs.

        {"model_states": ..., "optim_states": ...}, nested as in DeepSpeed's
        files, with None for the tensors that `read` gives; None where there is
        nothing. Objects of classes that are not plain Python, NumPy or torch
        are `Opaque`: nothing in a file is ever imported or called.
        """
        if torch:
            _arrays.require_torch()

        def finish(array, dtype, torch_dtype):
            return _arrays.as_torch(array, torch_dtype) if torch \
                else _arrays.as_numpy(array, dtype)

        whole = self._full()
        if _core.num_carried_ranks(whole) == 0:
            return {"model_states": None, "optim_states": None}
        try:
            model, optim = _core.carried(whole, rank, finish)
        except TypeError as error:
            # A frozenset comes as a set.
            _core.fail("Unsupported", "a dict or set among the carried values "
                       "has a key or an element that cannot be one here",
                       file=self.path, found=str(error))
        return {"model_states": model, "optim_states": optim}

    def __reduce__(self):
        # Another process opens it anew.
        return Checkpoint, (self.path, "", self._allow_loss)

    def __repr__(self) -> str:
        summary = self.summary
        return (f"<muonstore.Checkpoint {self.path!r}: {summary['format']}, "
                f"step {summary['step']}, {summary['num_ranks']} ranks>")

    def _full(self):
        if self._whole is None:
            self._whole = _core.Checkpoint.open(self.path,
                                                allow_loss=self._allow_loss)
        return self._whole


def _rows_of(shape, rows):
    """(first row, shape of the rows)"""
    if rows is None:
        return 0, shape
    if not shape:
        _core.fail("InvalidArgument", "a tensor without dimensions has no rows")
    if hasattr(rows, "__index__"):
        rows = slice(rows, rows + 1) if rows != -1 else slice(-1, None)
    if isinstance(rows, range):
        rows = slice(rows.start, rows.stop, rows.step)
    if not isinstance(rows, slice):
        _core.fail("InvalidArgument", "rows are one row, a slice or a range",
                   found=repr(rows))
    first, stop, step = rows.indices(shape[0])
    if step != 1 or (rows.stop is not None and rows.stop > shape[0]):
        _core.fail("InvalidArgument", "rows are a range inside of the tensor, "
                   "one after the other", expected=f"0 to {shape[0]}",
                   found=str(rows))
    return first, [max(0, stop - first), *shape[1:]]


def _with_floats(matrix):
    """JSON has no NaN and no infinity; Python has."""
    def number(value):
        return float(value) if value in ("nan", "inf", "-inf") else value

    for part in (matrix, matrix["stats"] or {}):
        for key, value in part.items():
            if isinstance(value, str) and key not in ("parameter", "state",
                                                      "note"):
                part[key] = number(value)
    if matrix["stats"]:
        values = matrix["stats"]["singular_values"]
        matrix["stats"]["singular_values"] = [number(v) for v in values]
    return matrix
