#!/usr/bin/env python3
"""Newton-Schulz and the element-wise passes beside torch's, in one run.

    kernels.py BENCHMARK [--threads N] [--rounds N] [--shapes 1x1024x4096,...]

BENCHMARK is the program kernel_benchmark (target of that name). Needs torch;
nothing else should run meanwhile. Rounds of all candidates alternate and the
best of each counts, so that a slow moment of the machine hits none alone.
Beside each time stands the error against float64, on a Gaussian matrix and on
one of rank 4. Writes a Markdown table.
"""

import argparse
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

STEP = (3.4445, -4.7750, 2.0315)
SHAPES = "1x1024x4096,1x2048x2048,1x1024x1024,1x768x3072,1x768x768,16x128x4096"
OURS = [("auto", "f32"), ("standard", "f32"), ("auto", "bf16")]


def newton_schulz(x, dtype):
    """torch.optim.Muon's iteration, standard form, batched."""
    a, b, c = STEP
    x = x.to(dtype)
    transposed = x.shape[-2] > x.shape[-1]
    if transposed:
        x = x.mT
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.mT
        if x.ndim == 2:
            x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c),
                            x, beta=a)
        else:
            x = torch.baddbmm(
                x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if transposed else x


def error(found, matrix):
    expected = newton_schulz(matrix, torch.float64)
    return float((found.double() - expected).norm() / expected.norm())


class Ours:
    def __init__(self, program, threads, folder):
        self.program, self.threads, self.folder = program, threads, folder

    def __call__(self, matrix, form, precision, repeats=3):
        """The best seconds, the form that ran, the result."""
        source, result = self.folder / "in", self.folder / "out"
        matrix.numpy().tofile(source)
        lines = subprocess.run(
            [self.program, "newton-schulz", source,
             *map(str, matrix.shape), form, precision, str(self.threads),
             str(repeats), result],
            check=True, capture_output=True, text=True).stdout.split()
        out = torch.from_numpy(np.fromfile(result, dtype=np.float32))
        return min(map(float, lines[1:])), lines[0], out.view(matrix.shape)


def time_torch(matrix, dtype, repeats=3):
    matrix = matrix[0] if matrix.shape[0] == 1 else matrix
    best = float("inf")
    for _ in range(repeats + 1):
        start = time.perf_counter()
        newton_schulz(matrix, dtype)
        best = min(best, time.perf_counter() - start)
    return best


def compare_shape(ours, shape, rounds):
    torch.manual_seed(1)
    batch, rows, cols = shape
    matrix = torch.randn(shape)
    rank4 = torch.randn(batch, rows, 4) @ torch.randn(batch, 4, cols)
    best = {}
    for _ in range(rounds):
        for name, dtype in (("torch f32", torch.float32),
                            ("torch bf16", torch.bfloat16)):
            seconds = time_torch(matrix, dtype)
            best[name] = min(best.get(name, seconds), seconds)
        for form, precision in OURS:
            seconds = ours(matrix, form, precision)[0]
            name = f"ours {precision} {form}"
            best[name] = min(best.get(name, seconds), seconds)
    for name, seconds in best.items():
        kind, precision = name.split()[:2]
        dtype = torch.float32 if precision == "f32" else torch.bfloat16
        form = ""
        if kind == "torch":
            errors = [error(newton_schulz(m, dtype), m)
                      for m in (matrix, rank4)]
        else:
            form = name.split()[2]
            results = [ours(m, form, precision, 0) for m in (matrix, rank4)]
            form = results[0][1]
            errors = [error(r[2], m) for r, m in zip(results, (matrix, rank4))]
        print(f"| {batch} x {rows} x {cols} | {kind} {precision} {form} | "
              f"{1e3 * seconds / batch:.2f} | "
              f"{best['torch f32'] / seconds:.2f} | "
              f"{best['torch bf16'] / seconds:.2f} | {errors[0]:.1e} | "
              f"{errors[1]:.1e} |", flush=True)


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


def compare_passes(program, threads, repeats=5, count=1 << 25):
    print("\n| pass | ns an element | GB/s |\n|---|---|---|")
    lines = subprocess.run(
        [program, "passes", str(count), str(threads), str(repeats)],
        check=True, capture_output=True, text=True).stdout.splitlines()
    rows = [line.split(",") for line in lines]
    rows.append(("torch fused AdamW", 28, time_fused_adamw(count, repeats)))
    for name, num_bytes, seconds in rows:
        seconds = float(seconds)
        print(f"| {name} | {1e9 * seconds / count:.2f} | "
              f"{int(num_bytes) * count / seconds / 1e9:.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("benchmark")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shapes", default=SHAPES)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(f"torch {torch.__version__}, {args.threads} threads\n")
    print("| shape | what | ms a matrix | torch f32 / it | torch bf16 / it | "
          "error | error, rank 4 |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        ours = Ours(args.benchmark, args.threads, Path(folder))
        for shape in args.shapes.split(","):
            compare_shape(ours, tuple(map(int, shape.split("x"))), args.rounds)
    compare_passes(args.benchmark, args.threads)


if __name__ == "__main__":
    main()
