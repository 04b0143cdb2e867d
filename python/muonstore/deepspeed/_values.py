"""Client state and schedulers with the types that they were saved with.

The library's reader gives plain values: a Counter as a dict, an array of NumPy
as Opaque. What a value was is told by the pickle, read as inert values; types
of the table below are made anew from their plain parts, and no others.
"""
from __future__ import annotations

import argparse
import collections
import datetime
import itertools
import json
import os
import pathlib
import types
from typing import Any, Optional

import numpy as np
import torch

from muonstore._arrays import Opaque
from muonstore.deepspeed import _inert

_ABSENT = object()
_NAMED_IN_A_NOTE = 5
# What the library gives where there may have been another type.
_LESS_THAN_TOLD = (dict, list, tuple, set, frozenset, Opaque)


def with_types(model: dict, keys: list[str], path: str, rank: int,
               notes: list[str]) -> dict:
    """`model` with those of its values as they were saved; notes name what
    stays Opaque. path: of the tag; rank: of the file of model states."""
    maker, result, told = _Maker(), dict(model), None
    keys = [key for key in keys if isinstance(model[key], _LESS_THAN_TOLD)]
    for key in keys:
        try:
            told = told or _model_states(path, rank)
            result[key] = maker.value(told[key], model[key], key)
        except Exception as error:  # noqa: B902 Any: what a pickle can hold.
            notes.append("types such as Counter are given as plain ones in "
                         + ", ".join(map(str, [key] if told else keys))
                         + f": {path}: {type(error).__name__}: {error}")
            if not told:
                break
    kept = [place for key in keys
            for place in _opaque(result[key], str(key))]
    _note(kept, "not a type that is made anew: it is given as "
          "muonstore.Opaque", notes)
    _note(maker.plain, "not made anew: it is given as a plain value", notes)
    return result


def layouts_of(path: str) -> dict[str, str]:
    """Parameters of a native tag that Muon sees as other than one matrix."""
    return dict(_manifest(path).get("matrix_layouts", []))


def _note(places, what, notes):
    for where, kind in places[:_NAMED_IN_A_NOTE]:
        notes.append(f"{where} is a {kind}, {what}")
    if len(places) > _NAMED_IN_A_NOTE:
        notes.append(f"so are {len(places) - _NAMED_IN_A_NOTE} more values")


def _manifest(path) -> dict:
    try:
        with open(os.path.join(path, "manifest.json"), encoding="utf-8") as f:
            return json.load(f)
    except (FileNotFoundError, NotADirectoryError):
        return {}


def _model_states(path, rank):
    """The values that the pickle tells, inert."""
    save_id = _manifest(path).get("save_id")
    if save_id is not None:
        file = os.path.join(path, f"carried-{rank:05d}.{save_id}.pt")
        return _inert.read(file)["model_states"]
    file = os.path.join(path, f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt")
    if rank == 0 and not os.path.exists(file):
        file = os.path.join(path, "mp_rank_00_model_states.pt")
    return _inert.read(file)


def _opaque(value, where):
    """(where, type) of what is Opaque in a value."""
    found, seen, left = [], set(), [(where, value)]
    while left:
        at, item = left.pop()
        if isinstance(item, Opaque):
            # "module.Class(arguments){attributes}"
            found.append((at, item.text.split("(")[0].split("{")[0]))
            continue
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, (argparse.Namespace, types.SimpleNamespace)):
            item = vars(item)
        if isinstance(item, dict):
            inner = [(f"{at}.{key}", part) for key, part in item.items()]
        elif isinstance(item, (list, tuple, set, frozenset, collections.deque)):
            inner = [(f"{at}[{i}]", part) for i, part in enumerate(item)]
        else:
            continue
        left += reversed(inner)
    return found


