#!/usr/bin/env python3
"""examples/deepspeed_resume.py goes on from what it saved, on other ranks.

    example_test.py EXAMPLE                  exit code 77 without DeepSpeed
"""
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile

import muonstore

# What bf16 and another number of ranks may change; losses are 2 to 4.
TOLERANCE = 0.03


def losses(launch, *words):
    """{step: loss} of one run."""
    done = subprocess.run(
        [sys.executable, *launch, *words], capture_output=True, text=True,
        timeout=900,
        env={"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(),
             "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", **os.environ,
             "DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1"})
    if done.returncode:
        sys.exit(f"{' '.join(words)}: {done.stdout}\n{done.stderr}")
    return {int(step): float(loss) for step, loss in
            re.findall(r"^step (\d+) loss (\S+)$", done.stdout, re.MULTILINE)}


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


def torchrun(ranks, example):
    return ["-m", "torch.distributed.run", "--standalone",
            f"--nproc-per-node={ranks}", example]


def copy_tag(root, tag, to):
    """A root as it was after this save."""
    shutil.copytree(f"{root}/{tag}", f"{to}/{tag}")
    with open(f"{to}/latest", "w") as f:
        f.write(tag)


def main():
    if importlib.util.find_spec("deepspeed") is None:
        print("skipped: scripts/setup_interop installs DeepSpeed")
        return 77
    example = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        whole, parts = folder + "/whole", folder + "/parts"
        want = losses(torchrun(2, example), whole, "--stage", "2", "--steps",
                      "12", "--save-every", "4")
        assert sorted(want) == list(range(1, 13)), want
        copy_tag(whole, "global_step4", parts)
        assert muonstore.open(parts).summary["num_ranks"] == 2
        got = losses(torchrun(4, example), parts, "--stage", "3", "--steps",
                     "8", "--save-every", "4")
        assert muonstore.open(parts).summary["num_ranks"] == 4
        # Without the launcher, which takes as long as a rank to start.
        got |= losses([example], parts, "--offload", "--steps", "12")
        worst = max(abs(got[step] - want[step]) for step in got)
        print(f"losses {want[1]:.3f} to {want[12]:.3f}, within {worst:.2g}")
        assert sorted(got) == list(range(5, 13)) and worst <= TOLERANCE, (
            got, want)
        assert want[12] < want[1] - 0.5
    return 0


if __name__ == "__main__":
    sys.exit(main())
