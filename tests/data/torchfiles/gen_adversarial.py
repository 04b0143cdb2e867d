#!/usr/bin/env python3
"""Tiny adversarial / edge-case checkpoint files: torch zip, torch legacy, raw pickle.

Needs torch, numpy and (for ds_globals.pt) deepspeed; the tests do not run it.

    python gen_adversarial.py --out ./out

Every file gets a row in <family>/EXPECTED.json: what it is, what a safe reader must do ("load" with the exact
tensors, or "reject"), and what torch itself says with weights_only=True / False (malicious ones: never run).
The malicious ones only ever `touch ./PWNED_MARKER`; this script never loads them with weights_only=False.
"""
import argparse, collections, copyreg, dataclasses, enum, hashlib, io, json, os, pickle, struct, sys, types, warnings, zipfile, zlib
import numpy as np
import torch
import torch.nn as nn
warnings.filterwarnings("ignore")

MARK = "touch ./PWNED_MARKER"
ROWS = {}


# a module name that no reader can import
fake = types.ModuleType("fixture_custom_mod")
sys.modules["fixture_custom_mod"] = fake


class CustomState:
    def __init__(self, a): self.a = a; self.t = torch.arange(3.)


class Color(enum.Enum):
    RED = 1


class Stage(enum.IntEnum):
    WEIGHTS = 3


@dataclasses.dataclass
class Frag:
    numel: int
    start: int


Point = collections.namedtuple("Point", "x y")


class SubTensor(torch.Tensor):
    pass



for c in (CustomState, Color, Stage, Frag, Point, SubTensor):
    c.__module__ = "fixture_custom_mod"; c.__qualname__ = c.__name__; setattr(fake, c.__name__, c)


def raw(t):
    """contiguous little-endian bytes"""
    t = t.detach()
    if t.layout != torch.strided or t.device.type == "meta":
        return None
    t = t.resolve_conj().resolve_neg().contiguous()
    if t.numel() == 0:
        return b""
    return t.reshape(-1).view(torch.uint8).numpy().tobytes() if t.dim() else t.reshape(1).view(torch.uint8).numpy().tobytes()


def describe(o, path="", out=None, depth=0):
    out = {} if out is None else out
    if torch.is_tensor(o):
        try:
            b = raw(o)
        except Exception as e:
            out[path] = {"kind": "tensor", "dtype": str(o.dtype), "shape": list(o.shape), "layout": str(o.layout), "note": f"no raw bytes: {e}"}
            return out
        d = {"kind": "tensor", "dtype": str(o.dtype), "shape": list(o.shape), "layout": str(o.layout)}
        if o.layout == torch.strided and o.device.type != "meta":
            d.update(stride=list(o.stride()), offset=o.storage_offset(), storage_nbytes=o.untyped_storage().nbytes(),
                     is_conj=o.is_conj(), is_neg=o.is_neg(), requires_grad=o.requires_grad)
        if b is not None:
            d["sha256"] = hashlib.sha256(b).hexdigest()
            if len(b) <= 256:
                d["hex"] = b.hex()
        out[path] = d
    elif isinstance(o, dict):
        for k, v in o.items():
            describe(v, f"{path}/{k!r}" if not isinstance(k, str) else f"{path}/{k}", out, depth + 1)
    elif isinstance(o, (list, tuple)) and depth < 12:
        for i, v in enumerate(o):
            describe(v, f"{path}[{i}]", out, depth + 1)
    return out


def torch_says(path, wo):
    try:
        torch.load(path, weights_only=wo, map_location="cpu")
        return "ok"
    except BaseException as e:
        return f"{type(e).__name__}: {(str(e) + chr(10)).splitlines()[0][:160]}"


def note(fam, name, what, expect, obj=None, path=None, malicious=False, no_run=False, **kw):
    r = {"what": what, "expect": expect, **kw}
    if obj is not None:
        r["tensors"] = describe(obj)
    if path and path.endswith((".pt", ".bin", ".pth")):
        r["torch_weights_only_true"] = torch_says(path, True)
        r["torch_weights_only_false"] = "not run (malicious)" if malicious else ("not run" if no_run else torch_says(path, False))
    if path:
        r["bytes"] = os.path.getsize(path)
    ROWS.setdefault(fam, {})[name] = r


