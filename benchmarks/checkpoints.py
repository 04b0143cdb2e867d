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
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PEER_PYTHON = f"{ROOT}/build/interop/venv/bin/python"


def run(*command):
    return subprocess.run([str(c) for c in command], check=True,
                          stdout=subprocess.PIPE, text=True).stdout


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
    if not os.path.exists(PEER_PYTHON):
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


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--bin", default=f"{ROOT}/build/release/benchmarks")
    parser.add_argument("--layers", type=int, default=5)
    parser.add_argument("--width", type=int, default=2048)
    parser.add_argument("--json", help="also write the figures here")
    a = parser.parse_args()
    if not shutil.which("fio"):
        sys.exit("checkpoints: needs fio (apt-get install fio)")
    os.makedirs(a.dir, exist_ok=True)
    rows = []

    def row(label, seconds, reference=None, note=""):
        rows.append({"what": label, "seconds": seconds,
                     "reference_seconds": reference, "note": note})
        if seconds is None:
            print(f"{label:52s} {'-':>8s}  needs scripts/setup_interop")
            return
        ratio = f"{reference / seconds:6.2f}" if reference else " " * 6
        print(f"{label:52s} {seconds:8.2f} {ratio}  {note}", flush=True)

    print(f"{'':52s} {'seconds':>8s}  ratio")
    save = ours(a, "save")[0]
    num_bytes = save["bytes"]
    disk = num_bytes / fio(a, "write", num_bytes, "--end_fsync=1")
    row(f"fio writes {num_bytes >> 20} MiB, fsync", disk)
    row("Save, 1 rank", save["seconds"], disk, "fio's / ours")
    two = ours(a, "save", "--ranks", "2")
    row("Save, 2 ranks", max(r["seconds"] for r in two), disk, "fio's / ours")
    row("torch.save + fsync", peer(a, "save", num_bytes))
    row("DCP save + fsync", peer(a, "dcp-save", num_bytes))
    read = num_bytes / fio(a, "read", num_bytes)
    row("fio reads them", read)
    for label, flags in (("Resume, 2 ranks, same stage", ["--ranks", "2"]),
                         ("Resume, 1 rank, stage 3", ["--stage", "3"])):
        drop_cache(f"{a.dir}/run")
        out = ours(a, "load", *flags)
        row(label, max(r["seconds"] for r in out), read, "fio's / ours")
    row("torch.load, cold", peer(a, "load", num_bytes))
    row("DCP load, cold", peer(a, "dcp-load", num_bytes))
    stall = ours(a, "stall")[0]
    row("memcpy of the state", stall["memcpy_s"])
    row("stall of an asynchronous save", stall["stall_s"], stall["memcpy_s"],
        f"memcpy's / ours; {stall['save_s']:.3f} s in Save, "
        f"{stall['steps_beside']} steps of {stall['step_s']:.2f} s beside it")
    row("DCP async_save returns after", peer(a, "dcp-stall", num_bytes))
    compute, _, _ = nvme_step(a)
    row("step, state in memory", compute)
    for label, flags in (("pipelined", []), ("partitioned", ["--partitioned"])):
        seconds, moved, share = nvme_step(a, "--nvme-dir", a.dir, *flags)
        mixed = moved / fio(a, "rw", min(moved, 4 << 30),
                            f"--rwmixread={round(100 * share)}")
        row(f"step, state on NVMe, {label}", seconds, max(compute, mixed),
            f"limit / ours; {moved >> 20} MiB, {mixed:.2f} s at fio's mixed "
            "rate")
    shutil.rmtree(a.dir)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
