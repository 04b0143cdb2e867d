#!/usr/bin/env python3
"""examples/deepspeed_resume.py goes on from what it saved, on other ranks.

    example_test.py EXAMPLE                  exit code 77 without DeepSpeed
"""
import importlib.util
import os
import re
import subprocess
import sys
import tempfile

import muonstore

# What bf16 and another number of ranks may change; losses are 2 to 4.
TOLERANCE = 0.03


def losses(example, ranks, *words):
    """{step: loss} of one run."""
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone",
         f"--nproc-per-node={ranks}", example, *words],
        capture_output=True, text=True, timeout=900,
        env={**os.environ, "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"})
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stdout}\n{done.stderr}")
    return {int(step): float(loss) for step, loss in
            re.findall(r"^step (\d+) loss (\S+)$", done.stdout, re.MULTILINE)}


def main():
    if importlib.util.find_spec("deepspeed") is None:
        print("skipped: scripts/setup_interop installs DeepSpeed")
        return 77
    example = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        whole, parts = folder + "/whole", folder + "/parts"
        want = losses(example, 2, whole, "--stage", "2", "--steps", "12")
        assert sorted(want) == list(range(1, 13)), want
        got = losses(example, 2, parts, "--stage", "2", "--steps", "4",
                     "--save-every", "4")
        assert muonstore.open(parts).summary["num_ranks"] == 2
        got |= losses(example, 4, parts, "--stage", "3", "--steps", "8",
                      "--save-every", "4")
        assert muonstore.open(parts).summary["num_ranks"] == 4
        last = losses(example, 1, parts, "--offload", "--steps", "12")
        assert min(last) == 9, last
        got |= last
        worst = max(abs(got[step] - want[step]) for step in want)
        print(f"losses {want[1]:.3f} to {want[12]:.3f}, within {worst:.2g}")
        assert sorted(got) == sorted(want) and worst <= TOLERANCE, (got, want)
        assert want[12] < want[1] - 0.5
    return 0


if __name__ == "__main__":
    sys.exit(main())
