#!/usr/bin/env python3
"""How fast checkpoints are converted, beside what else moves the same bytes.

    benchmarks/convert.py [--bin build/release/bin] [--scratch DIR] [--gib 2]
                          [--rounds 3] [--memory-limit 256MiB] [--json FILE]

Makes a ZeRO-3 checkpoint with real payloads (scripts/make_large_checkpoint.py)
and times, in turn, each round from a cold cache where that is allowed (root):

  fio       reading and writing as many bytes side by side, with fsync: the
            disk's own rate for what a conversion moves, where fio is installed
  dd        writing as many bytes, with fsync
  cp        copying the checkpoint, with sync
  native    ckpt-convert to the native format
  zero-2    ckpt-convert to ZeRO-2 on other ranks
  weights   ckpt-convert to safetensors, masters alone, as the script does
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

from rows import PEER_PYTHON, ROOT, Row, has_peers, report, state_bytes

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
    return state_bytes(path)


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
    rows = {}
    if shutil.which("fio"):
        rows["fio"] = [
            "fio", "--name=x", f"--filename={out}", "--rw=rw",
            "--rwmixread=50", "--direct=1", "--bs=4M", "--ioengine=io_uring",
            "--iodepth=16", f"--size={2 * size}", "--end_fsync=1"]
    rows |= {
        "dd": ["dd", "if=/dev/zero", f"of={out}", "bs=4M", "conv=fsync",
               f"count={size // (4 * MIB)}"],
        "cp": ["sh", "-c", f"cp -r '{source}' '{out}' && sync -f '{out}'"],
        "native": [*convert, "--to", "native"],
        "zero-2": [*convert, "--to", "deepspeed", "--stage", "2",
                   "--world-size", "3"],
        "weights": [*convert, "--to", "safetensors", "--state", "master"],
    }
    if has_peers():
        # Its own main needs huggingface_hub for the same work.
        rows["to_fp32"] = [PEER_PYTHON, "-c", TO_FP32, source, out]
    return rows


def remove(path):
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.remove(path)


def time_all(args, source, size):
    """Median seconds, largest resident MiB, whether all caches were cold."""
    out = os.path.join(args.scratch, "muonstore-benchmark-out")
    commands = contenders(args, source, out, size)
    seconds = {name: [] for name in commands}
    resident = dict.fromkeys(commands, 0)
    cold = True
    env = {**os.environ, "DS_ACCELERATOR": "cpu"}
    for _ in range(args.rounds):
        for name, command in commands.items():
            remove(out)
            if name == "fio":  # Lays out what it then reads.
                subprocess.run([*command, "--create_only=1"], check=True,
                               stdout=subprocess.DEVNULL)
            cold = drop_caches() and cold
            wall, peak = timed(command, env)
            seconds[name].append(wall)
            resident[name] = max(resident[name], peak)
    remove(out)
    return ({name: statistics.median(walls) for name, walls in seconds.items()},
            resident, cold)


def rows_of(args, source, size):
    seconds, resident, cold = time_all(args, source, size)
    labels = {"fio": f"fio reads and writes {size >> 20} MiB each, fsync",
              "dd": "dd writes them, fsync", "cp": "cp, sync",
              "native": "ckpt-convert to native",
              "zero-2": "ckpt-convert to ZeRO-2 on 3 ranks",
              "weights": "ckpt-convert to safetensors (f32 weights)",
              "to_fp32": "zero_to_fp32.py (f32 weights)"}
    references = {"native": ("fio", 0.8), "zero-2": ("fio", 0.8),
                  "weights": ("to_fp32", 5)}
    for name, wall in seconds.items():
        note = f"peak {resident[name]:.0f} MiB" + ("" if cold else ", warm")
        if name not in references:
            yield Row(labels[name], wall, note=note)
            continue
        reference, goal = references[name]
        yield Row(labels[name], wall, labels[reference], seconds.get(reference),
                  goal, f"{note}, limit {args.memory_limit}")


def measure(args):
    """Yields rows."""
    source = os.path.join(args.scratch, "muonstore-benchmark-source")
    remove(source)
    try:
        yield from rows_of(args, source, make_source(source, args.gib))
    finally:
        remove(source)


def parser():
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    made.add_argument("--bin", default=f"{ROOT}/build/release/bin")
    made.add_argument("--scratch", default=f"{ROOT}/build")
    made.add_argument("--gib", type=float, default=2)
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--memory-limit", default="256MiB")
    made.add_argument("--json", help="also write the figures here")
    return made


if __name__ == "__main__":
    arguments = parser().parse_args()
    report(list(measure(arguments)), arguments.json)
