"""muonstore.convert: ckpt-convert from Python."""
from __future__ import annotations

import json
import os
import re
from typing import Any, Union

from muonstore._errors import Error, make
from muonstore._load import _core
from muonstore._progress import Progress, callback_of

Path = Union[str, "os.PathLike[str]"]


def convert(source: Path, target: Path, *, progress: Progress = None,
            **options: Any) -> dict:
    """Moves a checkpoint to another stage, rank count, offload mode or format.

    Every element exactly, in bounded memory; `target`/tag appears whole or not
    at all. Options are those of `ckpt-convert` (docs/ckpt-convert.md) with
    underscores: to, tag, out_tag, overwrite, set_latest, carry_files, stage,
    world_size, offload, zero_init, like, ds_config, momentum_scale, zstd,
    state, dtype, max_shard_size, memory_limit, jobs, allow_loss, dry_run,
    verify. Flags are booleans, allow_loss is a list.

        muonstore.convert("runs/7", "out", stage=3, zero_init=False,
                          allow_loss=["carried"])

    progress: None, True (bars of tqdm), or callable(what, done, total), told
        about bytes.
    Returns what `ckpt-convert --json` prints. Raises Error; Ctrl-C and what
    `progress` raises stop it, and nothing of the target is left then.
    """
    words = [os.fspath(source), os.fspath(target)]
    for name, value in options.items():
        words += _words(name, value)
    callback = callback_of(progress)
    try:
        return json.loads(_core.convert_json(words, callback))
    except Error as error:
        said = [_said_in_python(part) for part in error.args]
        if said == list(error.args):
            raise
        raise make(*said) from None


def _said_in_python(text: Any) -> Any:
    """The tool says yes and no to its options."""
    if not isinstance(text, str):
        return text
    return re.sub("`([a-z_]+)` (yes|no)\\b", lambda found: "`{}={}`".format(
        found[1], found[2] == "yes"), text)


_FLAGS = {"overwrite", "set_latest", "carry_files", "dry_run", "verify"}


def _words(name: str, value: Any) -> list[str]:
    option = "--" + name.replace("_", "-")
    if value is None or (name in _FLAGS and value is False):
        return []
    if name in _FLAGS and value is True:
        return [option]
    if isinstance(value, bool):
        value = "yes" if value else "no"
    elif isinstance(value, (list, tuple, set, frozenset)):
        if not value:
            return []
        value = ",".join(str(item) for item in value)
    if hasattr(value, "__fspath__"):
        value = os.fspath(value)
    return [f"{option}={value}"]
