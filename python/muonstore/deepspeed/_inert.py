"""The pickle of a torch.save file as inert values: nothing is imported.

Every class and function that the pickle names becomes a class of this module
that keeps what it is given. So a reader sees which types there were, which the
library's own reader of plain values does not tell.
"""
from __future__ import annotations

import pickle
import zipfile
from typing import Any


class Inert:
    """A call that a pickle asks for, not made; itself as a class: a name.

    name: "collections.Counter"; args: of the call; state: what followed to be
        set; entries, items: what followed to be added.
    """
    name = ""

    def __new__(cls, *args):
        made = object.__new__(cls)
        made.args = args
        made.state = None
        made.entries = []
        made.items = []
        return made

    def __init__(self, *args):
        pass

    def __setstate__(self, state):
        self.state = state

    def __setitem__(self, key, value):
        self.entries.append((key, value))

    def append(self, item):
        self.items.append(item)

    add = append

    def extend(self, items):
        self.items.extend(items)


# What they are called now, or what all versions are told as.
_MODULES = {"__builtin__": "builtins", "pathlib._local": "pathlib",
            "numpy._core.multiarray": "numpy.core.multiarray",
            "numpy._core.numeric": "numpy.core.numeric"}
_NAMES = {"builtins.long": "builtins.int", "builtins.xrange": "builtins.range",
          "builtins.unicode": "builtins.str"}


# The one in Python: that in C reserves what a damaged index claims.
class _Reader(pickle._Unpickler):
    def find_class(self, module, name):
        full = f"{_MODULES.get(module, module)}.{name}"
        return type("Inert", (Inert,), {"name": _NAMES.get(full, full)})

    def persistent_load(self, _):
        return Inert()

    def get_extension(self, code):
        raise pickle.UnpicklingError(f"extension {code}")


def is_name(value: Any) -> bool:
    """Whether it is a class or function itself."""
    return isinstance(value, type) and issubclass(value, Inert)


def read(path: str) -> Any:
    """The root value. Raises whatever a file can be wrong in."""
    if not zipfile.is_zipfile(path):
        with open(path, "rb") as stream:
            # A number, a version and the machine come first.
            return [_Reader(stream, encoding="utf-8").load()
                    for _ in range(4)][-1]
    with zipfile.ZipFile(path) as archive:
        (member,) = [name for name in archive.namelist()
                     if name.count("/") == 1 and name.endswith("/data.pkl")]
        with archive.open(member) as stream:
            return _Reader(stream, encoding="utf-8").load()
