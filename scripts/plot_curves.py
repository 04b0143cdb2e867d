#!/usr/bin/env python3
"""Draws the curves that tests/examples/curves_test.py --keep left.

    plot_curves.py FOLDER OUT.svg

Above, the loss of every run; below, what it deviates by from the baseline.
"""
import csv
import glob
import os
import sys

import matplotlib

matplotlib.use("svg")
# The same bytes for the same curves.
matplotlib.rcParams["svg.hashsalt"] = "muonstore"
from matplotlib import pyplot  # noqa: E402


def read(path):
    with open(path) as f:
        return [float(row["loss"]) for row in csv.DictReader(f)]


def label(path):
    """f32-stage2-ranks3.csv -> "stage 2, 3 ranks"."""
    _, stage, ranks = os.path.basename(path)[:-len(".csv")].split("-")
    return f"stage {stage[len('stage'):]}, {ranks[len('ranks'):]} ranks"


def draw(folder, dtype, loss_axes, deviation_axes):
    baseline = read(f"{folder}/{dtype}-baseline-1.csv")
    steps = range(1, len(baseline) + 1)
    for path in sorted(glob.glob(f"{folder}/{dtype}-stage*.csv")):
        losses = read(path)
        loss_axes.plot(steps, losses, linewidth=0.8)
        deviation_axes.plot(
            steps, [abs(a - b) / b for a, b in zip(losses, baseline)],
            linewidth=0.8, label=label(path))
    loss_axes.plot(steps, baseline, color="black", linestyle="--",
                   label="baseline: one process, no store")
    loss_axes.set_title(f"{dtype} weights and gradients")
    loss_axes.set_ylabel("loss (nats a byte)")
    loss_axes.legend()
    for pieces in (2, 3, 4):
        path = f"{folder}/{dtype}-baseline-{pieces}.csv"
        if os.path.exists(path):
            deviation_axes.plot(
                steps, [abs(a - b) / b for a, b in zip(read(path), baseline)],
                color="black", linestyle=":", linewidth=0.8,
                label=f"baseline in {pieces} pieces")
    deviation_axes.set_yscale("symlog", linthresh=1e-7)
    deviation_axes.set_xlabel("step")
    deviation_axes.set_ylabel("relative deviation")
    deviation_axes.legend(fontsize=6, ncol=3)


def main():
    folder, out = sys.argv[1:]
    figure, axes = pyplot.subplots(2, 2, figsize=(12, 8), sharex=True)
    draw(folder, "f32", axes[0][0], axes[1][0])
    draw(folder, "bf16", axes[0][1], axes[1][1])
    axes[1][0].axhline(1e-5, color="red", linewidth=0.8)
    figure.tight_layout()
    figure.savefig(out, metadata={"Date": None})


if __name__ == "__main__":
    main()
