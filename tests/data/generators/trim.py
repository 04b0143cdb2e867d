#!/usr/bin/env python3
"""Copies fixtures into tests/data without what the tests do not need.

    trim.py MANIFEST.json SOURCE/deepspeed DESTINATION CASE...

SOURCE is what gen_deepspeed.py and gen_deepspeed2.py write. Checkpoint files
are copied byte for byte (`ckpt_resaved` only for cases given as CASE:resaved).
golden.h5 is written again, compressed, without the values of the end of the
run (kept for runs that saved their end as a second tag); one that is the same
as another case's becomes a link to that. DESTINATION gets deepspeed/CASE/ and
MANIFEST.json. Needs h5py.
"""
import hashlib
import json
import os
import shutil
import sys

import h5py

# What a row of the manifest keeps of the full description.
KEPT = ["stage", "ws", "precision", "offload", "variant", "optimizer_class",
        "aux_optimizer", "tags", "muon_order", "momentum_layout",
        "momentum_stored_unit", "replicas_differ"]


def copy_tree(source, destination):
    for folder, _, files in os.walk(source):
        target = os.path.join(destination, os.path.relpath(folder, source))
        os.makedirs(target, exist_ok=True)
        for name in files:
            shutil.copyfile(os.path.join(folder, name),
                            os.path.join(target, name))


def copy_golden(source, destination, keep_final):
    """Bit-identical values in the form that HDF5 1.10 reads, compressed."""
    values = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            values[name] = item[()]

    with h5py.File(source) as h:
        h.visititems(visit)
    with h5py.File(destination, "w", libver=("v110", "v110")) as h:
        for name, value in values.items():
            if name.startswith("buffer_after8/"):
                continue
            if name.startswith("final_") and not keep_final:
                continue
            options = {}
            if value.ndim:
                options = dict(compression="gzip", compression_opts=9,
                               shuffle=True, chunks=value.shape)
            h.create_dataset(name, data=value, track_times=False, **options)


def files_of(folder):
    rows = {}
    for parent, _, files in os.walk(folder):
        for name in files:
            path = os.path.join(parent, name)
            with open(path, "rb") as f:
                data = f.read()
            rows[os.path.relpath(path, folder)] = {
                "bytes": len(data),
                "sha256": hashlib.sha256(data).hexdigest()}
    return dict(sorted(rows.items()))


def describe(row, folder):
    kept = {k: row[k] for k in KEPT if row.get(k) is not None}
    versions = row.get("versions") or {}
    kept["deepspeed"] = versions.get("deepspeed") or row["deepspeed"]
    kept["files"] = files_of(folder)
    return kept


def copy_case(source, destination, resaved):
    shutil.rmtree(destination, ignore_errors=True)
    for name in ["ckpt"] + ["ckpt_resaved"] * resaved:
        copy_tree(os.path.join(source, name), os.path.join(destination, name))
    tags = os.listdir(os.path.join(source, "ckpt"))
    copy_golden(os.path.join(source, "golden.h5"),
                os.path.join(destination, "golden.h5"), "step8" in tags)
    replicas = os.path.join(source, "replicas", "golden.h5")
    if os.path.exists(replicas):
        os.makedirs(os.path.join(destination, "replicas"))
        copy_golden(replicas, os.path.join(destination, "replicas",
                                           "golden.h5"), False)


def link_equal_golden(root, cases):
    """Runs that differ only in how they were saved held the same values."""
    first = {}
    for case in cases:
        path = os.path.join(root, case, "golden.h5")
        with open(path, "rb") as f:
            digest = hashlib.sha256(f.read()).hexdigest()
        if digest in first:
            os.remove(path)
            os.symlink(os.path.join("..", first[digest], "golden.h5"), path)
        first.setdefault(digest, case)


def main():
    manifest, source, destination = sys.argv[1:4]
    with open(manifest) as f:
        rows = json.load(f)["deepspeed"]
    lines = []
    for case in sorted(sys.argv[4:]):
        name, _, resaved = case.partition(":")
        target = os.path.join(destination, "deepspeed", name)
        copy_case(os.path.join(source, name), target, resaved == "resaved")
        lines.append("  " + json.dumps(name) + ": " +
                     json.dumps(describe(rows[name], target)))
    link_equal_golden(os.path.join(destination, "deepspeed"),
                      sorted(case.partition(":")[0] for case in sys.argv[4:]))
    with open(os.path.join(destination, "MANIFEST.json"), "w") as f:
        f.write('{"deepspeed": {\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    main()
