"""The suite of communicators over gloo groups, in real processes.

  c10d_conformance_test.py LIBRARY c10d|hierarchical SIZE

Exit code 77 where torch cannot be imported: skipped.
"""

import ctypes
import ctypes.util
import os
import signal
import sys
import tempfile
import time
import traceback
import uuid

LIVES, DIES, HANGS = range(3)
TIMEOUT_S = 120


def run_rank(function, rank, size, store_path):
    """Never returns: ends the forked process."""
    code = 1
    try:
        import torch.distributed as dist
        dist.init_process_group("gloo", init_method="file://" + store_path,
                                rank=rank, world_size=size)
        function(dist.group.WORLD.boxed())
        code = 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    # Broken groups need no good-bye.
    os._exit(code)


def start_ranks(function, size, store_path):
    pids = []
    for rank in range(size):
        pid = os.fork()
        if pid == 0:
            run_rank(function, rank, size, store_path)
        pids.append(pid)
    return pids


def await_ranks(pids, last_rank):
    """Exit codes by rank; the last is killed once the others have ended."""
    codes = {}
    deadline = time.monotonic() + TIMEOUT_S
    while len(codes) < len(pids):
        for rank, pid in enumerate(pids):
            if rank not in codes:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    codes[rank] = os.waitstatus_to_exitcode(status)
        late = time.monotonic() > deadline
        if late or (last_rank != LIVES and
                    set(codes) == set(range(len(pids) - 1))):
            for rank, pid in enumerate(pids):
                if rank not in codes:
                    os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)
    return [codes[rank] for rank in range(len(pids))]


def run(name, function, size, last_rank):
    with tempfile.TemporaryDirectory() as folder:
        pids = start_ranks(function, size, os.path.join(folder, "store"))
        codes = await_ranks(pids, last_rank)
    expected = [0] * size
    if last_rank != LIVES:
        expected[-1] = -signal.SIGKILL
    good = codes == expected
    print(f"{'ok' if good else 'FAILED'}: {name}, {size} ranks: {codes}",
          flush=True)
    return good


def load(library):
    """torch exports inline functions of its own oneDNN, another version, which
    the system's would take for its own."""
    import torch
    ctypes.CDLL(ctypes.util.find_library("dnnl"),
                mode=os.RTLD_NOW | os.RTLD_DEEPBIND)
    torch.ops.load_library(library)


def main():
    library, kind, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
    try:
        import torch
        import torch.distributed
    except ImportError as error:
        print(f"skipped: {error}; scripts/setup_interop installs torch")
        return 77
    load(library)
    ops = torch.ops.muonstore_conformance

    def rendezvous():
        return uuid.uuid4().hex if kind == "hierarchical" else ""

    good = True
    for entry in ops.list_checks():
        name, min_ranks, last_rank = entry.split("/")
        if size < int(min_ranks):
            continue
        place = rendezvous()
        good &= run(name, lambda group: ops.run_check(group, name, place),
                    size, int(last_rank))
    if kind == "hierarchical":
        place = rendezvous()
        good &= run(
            "BytesStayOnTheNode",
            lambda group: ops.check_bytes_stay_on_the_node(group, place), size,
            LIVES)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