# --------------------------------------------------------------------------------------- hand-made torch zips
class P(pickle._Pickler):
    """pure-python pickler: a storage stand-in becomes torch's persistent id"""
    def persistent_id(self, o):
        return o.pid if isinstance(o, St) else None


class St:
    def __init__(self, cls, key, loc, n): self.pid = ("storage", cls, key, loc, n)


def mkpkl(obj, proto=2):
    b = io.BytesIO(); P(b, proto).dump(obj); return b.getvalue()


class T:
    """pickles as torch._utils._rebuild_tensor_v2(storage, offset, size, stride, requires_grad, OrderedDict())"""
    def __init__(self, st, off, size, stride): self.a = (st, off, size, stride, False, collections.OrderedDict())
    def __reduce__(self): return torch._utils._rebuild_tensor_v2, self.a


def craft(path, pkl, recs, root="archive", version=b"3\n", byteorder=b"little", extra=(), compress=(), align=True, order=None, dup=()):
    """torch-like zip: stored records, 64-byte aligned by an extra field as torch's writer does"""
    items = [(f"{root}/data.pkl", pkl)]
    if byteorder is not None:
        items.append((f"{root}/byteorder", byteorder))
    items += [(f"{root}/data/{k}", v) for k, v in recs.items()]
    if version is not None:
        items.append((f"{root}/version", version))
    items += list(extra) + list(dup)
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as z:
        warnings.simplefilter("ignore")
        for n, d in items:
            zi = zipfile.ZipInfo(n, (1980, 1, 1, 0, 0, 0))
            zi.compress_type = zipfile.ZIP_DEFLATED if n in compress else zipfile.ZIP_STORED
            if align and zi.compress_type == zipfile.ZIP_STORED:
                pos = z.fp.tell() + 30 + len(n.encode()) + 4
                zi.extra = b"FB" + struct.pack("<H", (-pos) % 64) + b"Z" * ((-pos) % 64)
            z.writestr(zi, d)


f32 = lambda *v: struct.pack(f"<{len(v)}f", *v)


