#!/usr/bin/env python3
"""How fast checkpoints are converted, beside what else moves the same bytes.

    benchmarks/convert.py [--bin build/release/bin] [--scratch DIR] [--gib 2]
                          [--rounds 3] [--memory-limit 256MiB]

Makes a ZeRO-3 checkpoint with real payloads (scripts/make_large_checkpoint.py)
and times, in turn, each round from a cold cache where that is allowed (root):

  dd        writing as many bytes, with fsync: the disk's own rate
  cp        copying the checkpoint, with sync
  native    ckpt-convert to the native format
  zero-2    ckpt-convert to ZeRO-2 on other ranks
  to_fp32   zero_to_fp32.py of DeepSpeed (weights only), where
            scripts/setup_interop installed it

Prints the median wall time, the rate over the source's bytes and the largest
resident size of each.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
MIB = 1 << 20
TO_FP32 = """
import sys, torch
from deepspeed.utils.zero_to_fp32 import (
    get_fp32_state_dict_from_zero_checkpoint as get)
torch.save(get(sys.argv[1]), sys.argv[2])
"""


def make_source(path, gib):
    # 12 * width**2 parameters a layer; 4 + 2 bytes of state each, and the
    # embedding and head, under Adam, 16 * width**2 with 12 bytes.
    width = 1024
    layers = max(1, round((gib * 1024 * MIB - 192 * width**2) /
                          (72 * width**2)))
    subprocess.run([sys.executable, f"{ROOT}/scripts/make_large_checkpoint.py",
                    path, "--fill", "--ranks", "4", "--width", str(width),
                    "--tensors", str(3 + 6 * layers)], check=True)
    return sum(os.path.getsize(os.path.join(folder, name))
               for folder, _, names in os.walk(path) for name in names
               if "optim_states" in name)


def drop_caches():
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("3")
        return True
    except OSError:
        return False


def timed(command, env=None):
    """Wall seconds and the largest resident size in MiB."""
    start = time.monotonic()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL,
                             stderr=subprocess.PIPE, env=env)
    error = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"{' '.join(command)} failed: {error.decode()}")
    return time.monotonic() - start, usage.ru_maxrss / 1024


def contenders(args, source, out, size):
    convert = [f"{args.bin}/ckpt-convert", source, out,
               "--memory-limit", args.memory_limit]
    rows = {
        "dd": ["dd", "if=/dev/zero", f"of={out}", "bs=4M", "conv=fsync",
               f"count={size // (4 * MIB)}"],
        "cp": ["sh", "-c", f"cp -r '{source}' '{out}' && sync -f '{out}'"],
        "native": [*convert, "--to", "native"],
        "zero-2": [*convert, "--to", "deepspeed", "--stage", "2",
                   "--world-size", "3"],
    }
    python = f"{ROOT}/build/interop/venv/bin/python"
    if os.path.exists(python):
        # Its own main needs huggingface_hub for the same work.
        rows["to_fp32"] = [python, "-c", TO_FP32, source, out]
    return rows


def remove(path):
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.remove(path)


def measure(args, source, size):
    out = os.path.join(args.scratch, "muonstore-benchmark-out")
    rows = contenders(args, source, out, size)
    seconds = {name: [] for name in rows}
    resident = dict.fromkeys(rows, 0)
    cold = True
    env = {**os.environ, "DS_ACCELERATOR": "cpu"}
    for _ in range(args.rounds):
        for name, command in rows.items():
            remove(out)
            cold = drop_caches() and cold
            wall, peak = timed(command, env)
            seconds[name].append(wall)
            resident[name] = max(resident[name], peak)
    remove(out)
    print(f"{size / MIB:.0f} MiB of state, {'cold' if cold else 'warm'} cache, "
          f"median of {args.rounds}, memory limit {args.memory_limit}")
    print(f"{'':10}{'seconds':>9}{'MiB/s':>9}{'peak MiB':>10}")
    for name, walls in seconds.items():
        wall = statistics.median(walls)
        print(f"{name:10}{wall:9.2f}{size / MIB / wall:9.0f}"
              f"{resident[name]:10.0f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bin", default=f"{ROOT}/build/release/bin")
    parser.add_argument("--scratch", default=f"{ROOT}/build")
    parser.add_argument("--gib", type=float, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--memory-limit", default="256MiB")
    args = parser.parse_args()
    source = os.path.join(args.scratch, "muonstore-benchmark-source")
    remove(source)
    try:
        measure(args, source, make_source(source, args.gib))
    finally:
        remove(source)


if __name__ == "__main__":
    main()
