#!/usr/bin/env python3
"""Newton-Schulz beside torch's, in one run on one machine.

    newton_schulz.py [BENCHMARK] [--threads N] [--rounds N] [--isa ISA]
                     [--shapes 1x1024x4096,...] [--cpu-time] [--json FILE]

BENCHMARK is the program kernel_benchmark (target of that name). Needs torch.
Rounds of all candidates alternate and the best of each counts, so that a slow
moment of the machine hits none alone. Beside each time stand

  * torch's times over it, in f32 and in bf16 (standard form),
  * its GFLOP/s, counted as far as it computes, over those of products alone
    whose operands stay in the cache ("of peak"; f32 for f32, bf16 for bf16),
  * the error against float64: on a Gaussian matrix, on one of condition 1e4, on
    one of rank 4 and on one singular value above a floor of 1e-3 ("spike").

--isa keeps our matrix products to an instruction set (AVX2, AVX512_CORE,
AVX512_CORE_BF16, AVX512_CORE_AMX). --cpu-time compares processor time of one
thread: ratios hold on a machine that others use. Writes a Markdown table.
"""
import argparse
import json
import os
import subprocess
import tempfile
import time

import numpy as np
import torch
from rows import BENCHMARKS

STEP = (3.4445, -4.7750, 2.0315)
SHAPES = ("1x768x768,1x768x3072,1x1024x1024,1x1024x4096,1x2048x2048,"
          "16x128x4096")
OURS = [("auto", "f32"), ("standard", "f32"), ("auto", "bf16"),
        ("standard", "bf16")]
HEAD = ("| shape | asked for | form | ms a matrix | torch f32 / it | torch bf16 / "
        "it | GFLOP/s | of peak | error, Gaussian | condition 1e4 | rank 4 | "
        "spike |\n" + "|---" * 12 + "|")
TORCH = {"f32": torch.float32, "bf16": torch.bfloat16}


