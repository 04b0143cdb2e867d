"""Saves and loads of the same state by torch, for checkpoints.py.

    checkpoint_peers.py save|load|dcp-save|dcp-load|dcp-stall FOLDER --bytes N

Prints "seconds S".
"""
import argparse
import os
import time

import torch


def state_of(num_bytes):
    """Tensors of 64 MiB, as masters and momenta are."""
    size = 64 << 20
    return {f"state.{i}": torch.rand(size // 4)
            for i in range(max(1, num_bytes // size))}


def sync_folder(folder):
    for base, _, files in os.walk(folder):
        for name in files:
            descriptor = os.open(os.path.join(base, name), os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what")
    parser.add_argument("folder")
    parser.add_argument("--bytes", type=int, required=True)
    a = parser.parse_args()
    os.makedirs(a.folder, exist_ok=True)
    single = os.path.join(a.folder, "state.pt")
    if a.what.startswith("dcp"):
        import torch.distributed.checkpoint as dcp
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29533")
        torch.distributed.init_process_group("gloo", rank=0, world_size=1)
    state = state_of(a.bytes)
    start = time.perf_counter()
    if a.what == "save":
        torch.save(state, single)
        sync_folder(a.folder)
    elif a.what == "load":
        torch.load(single, weights_only=True)
    elif a.what == "dcp-save":
        dcp.save(state, checkpoint_id=a.folder)
        sync_folder(a.folder)
    elif a.what == "dcp-load":
        dcp.load(state, checkpoint_id=a.folder)
    elif a.what == "dcp-stall":
        future = dcp.async_save(state, checkpoint_id=a.folder)
        print("seconds", time.perf_counter() - start, flush=True)
        future.result()
        os._exit(0)
    print("seconds", time.perf_counter() - start, flush=True)
    os._exit(0)


if __name__ == "__main__":
    main()
