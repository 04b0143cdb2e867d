"""Steps of the executor over gloo, in real processes: the bits of one rank.

  executor_test.py LIBRARY SIZE

Exit code 77 where torch cannot be imported: skipped.
"""

import os
import sys
import tempfile

import c10d_conformance_test as ranks

# Enough for every layout, dtype and clipping mode of random_run.h to occur.
SEEDS = range(1, 13)


def write(folder, name, tensor):
    with open(os.path.join(folder, name), "wb") as f:
        f.write(tensor.numpy().tobytes())


def read(folder, name):
    with open(os.path.join(folder, name), "rb") as f:
        return f.read()


def main():
    library, size = sys.argv[1], int(sys.argv[2])
    try:
        import torch
        import torch.distributed as dist
    except ImportError as error:
        print(f"skipped: {error}; scripts/setup_interop installs torch")
        return 77
    ranks.load(library)
    ops = torch.ops.muonstore_executor_test

    def steps(group, folder):
        for seed in SEEDS:
            write(folder, f"{dist.get_rank()}.{seed}",
                  ops.run_over_group(group, seed, 1 + seed % 3))

    def alone(_, folder):
        for seed in SEEDS:
            write(folder, f"alone.{seed}", ops.run_alone(seed))

    with tempfile.TemporaryDirectory() as folder:
        # Forked off, too: the parent keeps no threads.
        good = ranks.run("one rank", lambda group: alone(group, folder), 1,
                         ranks.LIVES)
        good &= ranks.run("over gloo", lambda group: steps(group, folder), size,
                          ranks.LIVES)
        for seed in SEEDS:
            expected = read(folder, f"alone.{seed}") if good else b""
            same = bool(expected) and all(
                read(folder, f"{rank}.{seed}") == expected
                for rank in range(size))
            print(f"{'ok' if same else 'FAILED'}: seed {seed}, "
                  f"{len(expected)} bytes", flush=True)
            good &= same
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
