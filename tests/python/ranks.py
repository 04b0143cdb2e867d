"""Ranks of a job as forked processes with a gloo group.

What they return comes back pickled. The parent imports torch, with all that
FSDP2 imports as it starts (two seconds in each rank otherwise), and computes
nothing, so that what it forks off has no threads missing.
"""
import os
import pickle
import sys
import tempfile
import traceback

import torch._dynamo  # noqa: F401
import torch.distributed.fsdp  # noqa: F401

SKIPPED = 77


def _child(function, rank, size, folder, args):
    code = 1
    try:
        if size > 0:
            import torch.distributed as dist
            dist.init_process_group(
                "gloo", init_method=f"file://{folder}/store", rank=rank,
                world_size=size)
        result = function(*args)
        with open(f"{folder}/{rank}.pickle", "wb") as file:
            pickle.dump(result, file)
        code = 0
    except BaseException:  # noqa: B902: whatever it is, the parent must know.
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run(size, function, *args):
    """function(*args) on every rank; the results by rank."""
    with tempfile.TemporaryDirectory() as folder:
        pids = []
        for rank in range(max(size, 1)):
            pid = os.fork()
            if pid == 0:
                _child(function, rank, size, folder, args)
            pids.append(pid)
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                 for pid in pids]
        if any(codes):
            raise AssertionError(f"ranks ended with {codes}")
        results = []
        for rank in range(len(pids)):
            with open(f"{folder}/{rank}.pickle", "rb") as file:
                results.append(pickle.load(file))
        return results


def alone(function, *args):
    """function(*args) in a process without torch.distributed."""
    return run(0, function, *args)[0]