def newton_schulz(x, dtype):
    """torch.optim.Muon's iteration, standard form, batched."""
    a, b, c = STEP
    x = x.to(dtype)
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.mT
        if x.ndim == 2:
            x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c),
                            x, beta=a)
        else:
            x = torch.baddbmm(
                x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x


def with_singular_values(shape, values):
    """A batch of one matrix, repeated."""
    batch, rows, cols = shape
    left, _ = torch.linalg.qr(torch.randn(rows, len(values)).double())
    right, _ = torch.linalg.qr(torch.randn(cols, len(values)).double())
    matrix = (left * torch.tensor(values).double()) @ right.mT
    return matrix.float().expand(batch, rows, cols).contiguous()


def inputs(shape):
    side = min(shape[1:])
    return {
        "gaussian": torch.randn(shape),
        "condition 1e4": with_singular_values(
            shape, torch.logspace(0, -4, side).tolist()),
        "rank 4": with_singular_values(shape, [1.0] * 4),
        "spike": with_singular_values(shape, [1.0] + [1e-3] * (side - 1)),
    }


class Ours:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.products = ""
        self.peak = {"f32": 0, "bf16": 0}  # GFLOP/s, the best so far.
        self.environment = dict(os.environ)
        if args.isa:
            self.environment["ONEDNN_MAX_CPU_ISA"] = args.isa
        if args.cpu_time:
            self.environment["MUONSTORE_BENCHMARK_CLOCK"] = "cpu"

    def run(self, *words):
        return subprocess.run([self.args.benchmark, *map(str, words)],
                              check=True, capture_output=True, text=True,
                              env=self.environment).stdout.splitlines()

    def measure_peak(self):
        self.products, f32, bf16 = self.run("peak", self.args.threads)
        for kind, rate in (("f32", f32), ("bf16", bf16)):
            self.peak[kind] = max(self.peak[kind], float(rate))

    def __call__(self, matrix, form, precision, repeats=3):
        """The best seconds, the form that ran, its operations, the result."""
        source, result = f"{self.folder}/in", f"{self.folder}/out"
        matrix.numpy().tofile(source)
        form, flops, *seconds = self.run(
            "newton-schulz", source, *matrix.shape, form, precision,
            self.args.threads, repeats, result)
        out = torch.from_numpy(np.fromfile(result, dtype=np.float32))
        return (min(map(float, seconds)), form, float(flops),
                out.view(matrix.shape))


def time_torch(args, matrix, dtype, repeats=3):
    clock = time.thread_time if args.cpu_time else time.perf_counter
    matrix = matrix[0] if matrix.shape[0] == 1 else matrix
    best = float("inf")
    for _ in range(repeats + 1):
        start = clock()
        newton_schulz(matrix, dtype)
        best = min(best, clock() - start)
    return best


def time_all(args, ours, matrix):
    """(whose, form asked for, precision) -> seconds."""
    best = {}

    def note(key, seconds):
        best[key] = min(best.get(key, seconds), seconds)

    for _ in range(args.rounds):
        ours.measure_peak()
        for precision, dtype in TORCH.items():
            note(("torch", "standard", precision),
                 time_torch(args, matrix, dtype))
        for form, precision in OURS:
            note(("ours", form, precision), ours(matrix, form, precision)[0])
    return best


def errors(ours, references, whose, form, precision):
    found = {}
    for name, (matrix, expected) in references.items():
        result = (ours(matrix, form, precision, 0)[3] if whose == "ours"
                  else newton_schulz(matrix, TORCH[precision]))
        found[name] = float((result.double() - expected).norm()
                            / expected.norm())
    return found


def compare(args, ours, shape):
    torch.manual_seed(1)
    matrices = inputs(shape)
    best = time_all(args, ours, matrices["gaussian"])
    # Of a batch one matrix tells as much as all.
    references = {name: (matrix[:1], newton_schulz(matrix[:1], torch.float64))
                  for name, matrix in matrices.items()}
    rows = []
    for (whose, form, precision), seconds in best.items():
        batch, n, m = shape[0], min(shape[1:]), max(shape[1:])
        flops, ran = batch * (20 * n * n * m + 10 * n ** 3), form
        if whose == "ours":
            _, ran, flops, _ = ours(matrices["gaussian"], form, precision, 0)
        rows.append({
            "shape": shape, "whose": whose, "asked": form, "form": ran,
            "precision": precision, "ms_a_matrix": 1e3 * seconds / batch,
            "torch_f32_over_it":
                best[("torch", "standard", "f32")] / seconds,
            "torch_bf16_over_it":
                best[("torch", "standard", "bf16")] / seconds,
            "gflops": flops / seconds / 1e9,
            # The gram form of the bf16 class multiplies in f32.
            "operands": "f32" if ran == "gram" else precision,
            "errors": errors(ours, references, whose, form, precision)})
    return rows


def line(row, peak):
    share = peak[row["operands"]] and row["gflops"] / peak[row["operands"]]
    numbers = " | ".join(f"{e:.1e}" for e in row["errors"].values())
    return (f"| {'x'.join(map(str, row['shape']))} | {row['whose']} "
            f"{row['precision']}, {row['asked']} | {row['form']} | "
            f"{row['ms_a_matrix']:.2f} | {row['torch_f32_over_it']:.2f} | "
            f"{row['torch_bf16_over_it']:.2f} | {row['gflops']:.0f} | "
            f"{share:.2f} | {numbers} |")


def parse_arguments(words=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("benchmark", nargs="?", default=f"{BENCHMARKS}/kernel_benchmark")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shapes", default=SHAPES)
    parser.add_argument("--isa")
    parser.add_argument("--cpu-time", action="store_true")
    parser.add_argument("--json", help="also write the figures here")
    args = parser.parse_args(words)
    if args.cpu_time:
        args.threads = 1
    return args


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as folder:
        ours = Ours(args, folder)
        rows = []
        for i, shape in enumerate(args.shapes.split(",")):
            found = compare(args, ours, tuple(map(int, shape.split("x"))))
            if i == 0:
                print(f"{ours.products}, torch {torch.__version__}, "
                      f"{args.threads} thread(s)\n\n{HEAD}")
            for row in found:
                print(line(row, ours.peak), flush=True)
            rows += found
    print(f"\nProducts alone: f32 {ours.peak['f32']:.0f}, bf16 "
          f"{ours.peak['bf16']:.0f} GFLOP/s")
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"products": ours.products, "torch": torch.__version__,
                       "threads": args.threads, "cpu_time": args.cpu_time,
                       "peak_gflops": ours.peak, "rows": rows}, file, indent=1)


if __name__ == "__main__":
    main()
