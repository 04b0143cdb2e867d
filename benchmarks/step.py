#!/usr/bin/env python3
"""The optimizer step beside the peers', in one run on one machine.

    benchmarks/step.py [--bin build/release/benchmarks] [--steps 5]
                       [--layers 4] [--width 768] [--vocabulary 8192]
                       [--json FILE]

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

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PEER_PYTHON = f"{ROOT}/build/interop/venv/bin/python"


def shape_flags(a):
    return ["--steps", str(a.steps), "--layers", str(a.layers), "--width",
            str(a.width), "--vocabulary", str(a.vocabulary)]


def median(times):
    return statistics.median(times[1:] if len(times) > 1 else times)


def ours(a, ranks, *flags):
    """The slowest rank counts: a step is over when all are."""
    threads = max(1, (os.cpu_count() or 1) // ranks)
    out = subprocess.run(
        [f"{a.bin}/step_benchmark", "--ranks", str(ranks), "--threads",
         str(threads), *shape_flags(a), *flags],
        check=True, stdout=subprocess.PIPE, text=True).stdout
    by_rank = [json.loads(line)["steps"] for line in out.splitlines()]
    return median([max(step["total_s"] for step in steps)
                   for steps in zip(*by_rank)])


def peer(a, name, ranks):
    if not os.path.exists(PEER_PYTHON):
        return None
    threads = max(1, (os.cpu_count() or 1) // ranks)
    environment = dict(os.environ, TORCH_EXTENSIONS_DIR=(
        f"{ROOT}/build/interop/extensions"), OMP_NUM_THREADS=str(threads))
    run = subprocess.run(
        [PEER_PYTHON, f"{ROOT}/benchmarks/step_peers.py", name, "--ranks",
         str(ranks), "--threads", str(threads), *shape_flags(a)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment)
    for line in run.stdout.splitlines():
        if line.startswith("step_seconds "):
            return median(json.loads(line.split(" ", 1)[1]))
    sys.stderr.write(run.stderr[-2000:])
    raise SystemExit(f"step: the {name} peer failed")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bin", default=f"{ROOT}/build/release/benchmarks")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--json", help="also write the figures here")
    a = parser.parse_args()

    rows = [("torch.optim.Muon + fused AdamW, 1 process",
             peer(a, "torch", 1), None)]
    for ranks in (1, 2):
        base = peer(a, "deepspeed", ranks)
        rows.append((f"DeepSpeed ZeRO-2 CPU offload, {ranks} rank(s)", base,
                     None))
        rows.append((f"muonstore f32, {ranks} rank(s)", ours(a, ranks), base))
        rows.append((f"muonstore bf16 class, {ranks} rank(s)",
                     ours(a, ranks, "--bf16"), base))
    for label, flags in (
            ("neither pinned nor overlapped", ["--no-pin", "--no-overlap"]),
            ("pinned only", ["--no-overlap"]),
            ("overlapped only", ["--no-pin"]), ("both", [])):
        rows.append((f"muonstore f32, 2 ranks, ZeRO-3, {label}",
                     ours(a, 2, "--stage", "3", *flags), None))

    print(f"{'step':58s} {'seconds':>8s}  DeepSpeed's / ours")
    for label, seconds, base in rows:
        if seconds is None:
            print(f"{label:58s} {'-':>8s}  (needs scripts/setup_interop)")
        else:
            ratio = f"{base / seconds:.2f}" if base else ""
            print(f"{label:58s} {seconds:8.3f}  {ratio}")
    if a.json:
        with open(a.json, "w") as f:
            json.dump([{"step": label, "seconds": seconds,
                        "deepspeed_seconds": base}
                       for label, seconds, base in rows], f, indent=1)


if __name__ == "__main__":
    main()
