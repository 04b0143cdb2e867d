#!/usr/bin/env python3
"""Compares our safetensors files with what the safetensors package writes.

    oracle_test.py WRITE_CASES      exit code 77 where the package is missing
"""
import json
import os
import struct
import subprocess
import sys
import tempfile

try:
    from safetensors import deserialize, serialize
    import numpy
except ImportError:
    print("skipped: the package safetensors is not installed; "
          "scripts/setup_interop does that")
    sys.exit(77)

NAMES = {"F64": "float64", "F32": "float32", "F16": "float16",
         "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn",
         "F8_E5M2": "float8_e5m2", "I64": "int64", "I32": "int32",
         "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32",
         "U16": "uint16", "U8": "uint8", "BOOL": "bool", "C64": "complex64",
         "F8_E4M3FNUZ": "float8_e4m3fnuz", "F8_E5M2FNUZ": "float8_e5m2fnuz",
         "F8_E8M0": "float8_e8m0fnu", "F4": "float4_e2m1fn_x2"}


def read(path):
    with open(path, "rb") as f:
        return f.read()


def written_by_the_library(tensors):
    try:
        from safetensors import TensorSpec
    except ImportError:  # Before 0.8.
        return serialize(tensors, {"format": "pt"})
    kept = {name: numpy.frombuffer(t["data"], numpy.uint8)
            for name, t in tensors.items()}
    specs = {name: TensorSpec(dtype=t["dtype"], shape=t["shape"],
                              data_ptr=kept[name].ctypes.data,
                              data_len=kept[name].nbytes)
             for name, t in tensors.items()}
    return bytes(serialize(specs, {"format": "pt"}))


def check_bytes(path):
    """The library reads our file, and writes the same one from what it read."""
    ours = read(path)
    tensors = {}
    for name, tensor in deserialize(ours):
        shape = list(tensor["shape"])
        if tensor["dtype"] == "F4":
            shape[-1] //= 2  # The library counts bytes here.
        tensors[name] = {"dtype": NAMES[tensor["dtype"]], "shape": shape,
                         "data": bytes(tensor["data"])}
    theirs = written_by_the_library(tensors)
    assert theirs == ours, f"{path}: the library writes other bytes"
    return tensors


def check_values(tensors):
    """Our generator's bytes, in the order in which tensors were added."""
    for name, tensor in tensors.items():
        if name.startswith("layers.") and tensor["dtype"] == "float32":
            data = tensor["data"]
            steps = {(b - a) % 251 for a, b in zip(data, data[1:])}
            assert steps == {1}, f"{name}: displaced bytes"


def check_shards(folder):
    index = json.loads(read(f"{folder}/model.safetensors.index.json"))
    text = json.dumps(index, indent=2, sort_keys=True) + "\n"
    assert text.encode() == read(f"{folder}/model.safetensors.index.json")
    shards = sorted(set(index["weight_map"].values()))
    count = len(shards)
    assert shards == [f"model-{i + 1:05d}-of-{count:05d}.safetensors"
                      for i in range(count)]
    assert sorted(os.listdir(folder)) == shards + [
        "model.safetensors.index.json"]
    total = 0
    for shard in shards:
        tensors = check_bytes(f"{folder}/{shard}")
        assert sorted(tensors) == sorted(
            n for n, s in index["weight_map"].items() if s == shard)
        total += sum(len(t["data"]) for t in tensors.values())
    assert index["metadata"] == {"total_size": total}
    return expected_shards(), index["weight_map"]


def expected_shards():
    """huggingface_hub's rule, written out again."""
    shards, current, size = [], [], 0
    for i in range(40):
        nbytes = (i + 1) * 3 * 4
        if nbytes > 1000:
            shards.append([i])
            continue
        if size + nbytes > 1000:
            shards.append(current)
            current, size = [], 0
        current.append(i)
        size += nbytes
    shards.append(current)
    return {f"h.{i}.w": f"model-{k + 1:05d}-of-{len(shards):05d}.safetensors"
            for k, shard in enumerate(shards) for i in shard}


def check_rounding(folder):
    """bf16 by hand: to nearest even."""
    by_shape = {}
    for name, tensor in check_bytes(f"{folder}/model.safetensors").items():
        assert tensor["dtype"] == "bfloat16"
        by_shape[name] = tensor["data"]
    for i in range(40):
        count = (i + 1) * 3 * 4
        raw = numpy.array([(k + i) % 251 for k in range(count)], numpy.uint8)
        bits = raw.view(numpy.uint32).astype(numpy.uint64)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        have = numpy.frombuffer(by_shape[f"h.{i}.w"], numpy.uint16)
        is_nan = numpy.isnan(raw.view(numpy.float32))
        assert (have[~is_nan] == rounded[~is_nan]).all(), f"h.{i}.w"


def main():
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], folder], check=True)
        tensors = check_bytes(f"{folder}/all/model.safetensors")
        assert len(tensors) == 43, len(tensors)
        check_values(tensors)
        want, have = check_shards(f"{folder}/sharded")
        assert want == have
        check_rounding(f"{folder}/bf16")
        length = struct.unpack("<Q", read(
            f"{folder}/all/model.safetensors")[:8])[0]
        assert length % 8 == 0
    print("the same bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
