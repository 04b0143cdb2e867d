#!/usr/bin/env python3
"""Saves, resumes and NVMe steps beside the disk's own rates and torch.

    benchmarks/checkpoints.py --dir DIR [--bin build/release/benchmarks]
                              [--layers 5] [--width 2048] [--json FILE]

DIR must be on the disk to measure; it gets a few times the state (2 GiB by
default) and is emptied afterwards. fio (of that name in any distribution)
measures what the disk gives; torch needs scripts/setup_interop, and without it
its rows are missing, by name.

  save, blocking     fio's write rate with fsync; torch.save and DCP, with fsync
  save, async        its stall: seconds in Save, and what the following steps
                     lose until the tag is durable, beside a memcpy of the state
                     and DCP's async_save
  load, reshard      fio's read rate; torch.load and DCP from a cold cache
  step on NVMe       max(compute, bytes at fio's mixed rate)

Ratios within a run count; absolute times do not carry over.
"""
import argparse
import json
import os
import shutil
import statistics
import sys

from rows import BENCHMARKS, NEEDS_PEERS, PEER_PYTHON, ROOT, Row
from rows import has_peers, report, run


def drop_cache(folder):
    for base, _, files in os.walk(folder):
        for name in files:
            descriptor = os.open(os.path.join(base, name), os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def fio(a, mode, num_bytes, *flags):
    """Bytes a second, all directions together."""
    path = f"{a.dir}/fio"
    out = json.loads(run(
        "fio", "--name=x", f"--filename={path}", f"--rw={mode}", "--direct=1",
        "--bs=4M", "--ioengine=io_uring", "--iodepth=16",
        f"--size={num_bytes}", "--output-format=json", *flags))
    job = out["jobs"][0]
    seconds = job["job_runtime"] / 1000
    return (job["read"]["io_bytes"] + job["write"]["io_bytes"]) / seconds


def peer(a, what, num_bytes):
    if not has_peers():
        return None
    folder = f"{a.dir}/{'dcp' if what.startswith('dcp') else 'torch'}"
    if what in ("load", "dcp-load"):
        drop_cache(folder)
    out = run(PEER_PYTHON, f"{ROOT}/benchmarks/checkpoint_peers.py", what,
              folder, "--bytes", num_bytes)
    return float(out.split("seconds ")[1].split()[0])


def ours(a, *flags):
    out = run(f"{a.bin}/checkpoint_benchmark", *flags[:1], f"{a.dir}/run",
              *flags[1:], "--layers", a.layers, "--width", a.width)
    return [json.loads(line) for line in out.splitlines()]


def nvme_step(a, *flags):
    """Median seconds, and bytes of a step over all ranks."""
    out = run(f"{a.bin}/step_benchmark", "--layers", a.layers, "--width",
              a.width, "--steps", "4", "--resident-gradients", *flags)
    steps = json.loads(out.splitlines()[0])["steps"][1:]
    moved = steps[0]["swap_read_bytes"] + steps[0]["swap_written_bytes"]
    share = steps[0]["swap_read_bytes"] / moved if moved else 0
    return statistics.median(s["total_s"] for s in steps), moved, share


def peer_row(a, label, what, num_bytes):
    return Row(label, peer(a, what, num_bytes),
               note="" if has_peers() else NEEDS_PEERS)


def measure_saves(a, num_bytes, save):
    label = f"fio writes {num_bytes >> 20} MiB, fsync"
    disk = Row(label, num_bytes / fio(a, "write", num_bytes, "--end_fsync=1"))
    yield disk
    yield Row("Save, 1 rank", save["seconds"], label, disk.seconds, 0.9)
    two = max(r["seconds"] for r in ours(a, "save", "--ranks", "2"))
    yield Row("Save, 2 ranks", two, label, disk.seconds, 0.9)
    for name, what in (("torch.save", "save"), ("DCP save", "dcp-save")):
        row = peer_row(a, f"{name} + fsync", what, num_bytes)
        yield row
        yield Row(f"Save, 1 rank, beside {name}", save["seconds"], row.what,
                  row.seconds, 3 if what == "save" else None)


def measure_loads(a, num_bytes):
    disk = Row("fio reads them", num_bytes / fio(a, "read", num_bytes))
    yield disk
    for label, flags in (("Resume, 2 ranks, same stage", ["--ranks", "2"]),
                         ("Resume, 1 rank, stage 3", ["--stage", "3"])):
        drop_cache(f"{a.dir}/run")
        seconds = max(r["seconds"] for r in ours(a, "load", *flags))
        yield Row(label, seconds, disk.what, disk.seconds, 0.9)
    yield peer_row(a, "torch.load, cold", "load", num_bytes)
    yield peer_row(a, "DCP load, cold", "dcp-load", num_bytes)


def measure_stall(a, num_bytes):
    stall = ours(a, "stall")[0]
    # A step beside the save that was faster than its fellows is noise.
    stalled = stall["save_s"] + max(0, stall["lost_s"])
    yield Row("memcpy of the state", stall["memcpy_s"])
    yield Row("stall of an asynchronous save", stalled,
              "memcpy of the state", stall["memcpy_s"], 5,
              f"{stall['save_s']:.3f} s in Save, {stall['steps_beside']} steps "
              f"of {stall['step_s']:.2f} s beside it")
    yield peer_row(a, "DCP async_save returns after", "dcp-stall", num_bytes)


def measure_swapping(a):
    compute, _, _ = nvme_step(a)
    yield Row("step, state in memory", compute)
    for label, flags in (("pipelined", []), ("partitioned", ["--partitioned"])):
        seconds, moved, share = nvme_step(a, "--nvme-dir", a.dir, *flags)
        mixed = moved / fio(a, "rw", min(moved, 4 << 30),
                            f"--rwmixread={round(100 * share)}")
        yield Row(f"step, state on NVMe, {label}", seconds,
                  "max(compute, fio mixed)", max(compute, mixed),
                  1 / 1.2 if not flags else None,
                  f"{moved >> 20} MiB, {mixed:.2f} s at fio's mixed rate")


def measure(a):
    """Yields rows."""
    if not shutil.which("fio"):
        sys.exit("checkpoints: needs fio (apt-get install fio)")
    os.makedirs(a.dir, exist_ok=True)
    save = ours(a, "save")[0]
    num_bytes = save["bytes"]
    yield from measure_saves(a, num_bytes, save)
    yield from measure_loads(a, num_bytes)
    yield from measure_stall(a, num_bytes)
    yield from measure_swapping(a)
    shutil.rmtree(a.dir)


def parser():
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    made.add_argument("--dir", required=True)
    made.add_argument("--bin", default=BENCHMARKS)
    made.add_argument("--layers", type=int, default=5)
    made.add_argument("--width", type=int, default=2048)
    made.add_argument("--json", help="also write the figures here")
    return made


if __name__ == "__main__":
    arguments = parser().parse_args()
    report(list(measure(arguments)), arguments.json)
