#!/usr/bin/env python3
"""How a step's cost grows with the model, the ranks and the disk's queue.

    benchmarks/growth.py --scratch DIR [--bin build/release/benchmarks]
                         [--rounds 3] [--svg FILE] [--json FILE]

Muon and Adam over layers of width 768, best median of the rounds, which
alternate between the points:

  size    1 to 16 layers (7 to 113 M Muon parameters), 1 rank, all cores
  ranks   4 layers on 1 to 8 ranks, ZeRO-2 and ZeRO-3, the cores shared
  queue   8 layers, state on NVMe in DIR, 1 to 64 requests at once; compared
          with state in memory

each in f32 and with bf16 operands, but for the queue (bf16 operands, where the
disk shows). --svg draws them and needs matplotlib.
"""
import argparse
import functools
import json

import step
from rows import BENCHMARKS

SIZES, RANKS, DEPTHS = (1, 2, 4, 8, 16), (1, 2, 4, 8), (1, 2, 4, 8, 16, 32, 64)
PRECISIONS = {"f32": [], "bf16": ["--bf16"]}


def seconds(a, *flags, layers=4, ranks=1):
    model = step.parser().parse_args(
        ["--bin", a.bin, "--steps", "4", "--layers", str(layers)])
    return step.ours(model, ranks, *flags)


def points(a):
    """panel -> curve -> x -> what measures it."""
    large = functools.partial(seconds, a, "--bf16", "--resident-gradients",
                              layers=8)
    return {
        "layers": {
            name: {layers: functools.partial(seconds, a, *flags, layers=layers)
                   for layers in SIZES}
            for name, flags in PRECISIONS.items()},
        "ranks": {
            f"ZeRO-{stage}, {name}": {
                ranks: functools.partial(seconds, a, "--stage", stage, *flags,
                                         ranks=ranks) for ranks in RANKS}
            for stage in (2, 3) for name, flags in PRECISIONS.items()},
        "queue depth": {
            "on NVMe": {depth: functools.partial(
                large, "--nvme-dir", a.scratch, "--queue-depth", depth)
                for depth in DEPTHS},
            # A line: its depth means nothing.
            "in memory": {DEPTHS[0]: large}},
    }


def measure(a):
    """panel -> curve -> x -> best seconds."""
    found = {}
    for _ in range(a.rounds):
        for panel, curves in points(a).items():
            for curve, xs in curves.items():
                best = found.setdefault(panel, {}).setdefault(curve, {})
                for x, call in xs.items():
                    best[x] = min(best.get(x, float("inf")), call())
    return found


def print_tables(found):
    for panel, curves in found.items():
        xs = sorted({x for best in curves.values() for x in best})
        print(f"\n| seconds, by {panel} | " + " | ".join(map(str, xs)) + " |")
        print("|---" + "|--:" * len(xs) + "|")
        for curve, best in curves.items():
            cells = [f"{best[x]:.2f}" if x in best else "" for x in xs]
            print(f"| {curve} | " + " | ".join(cells) + " |")


def draw(found, path):
    import matplotlib
    import matplotlib.ticker
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "muonstore"
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(1, len(found), figsize=(12, 3.6))
    for panel, (name, curves) in zip(axes, found.items()):
        for curve, best in curves.items():
            if len(best) == 1:
                panel.axhline(*best.values(), linestyle=":", label=curve)
            else:
                panel.plot(list(best), list(best.values()), marker="o",
                           label=curve)
        if name != "layers":
            panel.set_xscale("log", base=2)
        panel.set_xticks(list(next(iter(curves.values()))))
        panel.xaxis.set_major_formatter(matplotlib.ticker.ScalarFormatter())
        panel.set_ylim(bottom=0)
        panel.set_xlabel(name)
        panel.legend(fontsize="small")
    axes[0].set_ylabel("seconds a step")
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--scratch", required=True,
                        help="a folder on the disk to measure")
    parser.add_argument("--bin", default=BENCHMARKS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--svg", help="also draw the curves here")
    parser.add_argument("--json", help="also write the figures here")
    return parser.parse_args()


def main():
    a = parse()
    found = measure(a)
    print_tables(found)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(found, f, indent=1)
    if a.svg:
        draw(found, a.svg)


if __name__ == "__main__":
    main()
