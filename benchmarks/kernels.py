#!/usr/bin/env python3
"""What benchmarks/compare shows of Newton-Schulz and the passes over state.

    kernels.py [BENCHMARK] [--threads N] [--rounds N] [--json FILE]

Runs newton_schulz.py's and passes.py's measurements and compares them with the
goals. Needs torch.
"""
import argparse
import tempfile

import newton_schulz
import passes
import torch
from rows import BENCHMARKS, Row, report

WIDE, SQUARE, HEADS = "1x1024x4096", "1x2048x2048", "16x128x4096"
# shape, precision, torch's precision, the least ratio.
GOALS = [(WIDE, "f32", "f32", 2.5), (WIDE, "f32", "bf16", 1.0),
         (SQUARE, "f32", "f32", 1.3), (WIDE, "bf16", "bf16", 2.0),
         (SQUARE, "bf16", "bf16", 1.3), (HEADS, "bf16", "bf16", 3.0)]


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("benchmark", nargs="?",
                        default=f"{BENCHMARKS}/kernel_benchmark")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="also write the figures here")
    return parser.parse_args()


def newton_schulz_rows(args):
    measured = {}
    options = newton_schulz.parse_arguments(
        [args.benchmark, "--threads", str(args.threads), "--rounds",
         str(args.rounds)])
    with tempfile.TemporaryDirectory() as folder:
        ours = newton_schulz.Ours(options, folder)
        for shape in (WIDE, SQUARE, HEADS):
            for row in newton_schulz.compare(
                    options, ours, tuple(map(int, shape.split("x")))):
                key = (shape, row["whose"], row["asked"], row["precision"])
                measured[key] = row
    for shape, precision, peer_precision, goal in GOALS:
        ours = measured[shape, "ours", "auto", precision]
        peer = measured[shape, "torch", "standard", peer_precision]
        errors = ", ".join(f"{mine:.0e} ({theirs:.0e})" for mine, theirs in
                           zip(ours["errors"].values(),
                               peer["errors"].values()))
        yield Row(f"Newton-Schulz {precision}, {shape}",
                  ours["ms_a_matrix"] / 1e3, f"torch {peer_precision} standard",
                  peer["ms_a_matrix"] / 1e3, goal,
                  f"errors (torch's) on {', '.join(ours['errors'])}: {errors}")


def pass_rows(args, count=1 << 25):
    best = passes.measure(args.benchmark, args.threads, 5, count, args.rounds)
    num_bytes, seconds = best["adam"]
    triad_bytes, triad_seconds = best["triad"]
    yield Row("Adam pass", seconds, "torch fused AdamW",
              best["torch fused AdamW"][1], 1.0)
    yield Row("Adam pass", seconds, "triad of as many bytes",
              triad_seconds * num_bytes / triad_bytes, 0.9)


def main():
    args = arguments()
    torch.set_num_threads(args.threads)
    report([*newton_schulz_rows(args), *pass_rows(args)], args.json)


if __name__ == "__main__":
    main()
