#!/usr/bin/env python3
"""Converts checkpoints and lets real DeepSpeed judge; see README.md.

    interop_test.py CKPT_CONVERT WITHOUT_CARRIED FAMILY [SUBSTRING]

Exit code 77 (skipped) where DeepSpeed is not installed.
"""
import functools
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
DATA = HERE.parent / "data" / "deepspeed"
SKIPPED = 77

try:
    import deepspeed_run
except ImportError as error:
    print(f"skipped: {error}; scripts/setup_interop installs DeepSpeed")
    sys.exit(SKIPPED)
import golden
import judge
from cases import FAMILIES, parse_run


def convert(tools, case, cell, folder):
    """The root that DeepSpeed is to load."""
    tool, without_carried = tools
    source = str(DATA / case.source / "ckpt")
    native = os.path.join(folder, "native")
    if case.bare:
        call(without_carried, source, "step5", native)
        source = native
    if case.through_native:
        call(tool, source, native, "--tag", "step5", "--to", "native")
        source = native
    root = os.path.join(folder, "root")
    call(tool, source, root, "--tag", "step5", "--to", "deepspeed", "--verify",
         "--stage", str(cell["stage"]), "--world-size", str(cell["ws"]),
         "--offload", cell["offload"], *case.options)
    return root


def call(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with "
                           f"{done.returncode}: {done.stderr.strip()}")


def golden_state(case):
    """Values at the checkpoint, without those of a later tag."""
    values = golden.load(str(DATA / case.source))
    left_out = ("final_", "buffer_after8")
    if case.without_momentum:
        left_out += ("momentum_buffer/",)
    return {key: value * case.momentum_factor
            if key.startswith("momentum_buffer/") else value
            for key, value in values.items() if not key.startswith(left_out)}


class Judge:
    def __init__(self, tools, scratch):
        self.tools = tools
        self.scratch = scratch
        self.references = {}

    def folder(self, name):
        return tempfile.mkdtemp(prefix=name + "-", dir=self.scratch)

    def reference(self, case):
        """A run of DeepSpeed on the original. On fewer samples than its ranks
        can share: on one rank, as converted."""
        key = (case.source, case.samples)
        if key not in self.references:
            cell = parse_run(case.source)
            root = str(DATA / case.source / "ckpt")
            folder = self.folder("reference")
            if case.samples % cell["ws"]:
                cell["ws"] = 1
                root = convert(self.tools, case, cell, folder)
            self.references[key] = deepspeed_run.run(
                cell, root, os.path.join(folder, "run"), case.samples)
        return self.references[key]

    def problems(self, case):
        cell = parse_run(case.target)
        folder = self.folder("case")
        root = convert(self.tools, case, cell, folder)
        fingerprint = os.path.join(root, "step5.fingerprint.json")
        seen = deepspeed_run.run(cell, root, os.path.join(folder, "run"),
                                 case.samples, fingerprint)
        loaded = seen["loaded"]
        if case.without_momentum:
            loaded = {key: value for key, value in loaded.items()
                      if not key.startswith("momentum_buffer/")}
        found = judge.state_problems(golden_state(case), loaded)
        if case.wrong:
            return self.wrong_problems(found, seen)
        found += seen["notes"] + seen["fingerprint_problems"]
        if case.without_momentum:
            return found + judge.zero_momentum_problems(seen)
        training, words = judge.training_problems(
            self.reference(case), seen, case.momentum_factor == 1)
        print(f"  {words}")
        return found + training

    @staticmethod
    def wrong_problems(found, seen):
        problems = []
        if not any("fp32" in problem for problem in found):
            problems.append("the wrong order gave the right state")
        if not seen["fingerprint_problems"]:
            problems.append("the fingerprint does not tell the wrong order")
        return problems


def main():
    tools, family = sys.argv[1:3], sys.argv[3]
    wanted = sys.argv[4] if len(sys.argv) > 4 else ""
    with tempfile.TemporaryDirectory() as scratch:
        judge_ = Judge([os.path.abspath(tool) for tool in tools], scratch)
        return judge.verdict(
            (case.title, functools.partial(judge_.problems, case))
            for case in FAMILIES[family] if wanted in case.title)


if __name__ == "__main__":
    sys.exit(main())
