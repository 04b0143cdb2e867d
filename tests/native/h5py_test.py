#!/usr/bin/env python3
"""h5py, which is another program, must read what we write.

Every logical tensor of checkpoint.h5 equals what the source held, whatever the
cut; elements of a rank file that was moved away read as NaN (all bits one),
never as zeros. Usage: h5py_test.py PROGRAM, where PROGRAM is write_h5py_cases.
Exit code 77, which ctest calls skipped, without h5py. Compressed files are read
where the module hdf5plugin is there, too.
"""
import os
import subprocess
import sys
import tempfile

try:
    import h5py
    import numpy as np
except ImportError:
    print("skipped: h5py is not installed; scripts/setup_interop does that")
    sys.exit(77)

try:
    import hdf5plugin  # noqa: F401: registers the zstd filter.
    HAVE_ZSTD = True
except ImportError:
    HAVE_ZSTD = False

# What h5py gives for our dtypes; None: bf16, which numpy lacks.
NUMPY = {
    "f64": "<f8", "f32": "<f4", "f16": "<f2", "bf16": None, "i64": "<i8",
    "i32": "<i4", "u8": "u1", "bool": "?", "c128": "<c16", "c64": "<c8",
    "c32": [("r", "<f2"), ("i", "<f2")], "f8_e4m3fn": "u1",
    "f8_e5m2fnuz": "u1",
}
ITEM = {"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "u8": 1,
        "bool": 1, "c128": 16, "c64": 8, "c32": 4, "f8_e4m3fn": 1,
        "f8_e5m2fnuz": 1}


def attribute(dataset, name):
    if name in dataset.attrs:
        value = dataset.attrs[name]
        return value if isinstance(value, bytes) else value.encode()
    return bytes(dataset.attrs[name + "_bytes"])


def pairs(text, cast=int):
    if text == "-":
        return []
    return [tuple(cast(x) for x in item.split(":")) for item in text.split(",")]


def read_expected(folder):
    for line in open(os.path.join(folder, "expected.txt")):
        name, kind, dtype, shape, path, places, missing = line.split()
        with open(os.path.join(folder, path), "rb") as file:
            data = np.frombuffer(file.read(), np.uint8)
        yield {
            "key": (bytes.fromhex(name[1:]), bytes.fromhex(kind[1:])),
            "dtype": dtype,
            "shape": tuple(int(x) for x in shape.split(",") if x != "-"),
            "rows": data.reshape(-1, ITEM[dtype]),
            "places": pairs(places),
            "missing": pairs(missing),
        }


def ones(dtype, count):
    value = 0x80 if dtype == "f8_e5m2fnuz" else 0xFF
    return np.full((count, ITEM[dtype]), value, np.uint8)


def same(dataset, dtype, rows):
    """Compares the dataset with rows of stored bytes; NaN equals NaN."""
    got = dataset[()]
    if dtype == "bf16":
        want = (np.ascontiguousarray(rows).view("<u2").astype("<u4") << 16)
        want = want.view("<f4").reshape(dataset.shape)
        return np.array_equal(got, want, equal_nan=True)
    got = np.ascontiguousarray(got).reshape(-1)
    if dtype == "bool":  # numpy knows two values: what is missing is True.
        return np.array_equal(got, rows.reshape(-1) != 0)
    if dtype in ("f16", "f32", "f64"):
        want = np.ascontiguousarray(rows).view(NUMPY[dtype]).reshape(-1)
        return np.array_equal(got, want, equal_nan=True)
    return got.tobytes() == rows.tobytes()


def check(folder, gone):
    """`gone` is the rank whose file is away, or None."""
    found = {}
    with h5py.File(os.path.join(folder, "tag", "checkpoint.h5"), "r") as view:
        for group in view["state"].values():
            for dataset in group.values():
                key = attribute(dataset, "name"), attribute(dataset, "kind")
                assert key not in found, key
                found[key] = dataset
        num = 0
        for tensor in read_expected(folder):
            dataset = found.pop(tensor["key"])
            dtype = tensor["dtype"]
            assert dataset.shape == tensor["shape"], tensor
            if NUMPY[dtype] is not None:
                assert dataset.dtype == np.dtype(NUMPY[dtype]), (
                    tensor, dataset.dtype)
            rows = tensor["rows"].copy()
            for begin, end, rank in tensor["places"]:
                if rank == gone:
                    rows[begin:end] = ones(dtype, end - begin)
            for begin, end in tensor["missing"]:
                rows[begin:end] = ones(dtype, end - begin)
            assert same(dataset, dtype, rows), (folder, gone, tensor["key"])
            num += 1
        assert not found, found
    return num


def check_all(program, zstd_level, count):
    num = 0
    with tempfile.TemporaryDirectory() as root:
        subprocess.run([program, root, "1000", str(count), str(zstd_level)],
                       check=True)
        for case in sorted(os.listdir(root)):
            folder = os.path.join(root, case)
            num += check(folder, None)
            tag = os.path.join(folder, "tag")
            ranks = sorted(f for f in os.listdir(tag) if f.startswith("rank-"))
            last = os.path.join(tag, ranks[-1])
            os.rename(last, last + ".away")
            num += check(folder, len(ranks) - 1)
    return num


def main():
    num = check_all(sys.argv[1], 0, 40)
    print(f"{num} tensors equal in plain files")
    if HAVE_ZSTD:
        num = check_all(sys.argv[1], 3, 15)
        print(f"{num} tensors equal in compressed files")
    else:
        print("no hdf5plugin: compressed files were not read")


main()
