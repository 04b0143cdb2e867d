#!/usr/bin/env python3
"""Cuts the replay data of Newton-Schulz down to what the repository carries.

    trim_newton_schulz.py FULL.h5 OUT.h5

FULL.h5 has one group a matrix: `input`, or the seed of a splitmix64 generator,
and for each coefficient set the result in float64 arithmetic with the
tolerances that other implementations' errors give. OUT.h5 keeps one matrix of
each kind, float32 instead of float64 values and few samples of large results;
names and attributes stay, so that one reader serves both.
"""

import sys

import h5py
import numpy as np

KEEP = [
    "experts_mixed_scale_4x10x6", "gaussian_16x16", "one_1x1", "ones_20x40",
    "row_1x40", "scale1e+30_16x32", "spike_32x64", "uniform_130x65",
    "uniform_256x320", "zero_12x20",
]
NUM_SAMPLES = 64
DATASETS = {"input", "sample_index", "expected", "expected_scalefree", "sample"}


def copy_dataset(source, group, name):
    values = source[()]
    if name in ("sample", "sample_index"):
        values = values[:NUM_SAMPLES]
    if values.dtype == np.float64:
        values = values.astype(np.float32)
    options = {} if values.size < 300 else {
        "compression": "gzip", "compression_opts": 9, "shuffle": True,
        "chunks": values.shape}
    out = group.create_dataset(name, data=values, **options)
    for key, value in source.attrs.items():
        if key.startswith("tol_") or key == "bf16_not_usable":
            out.attrs[key] = value


def main():
    full_path, out_path = sys.argv[1:]
    with h5py.File(full_path) as full, \
            h5py.File(out_path, "w", libver=("v110", "v110")) as out:
        for name in KEEP:
            group = out.create_group(name)
            for key in ("input_seed", "input_shape"):
                if key in full[name].attrs:
                    group.attrs[key] = full[name].attrs[key]
            for key, item in full[name].items():
                if isinstance(item, h5py.Dataset):
                    if key in DATASETS:
                        copy_dataset(item, group, key)
                    continue
                results = group.create_group(key)
                for inner, dataset in item.items():
                    if inner in DATASETS:
                        copy_dataset(dataset, results, inner)


if __name__ == "__main__":
    main()