class _Maker:
    """Makes values of what a pickle tells. `given` is the library's value of
    the same thing, for tensors and what is plain; _ABSENT: it has none."""

    def __init__(self):
        self.plain: list[tuple[str, str]] = []  # (where, type) not made.
        # What is shared stays shared: by the id of what is told, and whether
        # there was nothing given, as then tensors are not made.
        self._made: dict[tuple[int, bool], Any] = {}

    def value(self, told: Any, given: Any, where: str) -> Any:
        if given is None:  # It stands for a tensor of the checkpoint, too.
            return None
        for key in ((id(told), False), (id(told), given is _ABSENT)):
            if key in self._made:
                return self._made[key]
        if _inert.is_name(told):
            return self._name(told, given)
        if isinstance(told, _inert.Inert):
            made = self._call(told, given, where)
        elif isinstance(told, list):
            made = self.keep(told, given, [])
            made += self._items(told, given, where)
        elif isinstance(told, dict):
            made = self.keep(told, given, {})
            made.update(self.entries(told.items(), given, where))
        elif isinstance(told, tuple):
            made = tuple(self._items(told, given, where))
        elif isinstance(told, (set, frozenset)):
            made = type(told)(self._items(told, _ABSENT, where))
        else:
            return told if given is _ABSENT else given
        return self.keep(told, given, made)

    def keep(self, told: Any, given: Any, made: Any) -> Any:
        self._made[id(told), given is _ABSENT] = made
        return made

    def plain_value(self, told: Any) -> Any:
        return self.value(told, _ABSENT, "")

    def entries(self, told, given, where):
        """Pairs of keys and values, of a dict in its order."""
        pairs = [(_ABSENT, _ABSENT)] * len(told) if given is _ABSENT \
            else list(given.items())
        if len(pairs) != len(told):
            raise ValueError(f"{where} has other entries than the pickle tells")
        return [(self.value(key, known, where),
                 self.value(value, item, f"{where}.{key}"))
                for (key, value), (known, item) in zip(told, pairs)]

    def _items(self, told, given, where):
        known = itertools.repeat(_ABSENT, len(told)) if given is _ABSENT \
            else given
        return [self.value(item, other, f"{where}[{i}]")
                for i, (item, other) in enumerate(zip(told, known,
                                                      strict=True))]

    def _name(self, told, given):
        dtype = vars(torch).get(told.name.removeprefix("torch."))
        if told.name.startswith("torch.") and isinstance(dtype, torch.dtype):
            return dtype
        return Opaque(told.name, {}) if given is _ABSENT else given

    def _call(self, told, given, where):
        make = _DICTS.get(told.name)
        if make is not None:
            return make(self, told, given, where)
        make = _TYPES.get(told.name)
        known = given is not _ABSENT and not isinstance(given, Opaque)
        if make is None or (known and told.name not in _FLATTENED):
            return Opaque(told.name, {}) if given is _ABSENT else given
        try:
            return make(self, told)
        except Exception:  # noqa: B902 Its parts are not those of the type.
            if known:
                self.plain.append((where, told.name))
            return Opaque(told.name, {}) if given is _ABSENT else given


def _counter(maker, told, given, where):
    made = maker.keep(told, given, collections.Counter())
    made.update(dict(maker.entries(_told_entries(told), given, where)))
    return made


def _ordered_dict(maker, told, given, where):
    made = maker.keep(told, given, collections.OrderedDict())
    made.update(maker.entries(_told_entries(told), given, where))
    if isinstance(told.state, dict):
        # A state_dict has its versions there.
        vars(made).update(maker.plain_value(told.state))
    return made


def _default_dict(maker, told, given, where):
    factory = told.args[0] if told.args else None
    made = {}
    if factory is None:
        made = collections.defaultdict(None)
    elif _inert.is_name(factory) and factory.name in _FACTORIES:
        made = collections.defaultdict(_FACTORIES[factory.name])
    else:
        kind = factory.name if _inert.is_name(factory) else "a value"
        maker.plain.append((where, f"defaultdict of {kind}"))
    maker.keep(told, given, made)
    made.update(maker.entries(told.entries, given, where))
    return made


def _told_entries(told):
    first = told.args[0] if told.args else []
    pairs = dict(first.items() if isinstance(first, dict) else first)
    pairs.update(told.entries)
    return list(pairs.items())


def _namespace(kind):
    def make(maker, told):
        made = kind()
        if told.state is not None:
            vars(made).update(maker.plain_value(told.state))
        return made
    return make


