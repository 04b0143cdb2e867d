"""torch itself compares what the writer made with what it was made from.

Usage: torch_oracle_test.py COPY_PROGRAM FOLDER...

COPY_PROGRAM copies every sound torch file below the folders and lists the
pairs. Both are loaded by torch.load, with and without weights_only: types,
values, views, sharing and attributes must agree. Exits with 77 where torch is
not installed.
"""

import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError:
    print("torch is not installed; skipped")
    sys.exit(77)


class Different(Exception):
    pass


def expect(condition, path, *values):
    if not condition:
        raise Different(path, *values)


def compare_tensors(one, other, seen, path):
    for name in ("dtype", "shape", "requires_grad", "device"):
        expect(getattr(one, name) == getattr(other, name), path, name)
    expect(one.stride() == other.stride(), path, "stride")
    expect(one.storage_offset() == other.storage_offset(), path, "offset")
    storage, copy = one.untyped_storage(), other.untyped_storage()
    raw = [torch.empty(0, dtype=torch.uint8).set_(s) for s in (storage, copy)]
    expect(torch.equal(*raw), path, "bytes")
    if storage.nbytes():
        key = ("storage", storage.data_ptr())
        known = seen.setdefault(key, copy.data_ptr())
        expect(known == copy.data_ptr(), path, "shared storage")


def children(one, other, path):
    if isinstance(one, (list, tuple)):
        expect(len(one) == len(other), path, "length")
        yield from zip(range(len(one)), one, other)
    elif isinstance(one, dict):
        expect(list(one) == list(other), path, "keys")
        for key in one:
            yield key, one[key], other[key]
    if hasattr(one, "__dict__"):
        yield "__dict__", vars(one), vars(other)


def is_plain(value):
    plain = (int, float, str, bytes, type, type(None))
    container = (list, tuple, dict)
    return isinstance(value, plain) or not (
        isinstance(value, container) or
        (hasattr(value, "__dict__") and not callable(value)))


def compare(first, second):
    """Raises Different; a list of pairs instead of recursion: trees are deep."""
    seen = {}
    pending = [("", first, second)]
    while pending:
        path, one, other = pending.pop()
        expect(type(one) is type(other), path, type(one), type(other))
        if is_plain(one):
            # As texts: numpy's arrays and generators have no plain ==.
            expect(repr(one) == repr(other) or one == other, path, one, other)
            continue
        if id(one) in seen:
            expect(seen[id(one)] == id(other), path, "shared value")
            continue
        seen[id(one)] = id(other)
        if isinstance(one, torch.Tensor):
            compare_tensors(one, other, seen, path)
            pending.append((path + ".__dict__", vars(one), vars(other)))
            continue
        for name, a, b in children(one, other, path):
            pending.append((f"{path[-200:]}/{name}", a, b))


def load(path, weights_only):
    try:
        return torch.load(path, weights_only=weights_only), None
    except Exception as error:  # What torch refuses, it refuses in many ways.
        return None, error


def check_pair(source, copy, weights_only):
    one, error = load(source, weights_only)
    if error is not None:
        return None
    other, error = load(copy, weights_only)
    if error is not None:
        return f"the copy does not load: {error}"
    try:
        compare(one, other)
    except Different as difference:
        return f"differs: {difference}"
    return ""


def main():
    num_equal = {True: 0, False: 0}
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        pairs = subprocess.run(
            [sys.argv[1], folder, *sys.argv[2:]],
            check=True, capture_output=True, text=True).stdout.splitlines()
        for pair in pairs:
            source, copy = pair.split("\t")
            for weights_only in (True, False):
                # Never run what a hostile file asks for.
                hostile = pathlib.Path(source).name.startswith("mal_")
                if hostile and not weights_only:
                    continue
                fault = check_pair(source, copy, weights_only)
                if fault:
                    faults.append(f"{source} {weights_only=}: {fault}")
                elif fault == "":
                    num_equal[weights_only] += 1
    print(*faults, sep="\n")
    print(f"equal: {num_equal[True]} with weights_only, "
          f"{num_equal[False]} without")
    return 1 if faults or min(num_equal.values()) < 40 else 0


if __name__ == "__main__":
    sys.exit(main())