def torchfiles(out):
    fam = "torchfiles"; D = os.path.join(out, fam); os.makedirs(D, exist_ok=True)
    def save(name, obj, what, expect="load", **kw):
        p = os.path.join(D, name); sk = {k: kw.pop(k) for k in ("pickle_protocol", "_use_new_zipfile_serialization") if k in kw}
        torch.save(obj, p, **sk); note(fam, name, what, expect, obj, p, **kw)
    g = torch.Generator().manual_seed(5)
    base = torch.randn(6, 8, generator=g)
    save("plain.pt", {"w": base, "step": 7}, "one fp32 tensor and an int")
    save("noncontig_views.pt", {"base": base, "transpose": base.t(), "slice": base[1:6:2, 2:], "flat_off": base.view(-1)[7:19],
                                "expand": torch.tensor([3.5]).expand(4, 3), "perm3": torch.arange(24.).view(2, 3, 4).permute(2, 0, 1),
                                "diag": base.diagonal(), "col": base[:, 3], "unfold": torch.arange(10.).unfold(0, 4, 2)},
         "views with strides, offsets, stride 0 and overlap; five of them share base's storage")
    s = torch.arange(40, dtype=torch.float32)
    save("shared_storage.pt", {"a": s[:20], "b": s[10:30], "c": s, "alias": s[:20], "list": [s[5:6], s[39:]]},
         "several tensors over ONE storage record (the file has one data/0)")
    try:
        torch.save({"f": s, "i": s.view(torch.int32)}, os.path.join(D, "x"))
        note(fam, "shared_two_dtypes(not written)", "torch allows it", "n/a")
    except Exception as e:
        note(fam, "shared_two_dtypes(not written)", f"torch refuses to save two dtypes over one storage: {type(e).__name__}: {e}", "n/a")
    if os.path.exists(os.path.join(D, "x")): os.unlink(os.path.join(D, "x"))
    save("zero_dim_empty.pt", {"s_f32": torch.tensor(1.5), "s_i64": torch.tensor(-9), "s_bool": torch.tensor(True), "s_bf16": torch.tensor(2.5, dtype=torch.bfloat16),
                               "e1": torch.empty(0), "e2": torch.empty(0, 3), "e3": torch.empty(3, 0, 2, dtype=torch.int8), "one": torch.ones(1, 1, 1),
                               "empty_view": base[3:3], "s_view": base[2, 3]}, "0-dim, empty and 1-element tensors; a 0-dim view into a big storage")
    nan = struct.unpack("<f", bytes.fromhex("0100a07f"))[0]
    sp = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-45, -1e-40, 3.4028234e38, 1 / 3])
    save("dtypes_classic.pt", {"f32": sp, "f64": sp.double() * 1e-300, "f16": sp.half(), "bf16": sp.bfloat16(), "i8": torch.tensor([-128, 127, 0], dtype=torch.int8),
                               "u8": torch.tensor([0, 255], dtype=torch.uint8), "i16": torch.tensor([-32768, 32767], dtype=torch.int16),
                               "i32": torch.tensor([-2**31, 2**31 - 1], dtype=torch.int32), "i64": torch.tensor([-2**63, 2**63 - 1]), "bool": torch.tensor([True, False, True]),
                               "nanpay": torch.tensor([0x7fa00001, -4194303], dtype=torch.int32).view(torch.float32)}, "every classic dtype with special values (-0, inf, NaN payloads, subnormals)")
    save("dtypes_complex.pt", {"c64": torch.tensor([1 + 2j, -3.5j], dtype=torch.complex64), "c128": torch.tensor([1e300 + 1j], dtype=torch.complex128),
                               "c32": torch.tensor([1 + 1j]).to(torch.complex32)}, "complex64/128/32", "load or a clear 'unsupported dtype' error")
    save("conj_neg_views.pt", {"conj": torch.tensor([1 + 2j, 3 - 4j]).conj(), "neg": torch._neg_view(torch.tensor([1., -2.])), "imag_of_conj": torch.tensor([1 + 2j]).conj().imag},
         "lazy conj / neg bits: 7th argument of _rebuild_tensor_v2 is {'conj':True} / {'neg':True}; ignoring it flips signs silently", "load with the bit applied, or reject")
    fp8 = {n: torch.arange(256, dtype=torch.uint8).view(getattr(torch, n)) for n in ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu") if hasattr(torch, n)}
    save("dtypes_fp8.pt", fp8, "all 256 codes of each fp8 dtype; saved through _rebuild_tensor_v3 + UntypedStorage", "load")
    save("dtypes_uint.pt", {"u16": torch.tensor([0, 65535], dtype=torch.uint16), "u32": torch.tensor([2**32 - 1], dtype=torch.uint32), "u64": torch.tensor([2**63], dtype=torch.uint64)},
         "uint16/32/64 (rebuild_tensor_v3)", "load or 'unsupported dtype'")
    if hasattr(torch, "float4_e2m1fn_x2"):
        try:
            save("dtypes_fp4.pt", {"fp4": torch.arange(16, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)}, "packed fp4 (two values a byte)", "load or 'unsupported dtype'")
        except Exception as e:
            note(fam, "dtypes_fp4.pt(not written)", str(e), "n/a")

    save("dtype_objects.pt", {"dtype": torch.bfloat16, "size": torch.Size([2, 3]), "device": torch.device("cpu")}, "torch.dtype / Size / device / layout objects as plain values")
    lin = nn.Linear(3, 2); torch.manual_seed(0)
    with torch.no_grad(): lin.weight.copy_(torch.arange(6.).view(2, 3)); lin.bias.zero_()
    pa = nn.Parameter(torch.arange(4.)); pa.use_muon = True; pa.muon_num_heads = 4
    save("params.pt", {"p": nn.Parameter(torch.ones(2, 3)), "p_nograd": nn.Parameter(torch.ones(2), requires_grad=False), "grad_leaf": torch.ones(2, requires_grad=True)}, "nn.Parameter (rebuild_parameter)")
    save("param_with_attrs.pt", {"p": pa}, "nn.Parameter with python attributes use_muon / muon_num_heads: _rebuild_parameter_with_state", "load (attributes may be dropped, with a note)")
    ta = torch.arange(3.); ta.tag = "x"
    save("tensor_with_attr.pt", {"t": ta}, "tensor with a python attribute: _rebuild_from_type_v2", "load")
    save("module_whole.pt", lin, "a whole pickled nn.Linear (classes torch.nn.modules.linear.Linear)", "reject (class not allowed), never import")
    save("state_dict_ordered.pt", lin.state_dict(), "nn.Module.state_dict(): OrderedDict with a _metadata attribute (BUILD on an OrderedDict)")
    deep = 1
    for _ in range(300): deep = [deep]
    rec = [1]; rec.append(rec)
    cont = {"od": collections.OrderedDict([("b", 1), ("a", 2)]), 3: "int key", (1, "t"): "tuple key", None: 0, True: 1.5, 2.5: "float key", b"k": b"\x00\xff",
            "bigint": [2**63, -2**63 - 1, 2**200, -1, 255, 256, 65535, 65536, -2**31], "floats": [float("nan"), float("inf"), -0.0, 5e-324], "unicode": "Ünï\u2603\U0001F600", "empty": ["", b"", [], (), {}, set()],
            "set": {1, 2}, "frozenset": frozenset([3]), "bytes": bytes(range(256)), "tuple": (1,), "t2": (1, 2), "t3": (1, 2, 3), "t4": (1, 2, 3, 4), "long_str": "x" * 70000}
    save("containers.pt", cont, "container and scalar torture: key types, big ints, NaN, unicode, every tuple arity")
    save("containers_complex_bytearray.pt", {"c": 1 + 2j, "ba": bytearray(b"ab"), "range": range(3), "slice": slice(1, 2), "counter": collections.Counter("aab"), "dd": collections.defaultdict(list)}, "builtins.complex / bytearray / range / slice, Counter, defaultdict", "reject or load; never crash")
    save("deep_nest.pt", deep, "300-deep nested list: bound the recursion (an iterative unpickler just loads it)", "load or reject; never overflow the stack")
    craft(os.path.join(D, "deep_nest_100k.pt"), b"\x80\x02" + b"]" * 100000 + b"a" * 99999 + b".", {})
    note(fam, "deep_nest_100k.pt", "100000-deep nested list built from raw opcodes", "load or reject with a depth limit; the DESTRUCTOR must not overflow the stack either", path=os.path.join(D, "deep_nest_100k.pt"), no_run=True)
    save("self_recursive.pt", rec, "a list that contains itself (memo cycle)", "reject or load; never loop or leak")
    save("custom_class.pt", {"x": CustomState(3)}, "instance of an unknown class fixture_custom_mod.CustomState (GLOBAL + BUILD)", "reject, or keep as an opaque record; never import")
    save("namedtuple_enum_dataclass.pt", {"nt": Point(1, 2), "enum": Color.RED, "intenum": Stage.WEIGHTS, "dc": Frag(3, 4)}, "namedtuple / Enum / IntEnum / dataclass of an unknown module", "reject, or keep as an opaque record")
    st = torch.ones(2).as_subclass(SubTensor)
    save("tensor_subclass.pt", {"s": st}, "tensor subclass of an unknown module: _rebuild_from_type_v2", "reject or unwrap")
    try:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
        from deepspeed.runtime.zero.config import ZeroStageEnum
        from deepspeed.utils.tensor_fragment import fragment_address
        from deepspeed.runtime.fp16.loss_scaler import LossScaler, DynamicLossScaler
        save("ds_globals.pt", {"stage": [ZeroStageEnum.disabled, ZeroStageEnum.optimizer_states, ZeroStageEnum.gradients, ZeroStageEnum.weights], "frag": fragment_address(numel=5, start=2),
                               "ls": LossScaler(scale=128.0), "dls": DynamicLossScaler(init_scale=2**16, scale_window=1000, min_scale=1, delayed_shift=2, consecutive_hysteresis=False, raise_error_at_min_scale=True, dtype=torch.half)},
             "every DeepSpeed class that its own checkpoints pickle", "load (allow-list, as opaque records)")
    except Exception as e:
        note(fam, "ds_globals.pt(not written)", repr(e), "n/a")
    for pr in (2, 3, 4, 5):
        save(f"proto{pr}.pt", {"w": base, "s": "text", "n": [1, 2, (3, None)], "b": b"raw"}, f"pickle protocol {pr}" + (" (FRAME, MEMOIZE, SHORT_BINUNICODE, STACK_GLOBAL)" if pr >= 4 else ""), pickle_protocol=pr)
    save("legacy.pt", {"w": base, "view": base[2:4], "shared": base.t(), "i": torch.arange(5), "bf": torch.ones(3, dtype=torch.bfloat16), "p": nn.Parameter(torch.ones(2))},
         "legacy stream: 5 pickles (magic 0x1950a86a20f9469cfc6c, protocol 1001, sys info, object, storage keys) + per storage int64 numel + raw bytes", _use_new_zipfile_serialization=False)
    save("legacy_empty.pt", {"a": 1}, "legacy stream without tensors", _use_new_zipfile_serialization=False)
    lb = open(os.path.join(D, "legacy.pt"), "rb").read()
    for nm, cut, w in (("legacy_truncated_data.pt", len(lb) - 9, "cut inside the last storage"), ("legacy_truncated_pickle.pt", 60, "cut inside the first pickles")):
        open(os.path.join(D, nm), "wb").write(lb[:cut]); note(fam, nm, f"legacy stream {w}", "reject", path=os.path.join(D, nm))
    i = torch.tensor([[0, 1, 2], [2, 0, 1]])
    save("sparse_coo.pt", {"s": torch.sparse_coo_tensor(i, torch.tensor([1., 2., 3.]), (3, 3))}, "sparse COO: _rebuild_sparse_tensor", "reject: sparse layout (or densify)")
    save("sparse_csr.pt", {"s": torch.eye(3).to_sparse_csr()}, "sparse CSR", "reject: sparse layout (or densify)")
    save("meta_tensor.pt", {"m": torch.empty(3, 4, device="meta")}, "meta tensor: _rebuild_meta_tensor_no_storage", "reject: no data")
    try:
        save("quantized.pt", {"q": torch.quantize_per_tensor(torch.randn(4, generator=g), 0.1, 2, torch.qint8)}, "quantized: _rebuild_qtensor", "reject")
    except Exception as e:
        note(fam, "quantized.pt(not written)", str(e)[:100], "n/a")
    try:
        save("nested_tensor.pt", {"n": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])}, "nested tensor (strided layout)", "reject")
    except Exception as e:
        if os.path.exists(os.path.join(D, "nested_tensor.pt")): os.unlink(os.path.join(D, "nested_tensor.pt"))
        note(fam, "nested_tensor.pt(not written)", str(e)[:100], "n/a")
    try:
        torch.jit.save(torch.jit.script(lin), os.path.join(D, "torchscript.pt"))
        note(fam, "torchscript.pt", "TorchScript archive (constants.pkl, code/ ...)", "reject: TorchScript", path=os.path.join(D, "torchscript.pt"))
    except Exception as e:
        note(fam, "torchscript.pt(not written)", str(e)[:100], "n/a")
    pickle.dump({"a": np.arange(4.), "s": np.float64(1.5), "i": np.int64(3)}, open(os.path.join(D, "numpy_raw.pkl"), "wb"), 4)
    note(fam, "numpy_raw.pkl", "plain pickle with numpy arrays and scalars", "reject or load (numpy._core.multiarray globals)", path=os.path.join(D, "numpy_raw.pkl"))
    save("numpy_in_zip.pt", {"arr": np.arange(4.), "scalar": np.float64(2.5), "t": torch.ones(2)}, "numpy array / scalar inside a torch zip (rng states look like this)", "reject, or load by an explicit allow-list")

    # ---- broken containers, made from plain bytes
    ok = open(os.path.join(D, "plain.pt"), "rb").read()
    def put(name, b, what, expect="reject", **kw):
        open(os.path.join(D, name), "wb").write(b); note(fam, name, what, expect, path=os.path.join(D, name), **kw)
    put("empty_file.pt", b"", "0 bytes")
    put("three_bytes.pt", b"PK\x03", "3 bytes")
    put("not_a_checkpoint.pt", b"hello world, this is text\n" * 4, "text")
    put("trunc_no_eocd.pt", ok[:-30], "zip without its end-of-central-directory")
    put("trunc_half.pt", ok[:len(ok) // 2], "first half of a zip")
    put("trunc_1.pt", ok[:-1], "one byte short")
    put("prefixed.pt", b"#!shebang\n" + ok, "10 bytes before the zip (python's zipfile accepts, torch does not)", "reject or load; the CRCs are right")
    put("trailing_garbage.pt", ok + b"\0" * 100, "100 bytes after the zip", "reject or load")
    z = zipfile.ZipFile(io.BytesIO(ok)); zi = [x for x in z.infolist() if x.filename.endswith("/data/0")][0]
    zp = [x for x in z.infolist() if x.filename.endswith("data.pkl")][0]
    def off(x):
        h = x.header_offset; n, e = struct.unpack("<HH", ok[h + 26:h + 30]); return h + 30 + n + e
    b = bytearray(ok); b[off(zi) + 5] ^= 0x10; put("bitflip_payload.pt", bytes(b), "one bit of data/0 flipped: CRC-32 mismatch (torch.load does NOT notice: it skips CRCs of records by default)", "reject: bad CRC")
    b = bytearray(ok); b[off(zp) + 20] ^= 0x01; put("bitflip_pickle.pt", bytes(b), "one bit of data.pkl flipped", "reject: bad CRC")
    b = bytearray(ok); p = ok.rfind(b"PK\x01\x02"); b[p + 24] ^= 0x7f; put("bitflip_central_size.pt", bytes(b), "uncompressed size in the last central-directory entry is wrong", "reject")
    b = bytearray(ok); b[zi.header_offset + 2] ^= 0; h = zi.header_offset
    b[h + 30] ^= 0x20; put("local_name_differs.pt", bytes(b), "local header name differs from the central directory's (local 'data/0' entry)", "reject")

    FS = torch.FloatStorage
    C = lambda name, pkl, recs, what, expect="reject", **kw: (craft(os.path.join(D, name), pkl, recs, **{k: v for k, v in kw.items() if k != "obj"}),
                                                            note(fam, name, what, expect, kw.get("obj"), os.path.join(D, name)))
    one = lambda off=0, size=(2, 3), stride=(3, 1), n=6, key="0", loc="cpu", cls=FS: mkpkl({"w": T(St(cls, key, loc, n), off, size, stride)})
    data = {"0": f32(1, 2, 3, 4, 5, 6)}
    good = {"w": torch.tensor([[1., 2, 3], [4, 5, 6]])}
    C("crafted_ok.pt", one(), data, "hand-made zip, valid", "load", obj=good)
    C("crafted_cuda_loc.pt", one(loc="cuda:3"), data, "storage location cuda:3 (saved on a GPU): must load on a machine without one", "load", obj=good)
    C("crafted_other_root.pt", one(), data, "archive root named 'step5/bf16' with a slash? no: 'weird root'", "load", root="weird root", obj=good)
    C("crafted_no_byteorder.pt", one(), data, "no byteorder record (torch < 2.1)", "load", byteorder=None, obj=good)
    C("crafted_no_version.pt", one(), data, "no version record", "reject", version=None)
    C("crafted_version_99.pt", one(), data, "version 99", "reject or load with a warning", version=b"99\n")
    C("crafted_big_endian.pt", one(), {"0": struct.pack(">6f", 1, 2, 3, 4, 5, 6)}, "byteorder=big with big-endian data: swap per element", "load with a swap", byteorder=b"big", obj=good)
    C("crafted_bad_byteorder.pt", one(), data, "byteorder=middle", "reject", byteorder=b"middle")
    C("crafted_unaligned.pt", one(), data, "records not 64-byte aligned", "load", align=False, obj=good)
    C("crafted_deflated.pt", one(), data, "data/0 deflated (never written by torch)", "reject or inflate; CRC right", compress=("archive/data/0",), obj=good)
    C("crafted_bomb.pt", one(size=(1 << 21,), stride=(1,), n=1 << 21), {"0": b"\0" * (1 << 23)}, "8 MiB of zeros deflated to ~8 KiB", "reject (compressed record) or inflate within a limit", compress=("archive/data/0",))
    C("crafted_missing_storage.pt", one(key="7"), data, "storage key 7 has no record")
    C("crafted_short_storage.pt", one(), {"0": f32(1, 2, 3)}, "record of 12 bytes for a 6-element storage")
    C("crafted_long_storage.pt", one(), {"0": f32(*range(9))}, "record longer than the persistent id's numel", "reject or load the first 6")
    C("crafted_oob_offset.pt", one(off=4), data, "offset 4 + 2x3 exceeds the storage (a reader of raw memory would overrun)")
    C("crafted_oob_stride.pt", one(stride=(100, 1)), data, "stride leads out of the storage")
    C("crafted_neg_offset.pt", one(off=-1), data, "negative offset")
    C("crafted_neg_size.pt", one(size=(-2, 3)), data, "negative size")
    C("crafted_neg_stride.pt", one(off=5, stride=(-3, -1)), data, "negative stride")
    C("crafted_overflow.pt", one(size=(1 << 62, 8), stride=(8, 1)), data, "size product overflows int64")
    C("crafted_overflow2.pt", one(size=(3, 1), stride=(1 << 62, 1)), data, "(size-1)*stride overflows int64")
    C("crafted_rank_mismatch.pt", one(size=(2, 3), stride=(1,)), data, "size and stride of different length")
    C("crafted_huge_dims.pt", one(size=(1,) * 2000, stride=(1,) * 2000), data, "2000 dims", "reject or load")
    C("crafted_float_size.pt", one(size=(2.0, 3)), data, "a float where a size belongs")
    C("crafted_bad_storage_cls.pt", mkpkl({"w": T(St(collections.OrderedDict, "0", "cpu", 6), 0, (2, 3), (3, 1))}), data, "persistent id names a class that is no storage")
    C("crafted_traversal_key.pt", one(key="../../../../etc/passwd"), data, "storage key with .. : must be looked up in the zip, never on disk")
    C("crafted_traversal_member.pt", one(), data, "extra member ../../evil.txt", "load or reject; nothing may be written outside", extra=(("../../evil.txt", b"x"),), obj=good)
    C("crafted_dup_record.pt", one(), data, "two records named data/0 with different bytes", "reject", dup=(("archive/data/0", f32(9, 9, 9, 9, 9, 9)),))
    C("crafted_two_roots.pt", one(), data, "a second root with its own data.pkl", "reject or use the first", extra=(("other/data.pkl", mkpkl({"x": 1})),))
    C("crafted_no_pkl.pt", b"", {"0": b"abcd"}, "empty data.pkl")
    C("crafted_pid_str.pt", b"\x80\x02X\x01\x00\x00\x000Q.", data, "persistent id that is a string, not a tuple")
    for nm, pk, w in (("pkl_stack_underflow.pt", b"\x80\x02a.", "APPEND on an empty stack"), ("pkl_bad_memo.pt", b"\x80\x02h\x63.", "BINGET of an unset memo"), ("pkl_no_stop.pt", b"\x80\x02K\x01", "no STOP"),
                      ("pkl_bad_opcode.pt", b"\x80\x02\xf0.", "unknown opcode"), ("pkl_len_overrun.pt", b"\x80\x02X\xff\xff\xff\x7fab.", "BINUNICODE length past the end"),
                      ("pkl_huge_len8.pt", b"\x80\x04\x8d" + b"\xff" * 8 + b".", "BINUNICODE8 length 2^64-1"), ("pkl_long4_neg.pt", b"\x80\x02\x8b\xff\xff\xff\xff.", "LONG4 of length -1"),
                      ("pkl_memo_huge.pt", b"\x80\x02K\x01r\xff\xff\xff\xff.", "LONG_BINPUT 2^32-1: a dense memo vector would allocate 32 GB"), ("pkl_bad_utf8.pt", b"\x80\x02X\x02\x00\x00\x00\xc3\x28.", "invalid utf-8"),
                      ("pkl_mark_only.pt", b"\x80\x02((t.", "unbalanced MARK"), ("pkl_reduce_nontuple.pt", b"\x80\x02ccollections\nOrderedDict\nK\x01R.", "REDUCE with a non-tuple"),
                      ("pkl_setitems_odd.pt", b"\x80\x02}(K\x01u.", "SETITEMS with an odd count"), ("pkl_proto_255.pt", b"\x80\xffN.", "PROTO 255"), ("pkl_frame_overrun.pt", b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7fN.", "FRAME longer than the data"),
                      ("pkl_ext.pt", b"\x80\x02\x82\x01.", "EXT1 extension registry"), ("pkl_billion_laughs.pt", None, "nested doubling through the memo: 2^30 logical items in 200 bytes")):
        if pk is None:
            pk = b"\x80\x02]q\x00" + b"".join(b"]q" + bytes([k + 1]) + b"(h" + bytes([k]) + b"h" + bytes([k]) + b"e" for k in range(30)) + b"."
        craft(os.path.join(D, nm), pk, {}); note(fam, nm, w, "reject" if "laughs" not in nm else "load lazily (shared) or reject; never expand", path=os.path.join(D, nm), no_run=True)

    # ---- malicious (harmless command)
    class Evil:
        def __init__(self, f, a): self.f, self.a = f, a
        def __reduce__(self): return self.f, self.a
    import subprocess, builtins
    M = lambda name, pkl, what: (craft(os.path.join(D, name), pkl, {"0": f32(1, 2, 3, 4, 5, 6)}), note(fam, name, what + f" -> `{MARK}`", "reject without running; ./PWNED_MARKER must not appear", path=os.path.join(D, name), malicious=True))
    M("mal_os_system.pt", pickle.dumps({"w": 1, "x": Evil(os.system, (MARK,))}, 2), "REDUCE posix.system")
    M("mal_eval.pt", pickle.dumps(Evil(builtins.eval, (f"__import__('os').system('{MARK}')",)), 2), "REDUCE builtins.eval")
    M("mal_subprocess.pt", pickle.dumps(Evil(subprocess.Popen, (MARK.split(),)), 2), "REDUCE subprocess.Popen")
    M("mal_stack_global.pt", pickle.dumps(Evil(os.system, (MARK,)), 4), "protocol 4 STACK_GLOBAL posix.system")
    M("mal_inst.pt", b"(S'" + MARK.encode() + b"'\nios\nsystem\n.", "INST os system (protocol 0)")
    M("mal_obj.pt", b"\x80\x02(cos\nsystem\nX" + struct.pack("<I", len(MARK)) + MARK.encode() + b"o.", "OBJ opcode")
    M("mal_getattr.pt", b"\x80\x02c__builtin__\ngetattr\nc__builtin__\n__import__\nX\x02\x00\x00\x00os\x85RX\x06\x00\x00\x00system\x86RX" + struct.pack("<I", len(MARK)) + MARK.encode() + b"\x85R.", "getattr(__import__('os'),'system')")
    M("mal_dotted_stack_global.pt", b"\x80\x04\x8c\x05torch\x8c\x09os.system\x93\x8c" + bytes([len(MARK)]) + MARK.encode() + b"\x85R.", "STACK_GLOBAL with a dotted name below an allowed module: torch / 'os.system'")
    M("mal_torch_global.pt", b"\x80\x02ctorch.hub\nload\nX\x01\x00\x00\x00x\x85R.", "a callable of torch itself (torch.hub.load): allow-list names, not modules")
    M("mal_build_setstate.pt", b"\x80\x02ccollections\nOrderedDict\n)R}X\x08\x00\x00\x00__dict__X\x01\x00\x00\x00xsb.", "BUILD state that sets __dict__ (no command; attribute injection)")
    M("mal_newobj_ex.pt", b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c" + bytes([len(MARK)]) + MARK.encode() + b"\x85}\x92.", "NEWOBJ_EX posix.system")
    M("mal_copyreg.pt", b"\x80\x02ccopyreg\n_reconstructor\nc__builtin__\nobject\nc__builtin__\nobject\nN\x87R.", "copyreg._reconstructor (protocol 0/1 objects)")
    M("mal_pers_id_call.pt", b"\x80\x02(X\x07\x00\x00\x00storagecos\nsystem\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x06tQ.", "os.system in the storage-class slot of a persistent id")
    lg = io.BytesIO()
    for o in (0x1950a86a20f9469cfc6c, 1001, {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}):
        pickle.dump(o, lg, 2)
    lg.write(pickle.dumps({"x": Evil(os.system, (MARK,))}, 2)); pickle.dump([], lg, 2)
    open(os.path.join(D, "mal_legacy.pt"), "wb").write(lg.getvalue()); note(fam, "mal_legacy.pt", f"legacy stream, REDUCE posix.system -> `{MARK}`", "reject without running", path=os.path.join(D, "mal_legacy.pt"), malicious=True)
    lg = io.BytesIO(); lg.write(pickle.dumps(Evil(os.system, (MARK,)), 2))
    open(os.path.join(D, "mal_raw_magic.pt"), "wb").write(lg.getvalue()); note(fam, "mal_raw_magic.pt", "legacy stream whose FIRST pickle (the magic number) is malicious", "reject without running", path=os.path.join(D, "mal_raw_magic.pt"), malicious=True)


if __name__ == "__main__":
    ap = argparse.ArgumentParser(); ap.add_argument("--out", default="./out"); a = ap.parse_args()
    sys.setrecursionlimit(5000)
    torchfiles(a.out)
    for fam, rows in ROWS.items():
        json.dump(rows, open(os.path.join(a.out, fam, "EXPECTED.json"), "w"), indent=1, default=str)
        print(fam, len(rows), "rows", sum(r.get("bytes", 0) for r in rows.values()), "bytes")
    print("marker present:", os.path.exists("./PWNED_MARKER"))
