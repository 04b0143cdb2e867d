#!/usr/bin/env python3
"""Copies optimizer replays into tests/data/replay without what is too much.

    trim_replay.py SOURCE/replay DESTINATION

SOURCE is what gen_replay.py writes. Of a `steps-*` file the state after step 2
is kept, of the gradients those of the first six steps (three micro-batches
twice); of a `deepspeed-*` file the averaged gradients and the state after the
last step. Layout, names and attributes stay, but that f32 runs, which have only
gradients of each rank, get their mean as `avg_grad`. Needs h5py.
"""
import os
import sys

import h5py
import numpy as np

NUM_GRADIENTS = 6
SNAPSHOT = "step_002"
# Bit-identical to, or made from, others: the tests derive them.
LEFT_OUT = {"steps-loss-scale.h5", "steps-overflow.h5", "newton_schulz.h5",
            "deepspeed-s2-ws2-fp32-none-base.h5",
            "deepspeed-s2-ws2-fp16-none-base.h5"}


def put(target, name, value, attributes):
    options = {}
    if value.nbytes >= 200:
        options = dict(compression="gzip", compression_opts=9, shuffle=True,
                       chunks=value.shape)
    dataset = target.create_dataset(name, data=value, track_times=False,
                                    **options)
    for key, attribute in attributes.items():
        dataset.attrs[key] = attribute


def datasets(source):
    found = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            found[name] = item

    source.visititems(visit)
    return found


def keep_steps(name, value):
    """The part of a dataset that stays, or None."""
    if name.startswith("grads/"):
        return value[:NUM_GRADIENTS]
    if name.startswith("expected/"):
        return value if name.split("/")[1] == SNAPSHOT else None
    return value if name.startswith(("init/", "lr_")) else None


def keep_deepspeed(name, value):
    parts = name.split("/")
    if parts[0] == "init":
        return None  # The checkpoint has it.
    if parts[1] in ("lr", "loss"):
        return value
    if parts[1] == "after":
        return value if parts[0] == "step_8" else None
    return value if parts[1] == "avg_grad" else None


def put_averages(source, target, step):
    ranks = list(source[step]["local_grad"].values())
    for name, item in datasets(ranks[0]).items():
        values = [rank[name][()].astype(np.float64) for rank in ranks]
        mean = (sum(values) / len(values)).astype(np.float32)
        put(target, f"{step}/avg_grad/{name}", mean, item.attrs)


def trim(source_path, target_path):
    is_steps = os.path.basename(source_path).startswith("steps-")
    with h5py.File(source_path) as source, \
            h5py.File(target_path, "w", libver=("v110", "v110")) as target:
        for key, value in source.attrs.items():
            target.attrs[key] = value
        for name, item in datasets(source).items():
            value = item[()]
            kept = (keep_steps(name, value) if is_steps
                    else keep_deepspeed(name, value))
            if kept is not None:
                put(target, name, np.asarray(kept), item.attrs)
        for name, group in source.items():
            if name.startswith("step_") and isinstance(group, h5py.Group):
                if "avg_grad" not in group:
                    put_averages(source, target, name)
                for key, value in group.attrs.items():
                    target[name].attrs[key] = value


def main():
    source, destination = sys.argv[1:3]
    os.makedirs(destination, exist_ok=True)
    for name in sorted(os.listdir(source)):
        if name.endswith(".h5") and name not in LEFT_OUT:
            trim(os.path.join(source, name), os.path.join(destination, name))


if __name__ == "__main__":
    main()
