#!/usr/bin/env python3
"""Every checkpoint to every form and back, without a differing bit.

    matrix_test.py CKPT_CONVERT CKPT_INSPECT FOLDER... [--jobs N]

FOLDERs hold the cases as tests/data/deepspeed does. Each tag of each case goes
to native and to DeepSpeed stages 1, 2, 3 x 1, 2, 3, 4, 8, 11 ranks x offload
none, cpu x, at stage 3, both orders; each result is compared with its source,
taken back to the source's own cut, and compared again. What cannot be is
counted under its name; anything else that is not equal is a failure.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

# Thousands of small files are made durable: in memory where there is room.
SCRATCH = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
LACKING = "elements missing"
SAME = ("equal", "equal up to dtype", "derived")
RANKS = [1, 2, 3, 4, 8, 11]
# Words of a refusal, and its name in the counts.
REFUSALS = [
    (r"BF16_Optimizer", "refused: not a form of BF16_Optimizer"),
    (r"in units of a loss scale|true units", "refused: unknown loss scale"),
    (r"no one scale is right", "refused: mixed loss scales"),
    (r"of several dtypes", "refused: dtypes of one buffer"),
]


def run(command):
    return subprocess.run(command, capture_output=True, text=True)


def targets():
    yield "native", ["--to", "native"]
    for stage in (1, 2, 3):
        for ranks in RANKS:
            for offload in ("none", "cpu"):
                for order in (["no", "yes"] if stage == 3 else [None]):
                    options = ["--to", "deepspeed", "--stage", str(stage),
                               "--world-size", str(ranks), "--offload", offload]
                    name = f"stage {stage} ranks {ranks} offload {offload}"
                    if order:
                        options += ["--zero-init", order]
                        name += f" zero-init {order}"
                    yield name, options


class Case:
    def __init__(self, tools, path, tag):
        self.convert_tool, self.inspect_tool = tools
        self.path, self.tag = path, tag
        self.name = f"{path.parent.name}:{tag}"
        summary = json.loads(run([self.inspect_tool, "summary", str(path),
                                  "--tag", tag, "--json"]).stdout)
        self.precision = summary["precision"]
        self.offload = summary["offload"]

    def convert(self, source, root, options, tag=None):
        command = [self.convert_tool, str(source), str(root), "--verify",
                   "--jobs", "1", "--allow-loss", "missing", *options]
        if tag:
            command += ["--tag", tag]
        result = run(command)
        if result.returncode == 0:
            return None
        for words, name in REFUSALS:
            if result.returncode in (2, 4) and re.search(words, result.stderr):
                return name
        return f"FAILED: {result.stderr.strip()}"

    # "" where the states are the same, in whichever dtype; LACKING where they
    # are but for elements that the source has lost.
    def difference(self, root):
        result = run([self.inspect_tool, "diff", str(self.path), str(root),
                      "--tag-a", self.tag, "--json", "--allow-loss"])
        if result.returncode == 0:
            return ""
        if result.returncode != 1:
            return result.stderr
        report = json.loads(result.stdout)
        found = {verdict for verdict, count in report["counts"].items()
                 if count and verdict not in SAME}
        tensors = [f"{t['parameter']}/{t['state']} {t['verdict']}"
                   for t in report["tensors"][:3]]
        values = [v["what"] for v in report["values"] if v["is_difference"]]
        if found == {"elements missing"} and not values:
            return LACKING
        return f"{tensors} {values[:3]}"

    def scale(self):
        return ["--momentum-scale", "auto"] if self.precision == "fp16" else []

    def run(self, name, options):
        with tempfile.TemporaryDirectory(dir=SCRATCH) as folder:
            there, back = f"{folder}/a", f"{folder}/b"
            to_native = options[1] == "native"
            scale = [] if to_native else self.scale()
            failure = self.convert(self.path, there, options + scale, self.tag)
            if failure:
                return failure
            difference = self.difference(there)
            changed = "unit" in difference
            if difference not in ("", LACKING) and not changed:
                return f"FAILED: there: {difference}"
            like = ["--to", "deepspeed", "--like",
                    str(self.path / self.tag)]
            if self.offload == "nvme":
                like += ["--offload", "cpu"]  # Is read and never written.
            if changed:
                like += ["--momentum-scale", self.known_scale()]
            failure = self.convert(there, back, like)
            if failure:
                return failure + ", on the way back"
            difference = self.difference(back)
            if difference == LACKING:
                return "equal but for elements that the source lacks"
            if difference:
                return f"FAILED: back: {difference}"
            return "equal, through another unit" if changed else "equal"

    # What the loss scaler's counters prove, or what it goes on with.
    def known_scale(self):
        other = "none" if self.offload == "cpu" else "cpu"
        result = run([self.convert_tool, str(self.path), "/nowhere/x",
                      "--tag", self.tag, "--offload", other, "--dry-run",
                      "--momentum-scale", "auto", "--json"])
        found = re.search(r"loss scale ([0-9.e+]+)", result.stdout)
        return found.group(1) if found else "1"


def find_cases(tools, folders):
    seen = {}
    for folder in folders:
        for path in sorted(pathlib.Path(folder).glob("*/ckpt")):
            for tag in sorted(p for p in path.iterdir() if p.is_dir()):
                seen.setdefault((path.parent.name, tag.name), path)
    return [Case(tools, path, tag) for (_, tag), path in seen.items()]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("convert")
    parser.add_argument("inspect")
    parser.add_argument("folders", nargs="+")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="cases with this in the name")
    args = parser.parse_args()
    cases = [case for case in find_cases((args.convert, args.inspect),
                                         args.folders)
             if args.only in case.name]
    if not cases or not shutil.which(args.convert):
        sys.exit("no cases, or no ckpt-convert")
    counts = collections.Counter()
    failures = []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        work = {pool.submit(case.run, name, options): (case, name)
                for case in cases for name, options in targets()}
        for done in concurrent.futures.as_completed(work):
            case, name = work[done]
            outcome = done.result()
            if outcome.startswith("FAILED"):
                failures.append(f"{case.name} to {name}: {outcome}")
                outcome = "FAILED"
            counts[outcome] += 1
    for outcome, count in sorted(counts.items()):
        print(f"{count:6}  {outcome}")
    print(f"{sum(counts.values()):6}  conversions of {len(cases)} tags, "
          "there and back")
    for failure in failures[:20]:
        print(failure)
    if failures or not counts["equal"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
