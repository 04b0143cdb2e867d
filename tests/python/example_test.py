#!/usr/bin/env python3
"""examples/deepspeed_resume.py goes on from what it saved, on other ranks.

    example_test.py EXAMPLE                  exit code 77 without DeepSpeed
"""
import importlib.util
import re
import shutil
import sys
import tempfile

import launch
import muonstore

# What bf16 and another number of ranks may change; losses are 2 to 4.
TOLERANCE = 0.03


def losses(printed):
    """{step: loss} of one run."""
    return {int(step): float(loss) for step, loss in
            re.findall(r"^step (\d+) loss (\S+)$", printed, re.MULTILINE)}


def copy_tag(root, tag, to):
    """A root as it was after this save."""
    shutil.copytree(f"{root}/{tag}", f"{to}/{tag}")
    with open(f"{to}/latest", "w") as f:
        f.write(tag)


def main():
    if importlib.util.find_spec("deepspeed") is None:
        print("skipped: scripts/setup_interop installs DeepSpeed")
        return 77
    example, cpu = sys.argv[1], {"DS_ACCELERATOR": "cpu"}
    with tempfile.TemporaryDirectory() as folder:
        whole, parts = folder + "/whole", folder + "/parts"
        want = losses(launch.torchrun(
            2, example, whole, "--stage", "2", "--steps", "12", "--save-every",
            "4", **cpu))
        assert sorted(want) == list(range(1, 13)), want
        copy_tag(whole, "global_step4", parts)
        assert muonstore.open(parts).summary["num_ranks"] == 2
        got = losses(launch.torchrun(
            4, example, parts, "--stage", "3", "--steps", "8", "--save-every",
            "4", **cpu))
        assert muonstore.open(parts).summary["num_ranks"] == 4
        got |= losses(launch.alone(example, parts, "--offload", "--steps",
                                   "12", **cpu))
        worst = max(abs(got[step] - want[step]) for step in got)
        print(f"losses {want[1]:.3f} to {want[12]:.3f}, within {worst:.2g}")
        assert sorted(got) == list(range(5, 13)) and worst <= TOLERANCE, (
            got, want)
        assert want[12] < want[1] - 0.5
    return 0


if __name__ == "__main__":
    sys.exit(main())
