#!/usr/bin/env python3
"""How long `ckpt-inspect` takes to say what is in a large checkpoint.

    benchmarks/metadata.py [--bin build/release/bin] [--scratch DIR]
                           [--json FILE]

Two checkpoints of sparse files (scripts/make_large_checkpoint.py): state of
100 GB on 8 ranks, and 1024 ranks x 100,000 tensors, with at most 256 open
files. `list` and `summary` read headers and rank 0's pickle, no payload.
"""
import argparse
import os
import resource
import shutil
import subprocess
import sys
import time

from rows import ROOT, Row, report, state_bytes

# What, arguments of the generator, seconds that are good enough.
CASES = [
    ("100 GB, 8 ranks", ["--ranks", "8", "--tensors", "150", "--width", "8192"],
     1),
    ("1024 ranks x 100,000 tensors",
     ["--ranks", "1024", "--tensors", "100000"], 5),
]
MAX_OPEN_FILES = 256


def limit_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_OPEN_FILES, MAX_OPEN_FILES))


def seconds_of(*command):
    start = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL,
                   preexec_fn=limit_files)
    return time.monotonic() - start


def measure(a):
    """Yields rows."""
    path = os.path.join(a.scratch, "muonstore-benchmark-large")
    for label, flags, goal_s in CASES:
        shutil.rmtree(path, ignore_errors=True)
        subprocess.run(
            [sys.executable, f"{ROOT}/scripts/make_large_checkpoint.py", path,
             *flags], check=True)
        note = f"{state_bytes(path) / 1e9:.0f} GB of state"
        for command in ("list", "summary"):
            yield Row(f"ckpt-inspect {command}, {label}",
                      seconds_of(f"{a.bin}/ckpt-inspect", command, path),
                      f"{goal_s} s", goal_s, 1, note)
    shutil.rmtree(path)


def parser():
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    made.add_argument("--bin", default=f"{ROOT}/build/release/bin")
    made.add_argument("--scratch", default=f"{ROOT}/build")
    made.add_argument("--json", help="also write the figures here")
    return made


if __name__ == "__main__":
    arguments = parser().parse_args()
    report(list(measure(arguments)), arguments.json)
