"""The suite of communicators over the package's own, in real processes.

  group_conformance_test.py SIZE      exit code 77 without torch
"""
import os
import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / "c10d"),
                os.environ["MUONSTORE_TEST_MODULES"]]

try:
    import torch.distributed as dist
except ImportError as error:
    print(f"skipped: {error}; scripts/setup_interop installs torch")
    sys.exit(77)

import c10d_conformance_test as processes
import muonstore  # noqa: F401: what the module needs is loaded apart
import group_conformance
from muonstore.optimizer._group_calls import GroupCalls


def main():
    size = int(sys.argv[1])
    good = True
    for name, min_ranks, last_rank in group_conformance.list_checks():
        if size < min_ranks:
            continue

        def check(_group, name=name):
            group_conformance.run_check(
                name,
                lambda timeout_s: GroupCalls(dist.group.WORLD, timeout_s))

        good &= processes.run(name, check, size, last_rank)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
