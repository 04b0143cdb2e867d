#!/usr/bin/env python3
"""h5py reads what two ranks saved: the logical tensors of a live store.

Usage: h5py_live_test.py PROGRAM, where PROGRAM is write_live_save. Exit code
77, which ctest calls skipped, without h5py.
"""
import ast
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


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True)
        count = 0
        with h5py.File(f"{folder}/root/t/checkpoint.h5") as file:
            for line in open(f"{folder}/expected.txt"):
                what, path = line.rstrip("\n").split("\t")
                key, shape = what.split(" ", 1)
                with open(os.path.join(folder, path), "rb") as raw:
                    expected = np.frombuffer(raw.read(), "<f4")
                found = file[f"state/{key}"][()]
                assert list(found.shape) == ast.literal_eval(shape), key
                assert len(np.unique(expected)) > 1, key
                assert (found.ravel().view("<u4") ==
                        expected.view("<u4")).all(), key
                count += 1
        assert count == 14, count
        print(f"{count} tensors are equal")


if __name__ == "__main__":
    main()
