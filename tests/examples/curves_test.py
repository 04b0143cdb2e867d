#!/usr/bin/env python3
"""Loss curves of train_gpt under ZeRO against the training without a store.

    curves_test.py TRAIN_GPT [--steps N] [--stages 1,2,3] [--ranks 1,2,3,4]
                   [--keep FOLDER]

f32: every step's loss is within 1e-5 of the baseline's, relatively. bf16: within
twice the largest deviation of the baseline itself when its gradients are made in
2, 3 and 4 pieces. Stages give the same bits at the same number of ranks.
"""
import argparse
import csv
import os
import subprocess
import sys
import tempfile
import time

F32_TOLERANCE = 1e-5


def parse_arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("train_gpt")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--stages", default="1,2,3")
    parser.add_argument("--ranks", default="1,2,3,4")
    parser.add_argument("--keep", metavar="FOLDER",
                        help="where the CSV files stay")
    return parser.parse_args()


class Runs:
    def __init__(self, arguments, folder):
        self.arguments, self.folder = arguments, folder

    def losses(self, name, *flags):
        path = f"{self.folder}/{name}.csv"
        subprocess.run([self.arguments.train_gpt, "--csv", path, "--steps",
                        str(self.arguments.steps), *flags],
                       check=True, stdout=subprocess.DEVNULL)
        with open(path) as f:
            losses = [float(row["loss"]) for row in csv.DictReader(f)]
        if len(losses) != self.arguments.steps:
            sys.exit(f"{path} has {len(losses)} steps")
        return losses

    def baseline(self, dtype, pieces):
        return self.losses(f"{dtype}-baseline-{pieces}", "--grad-dtype", dtype,
                           "--baseline", "--baseline-split", str(pieces))

    def stored(self, dtype, stage, ranks):
        flags = ["--grad-dtype", dtype, "--stage", stage, "--ranks", ranks]
        if dtype == "f32":
            # The baseline's form: in f32 the other one's rounding shows.
            flags += ["--newton-schulz", "standard"]
        return self.losses(f"{dtype}-stage{stage}-ranks{ranks}", *flags)


def deviation(losses, baseline):
    return max(abs(a - b) / b for a, b in zip(losses, baseline))


def check(runs, dtype, limit, baseline):
    """Number of curves that are wrong."""
    wrong = 0
    arguments = runs.arguments
    for ranks in arguments.ranks.split(","):
        first = None
        for stage in arguments.stages.split(","):
            start = time.monotonic()
            losses = runs.stored(dtype, stage, ranks)
            first = first or losses
            found = deviation(losses, baseline)
            faults = [] if found <= limit else [f"not within {limit:.1e}"]
            if losses != first:
                faults.append("stages differ")
            wrong += bool(faults)
            print(f"{'WRONG' if faults else 'ok   '} {dtype} stage {stage}, "
                  f"{ranks} ranks: deviation {found:.1e} {' '.join(faults)} "
                  f"({time.monotonic() - start:.0f} s)", flush=True)
    return wrong


def run(runs):
    baseline = runs.baseline("f32", 1)
    if not baseline[-1] < 0.8 * baseline[0]:
        sys.exit("the baseline does not learn")
    wrong = check(runs, "f32", F32_TOLERANCE, baseline)
    baseline = runs.baseline("bf16", 1)
    spread = max(deviation(runs.baseline("bf16", pieces), baseline)
                 for pieces in (2, 3, 4))
    print(f"bf16 baselines deviate by up to {spread:.1e}", flush=True)
    return wrong + check(runs, "bf16", 2 * spread, baseline)


def main():
    arguments = parse_arguments()
    with tempfile.TemporaryDirectory() as folder:
        if arguments.keep:
            os.makedirs(arguments.keep, exist_ok=True)
        wrong = run(Runs(arguments, arguments.keep or folder))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
