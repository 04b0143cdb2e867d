#!/usr/bin/env python3
"""The element-wise passes over state beside memory and torch, in one run.

    passes.py [BENCHMARK] [--threads N] [--repeats N] [--json FILE]

BENCHMARK is the program kernel_benchmark (target of that name). Needs torch.
Rounds of ours and torch's alternate and the best of each counts. "Triad" is
a = b + s c over three arrays, 16 bytes an element: what memory gives.
"""
import argparse
import json
import subprocess
import time

import torch
from rows import BENCHMARKS



def time_fused_adamw(count, repeats):
    parameter = torch.nn.Parameter(torch.ones(count))
    parameter.grad = torch.full((count,), 0.01)
    optimizer = torch.optim.AdamW([parameter], lr=1e-3, weight_decay=0.1,
                                  fused=True)
    best = float("inf")
    for _ in range(repeats + 1):
        start = time.perf_counter()
        optimizer.step()
        best = min(best, time.perf_counter() - start)
    return best


def measure(program, threads, repeats, count, rounds=3):
    """name -> bytes an element, best seconds."""
    best = {}

    def note(name, num_bytes, seconds):
        old = best.get(name, (num_bytes, seconds))
        best[name] = (num_bytes, min(old[1], seconds))

    for _ in range(rounds):
        lines = subprocess.run(
            [program, "passes", str(count), str(threads), str(repeats)],
            check=True, capture_output=True, text=True).stdout.splitlines()
        for line in lines:
            name, num_bytes, seconds = line.split(",")
            note(name, int(num_bytes), float(seconds))
        note("torch fused AdamW", 28, time_fused_adamw(count, repeats))
    return best


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("benchmark", nargs="?", default=f"{BENCHMARKS}/kernel_benchmark")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--elements", type=int, default=1 << 25)
    parser.add_argument("--json", help="also write the figures here")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    best = measure(args.benchmark, args.threads, args.repeats, args.elements)
    rates = {name: num_bytes * args.elements / seconds / 1e9
             for name, (num_bytes, seconds) in best.items()}
    print("| pass | bytes an element | GB/s | of triad |\n|---|---|---|---|")
    for name, rate in rates.items():
        print(f"| {name} | {best[name][0]} | {rate:.1f} | "
              f"{rate / rates['triad']:.2f} |")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({name: {"bytes_an_element": best[name][0],
                              "gb_per_s": rate} for name, rate in
                       rates.items()}, file, indent=1)


if __name__ == "__main__":
    main()
