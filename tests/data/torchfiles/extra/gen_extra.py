#!/usr/bin/env python3
"""More files of torch.save that are legal but rare, with what torch reads from them.

Needs torch and numpy; the tests do not run it. Adds its rows to EXPECTED.json beside it, whose other rows come from
../gen_adversarial.py.

    python gen_extra.py
"""
import collections, json, os, sys, warnings
import numpy as np
import torch
import torch.nn as nn

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import gen_adversarial as base
warnings.filterwarnings("ignore")


def objects():
    g = torch.Generator().manual_seed(11)
    x = torch.randn(5, 6, 7, generator=g)
    flat = torch.arange(120, dtype=torch.float64)
    all_dtypes = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16,
                  torch.int8, torch.uint8, torch.bool, torch.complex128, torch.complex64]
    new_dtypes = [torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2,
                  torch.float8_e4m3fnuz, torch.float8_e5m2fnuz]
    many = {str(d): (x[0] * 9).abs().to(d).t() for d in all_dtypes}
    many.update({str(d): (x[0] * 9).abs().to(torch.float32).to(d) for d in new_dtypes})
    yield "every_dtype_transposed.pt", many, {}, "each dtype, most of them as a transposed view"
    views = {"perm": x.permute(2, 0, 1), "slice": x[1:4, ::2, 3:], "step": flat[7::11], "narrow": flat.view(10, 12)[2:9, 5:8],
             "expand": x[:, :1, :1].expand(5, 3, 2), "unfold": flat.unfold(0, 6, 2), "as_strided": flat.as_strided((4, 3, 2), (5, 0, 7), 9),
             "zero": flat[3:3], "scalar": flat[77], "flip": x.flip(0), "diag": x.diagonal(0, 1, 2), "chan": x[None].contiguous().permute(0, 3, 1, 2)}
    yield "many_views.pt", views, {}, "views of two storages with strides of all kinds"
    yield "legacy_views.pt", {**views, "shared": [flat, flat[4:9]]}, {"_use_new_zipfile_serialization": False}, "the same in a legacy stream"
    for protocol in (3, 4, 5):
        yield f"legacy_proto{protocol}.pt", {"w": x[0], "b": b"\0\xff", "u": "\u2603", "set": {1}}, {"_use_new_zipfile_serialization": False, "pickle_protocol": protocol}, f"legacy stream with pickle protocol {protocol}"
        yield f"mixed_proto{protocol}.pt", {"w": x[0].t(), "f": frozenset([1, 2]), "b": bytearray(b"abc"), "l": list(range(2000)), "d": {i: str(i) for i in range(1500)}}, {"pickle_protocol": protocol}, f"long containers in batches of 1000, protocol {protocol}"
    p = nn.Parameter(x[0].clone())
    p.ds_id = 4
    t = x[1].clone()
    t.ds_id = "3_21"
    t.nested = {"inner": x[2].clone()}
    yield "attributes.pt", {"param": p, "tensor": t, "buffer": nn.Buffer(x[3].clone())}, {}, "Python attributes on a Parameter and on a tensor, one of them a tensor"
    m = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Embedding(5, 2))
    torch.manual_seed(2)
    for q in m.parameters():
        q.data.normal_()
    opt = torch.optim.AdamW(m.parameters(), lr=1e-3)
    for q in m.parameters():
        q.grad = torch.ones_like(q)
    opt.step()
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 10)
    yield "training_state.pt", {"model": m.state_dict(), "opt": opt.state_dict(), "sched": sched.state_dict(), "rng": torch.get_rng_state()[:64].clone(),
                                "np_rng": np.random.RandomState(1).get_state()[:1], "step": 10**12, "loss": np.float32(1.5), "hist": collections.deque([1, 2], 5)}, {}, "model, optimizer, scheduler, random state, numpy scalars"
    yield "conj_neg_chain.pt", {"conj_t": torch.complex(x[0], x[1]).conj().t(), "neg_imag": torch.complex(x[0], x[1]).conj().imag, "conj_slice": torch.complex(x[0], x[1]).double().conj() if False else torch.complex(x[0].double(), x[1].double()).conj()[1:3, ::2]}, {}, "lazy bits on transposed and sliced complex tensors"
    yield "storages.pt", [x[0].clone().untyped_storage(), {"t": x[1].clone()}], {}, "a bare storage beside a tensor"
    yield "odd_names.pt", {"": x[0, 0].clone(), "a/b": x[0, 1].clone(), "\u00fc\n": x[0, 2].clone(), 7: x[0, 3].clone()}, {}, "keys that are empty, hold slashes, control characters, or are ints"
    yield "empties.pt", {str(d): torch.empty(0, 3, dtype=d) for d in all_dtypes + new_dtypes}, {}, "empty tensors of all dtypes"


def main():
    path = os.path.join(HERE, "EXPECTED.json")
    rows = json.load(open(path))
    for name, obj, kwargs, what in objects():
        file = os.path.join(HERE, name)
        torch.save(obj, file, **kwargs)
        loaded = torch.load(file, weights_only=False)
        rows[name] = {"what": what, "expect": "load", "tensors": base.describe(loaded), "bytes": os.path.getsize(file)}
    json.dump(rows, open(path, "w"), indent=1, default=str)


if __name__ == "__main__":
    main()
