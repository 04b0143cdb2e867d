#!/usr/bin/env python3
"""The optimizer step beside the peers', in one run on one machine.

    benchmarks/step.py [--bin build/release/benchmarks] [--steps 5]
                       [--layers 4] [--width 768] [--vocabulary 8192]
                       [--ranks 1 2] [--no-transfers] [--json FILE]

Muon and Adam over the matrices of a few GPT layers (28 M Muon parameters by
default) and an embedding, in all cores:

  torch       torch.optim.Muon (bf16 Newton-Schulz) + fused AdamW on whole
              tensors, one process, nothing offloaded
  deepspeed   ZeRO-2 with CPU offload, 1 and 2 ranks, its default precision
  ours        muonstore at ZeRO-2, 1 and 2 ranks, f32 and bf16 class

and, for 2 ranks at ZeRO-3, where every matrix is gathered: neither page-locked
memory nor overlap, each alone, both.

The peers need scripts/setup_interop; without it their rows are missing, by
name. Each figure is the median of the steps but the first. Ratios within a run
count; absolute times do not carry over.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

from rows import BENCHMARKS, NEEDS_PEERS, PEER_PYTHON, ROOT, Row
from rows import has_peers, report, run

# DeepSpeed's step to ours, by the number of ranks.
F32_GOALS = {1: 1.6, 2: 3, 4: 6}
BF16_GOALS = {1: 2.5, 2: 4.5, 4: 9}
TRANSFERS = (("neither pinned nor overlapped", ["--no-pin", "--no-overlap"]),
             ("pinned only", ["--no-overlap"]),
             ("overlapped only", ["--no-pin"]), ("both", []))


def shape_flags(a):
    return ["--steps", str(a.steps), "--layers", str(a.layers), "--width",
            str(a.width), "--vocabulary", str(a.vocabulary)]


def median(times):
    return statistics.median(times[1:] if len(times) > 1 else times)


def ours(a, ranks, *flags):
    """The slowest rank counts: a step is over when all are."""
    threads = max(1, (os.cpu_count() or 1) // ranks)
    out = run(f"{a.bin}/step_benchmark", "--ranks", ranks, "--threads", threads,
              *shape_flags(a), *flags)
    by_rank = [json.loads(line)["steps"] for line in out.splitlines()]
    return median([max(step["total_s"] for step in steps)
                   for steps in zip(*by_rank)])


def peer(a, name, ranks):
    if not has_peers():
        return None
    threads = max(1, (os.cpu_count() or 1) // ranks)
    environment = dict(os.environ, TORCH_EXTENSIONS_DIR=(
        f"{ROOT}/build/interop/extensions"), OMP_NUM_THREADS=str(threads))
    child = subprocess.run(
        [PEER_PYTHON, f"{ROOT}/benchmarks/step_peers.py", name, "--ranks",
         str(ranks), "--threads", str(threads), *shape_flags(a)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment)
    for line in child.stdout.splitlines():
        if line.startswith("step_seconds "):
            return median(json.loads(line.split(" ", 1)[1]))
    sys.stderr.write(child.stderr[-2000:])
    raise SystemExit(f"step: the {name} peer failed")


def measure(a):
    """Yields rows."""
    yield Row("torch.optim.Muon + fused AdamW, whole, 1 process",
              peer(a, "torch", 1), note="" if has_peers() else NEEDS_PEERS)
    for ranks in a.ranks:
        base = peer(a, "deepspeed", ranks)
        name = f"DeepSpeed ZeRO-2 CPU offload, {ranks} rank(s)"
        yield Row(name, base, note="" if has_peers() else NEEDS_PEERS)
        yield Row(f"step, f32, {ranks} rank(s)", ours(a, ranks), name, base,
                  F32_GOALS.get(ranks))
        yield Row(f"step, bf16 class, {ranks} rank(s)",
                  ours(a, ranks, "--bf16"), name, base, BF16_GOALS.get(ranks))
    for label, flags in TRANSFERS if a.transfers else ():
        yield Row(f"step, f32, 2 ranks, ZeRO-3, {label}",
                  ours(a, 2, "--stage", "3", *flags))


def parser():
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    made.add_argument("--bin", default=BENCHMARKS)
    made.add_argument("--steps", type=int, default=5)
    made.add_argument("--layers", type=int, default=4)
    made.add_argument("--width", type=int, default=768)
    made.add_argument("--vocabulary", type=int, default=8192)
    made.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    made.add_argument("--no-transfers", dest="transfers", action="store_false",
                      help="leave out page-locking and overlap on and off")
    made.add_argument("--json", help="also write the figures here")
    return made


if __name__ == "__main__":
    arguments = parser().parse_args()
    report(list(measure(arguments)), arguments.json)