def _of(kind, *allowed):
    """A type that is made of arguments of these types alone."""
    def make(maker, told):
        arguments = [maker.plain_value(argument) for argument in told.args]
        if not all(isinstance(argument, allowed) for argument in arguments):
            raise TypeError(told.name)
        return kind(*arguments)
    return make


def _set(kind):
    return lambda maker, told: kind(map(maker.plain_value,
                                        *told.args[:1] or [[]]))


def _deque(maker, told):
    items = [*(told.args[0] if told.args else ()), *told.items]
    limit = told.args[1] if len(told.args) > 1 else None
    return collections.deque(map(maker.plain_value, items), limit)


def _encoded(_, told):
    text, encoding = told.args
    if encoding not in ("latin1", "latin-1"):
        raise ValueError(encoding)
    return text.encode("latin1")


def _dtype(_, told):
    """Of numbers, booleans and text; not of fields, objects or times."""
    made = np.dtype(told.args[0])
    if made.kind not in "biufcSU" or made.names or made.subdtype:
        raise TypeError(told.args[0])
    order = told.state[1] if told.state else "="
    return made.newbyteorder(order) if order in "<>" else made


def _array(maker, told):
    if told.args[0].name != "numpy.ndarray":
        raise TypeError(told.args[0].name)
    _, shape, dtype, is_fortran, data = told.state
    return _elements(maker, data, dtype, shape, "F" if is_fortran else "C")


def _array_of_buffer(maker, told):
    data, dtype, shape, order = told.args
    return _elements(maker, data, dtype, shape, order)


def _scalar(maker, told):
    dtype, data = told.args
    return _elements(maker, data, dtype, (), "C")[()]


def _elements(maker, data, dtype, shape, order):
    dtype = maker.plain_value(dtype)
    data = maker.plain_value(data)
    if dtype.itemsize == 0:
        raise TypeError(str(dtype))
    # Of the bytes that there are; they are not to be written to.
    return np.frombuffer(data, dtype).reshape(shape, order=order).copy(order)


_FACTORIES = {f"builtins.{kind.__name__}": kind for kind in
              (bool, dict, float, int, list, set, str, tuple)}
_FACTORIES.update({"collections.Counter": collections.Counter,
                   "collections.OrderedDict": collections.OrderedDict})

# The library gives a dict of each.
_DICTS = {
    "collections.Counter": _counter,
    "collections.OrderedDict": _ordered_dict,
    "collections.defaultdict": _default_dict,
}
# The library gives a set and a tuple.
_FLATTENED = {"builtins.frozenset", "torch.Size"}

_TYPES = {
    "_codecs.encode": _encoded,
    "argparse.Namespace": _namespace(argparse.Namespace),
    "builtins.bytearray": _of(bytearray, bytes),
    "builtins.bytes": _of(bytes, bytes),
    "builtins.complex": _of(complex, int, float),
    "builtins.frozenset": _set(frozenset),
    "builtins.range": _of(range, int),
    "builtins.set": _set(set),
    "collections.deque": _deque,
    "datetime.date": _of(datetime.date, bytes),
    "datetime.datetime": _of(datetime.datetime, bytes, datetime.timezone),
    "datetime.time": _of(datetime.time, bytes, datetime.timezone),
    "datetime.timedelta": _of(datetime.timedelta, int),
    "datetime.timezone": _of(datetime.timezone, datetime.timedelta, str),
    "numpy.core.multiarray._reconstruct": _array,
    "numpy.core.multiarray.scalar": _scalar,
    "numpy.core.numeric._frombuffer": _array_of_buffer,
    "numpy.dtype": _dtype,
    "torch.Size": _of(torch.Size, tuple),
    "torch.device": _of(torch.device, str, int),
    "types.SimpleNamespace": _namespace(types.SimpleNamespace),
    **{f"pathlib.{kind.__name__}": _of(kind, str) for kind in
       (pathlib.PosixPath, pathlib.PurePosixPath, pathlib.PureWindowsPath,
        pathlib.WindowsPath)},
}
