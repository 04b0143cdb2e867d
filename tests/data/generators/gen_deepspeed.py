#!/usr/bin/env python3
"""Makes small REAL DeepSpeed checkpoints with the Muon optimizer (CPU accelerator, gloo), golden values and
resume / export / cross-load verdicts.

    DS_ACCELERATOR=cpu python gen_deepspeed.py --out ./out/deepspeed [--only REGEX] [--phases train,resume,...]

One parent imports torch+deepspeed once and never touches a tensor or a process group; every rank of every phase
is a fresh fork of it (so "resume" never shares optimizer/engine state with "train").
"""
import os
import golden
os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")      # Muon's kernels are @compile()d; eager is bit-reproducible
os.environ.setdefault("TORCH_EXTENSIONS_DIR", "./torch_ext")
os.environ.setdefault("MKL_CBWR", "COMPATIBLE")               # gemm results independent of buffer alignment
os.environ.setdefault("DS_SKIP_CUDA_CHECK", "1")
import argparse, json, re, shutil, signal, socket, sys, time, traceback, multiprocessing as mp
from collections import OrderedDict
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import deepspeed
import deepspeed.runtime.zero.muon.muon_optimizer  # noqa: F401  (pre-import for the forks)
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
from deepspeed.accelerator import get_accelerator

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False   # plain gloo, no shared-memory kernels

VOCAB, D, HEADS, FF, T, GB = 37, 24, 4, 56, 12, 8
STEPS_BEFORE, STEPS_AFTER = 5, 3
SEED = 1234
LOGDIR = "./scratch"


# --------------------------------------------------------------------------------------------- model
class Attn(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(D, 3 * D, bias=False)           # packed: rows [q(24) | k(24) | v(24)], 4 heads of 6
        self.out_proj = nn.Linear(D, D, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(x).split(D, dim=-1)
        sh = lambda z: z.view(b, t, HEADS, D // HEADS).transpose(1, 2)
        q, k, v = sh(q), sh(k), sh(v)
        a = (q @ k.transpose(-1, -2)) / (D // HEADS) ** 0.5
        m = torch.full((t, t), float("-inf"), dtype=torch.float32).triu(1)
        a = (a.float() + m).softmax(-1).to(v.dtype)
        return self.out_proj((a @ v).transpose(1, 2).reshape(b, t, D))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1 = nn.LayerNorm(D)
        self.attn = Attn()
        self.ln2 = nn.LayerNorm(D)
        self.fc1 = nn.Linear(D, FF)                           # weight 56x24
        self.fc2 = nn.Linear(FF, D)                           # weight 24x56

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.fc2(F.gelu(self.fc1(self.ln2(x))))


class Tiny(nn.Module):
    def __init__(self, variant):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, D)
        self.blocks = nn.ModuleList([Block() for _ in range(2)])
        self.odd = nn.Linear(13, 7, bias=False)               # weight 7x13 = 91 elements
        if "oddmid" in variant:                               # 57x3 = 171 elements: sorts into the MIDDLE of the muon
            self.odd2 = nn.Linear(3, 57, bias=False)          # group, so later matrices start at odd offsets
        self.norm_f = nn.LayerNorm(D)
        self.lm_head = nn.Linear(D, VOCAB, bias=False)
        self.variant = variant
        if "tied" in variant:
            self.lm_head.weight = self.embed_tokens.weight
        if "frozen" in variant:
            self.blocks[0].fc1.weight.requires_grad_(False)   # a frozen Muon-like matrix
            self.blocks[1].ln2.bias.requires_grad_(False)     # a frozen vector
        if "buffer" in variant:
            g = torch.Generator().manual_seed(77)
            self.register_buffer("pos_table", torch.randn(T, D, generator=g) * 0.05)
            self.register_buffer("calls", torch.tensor(41, dtype=torch.int64))
            self.register_buffer("scratch", torch.ones(3), persistent=False)
            self.blocks[0].register_buffer("bmask", torch.tensor([True, False, True]))

    def forward(self, tok, tgt):
        x = self.embed_tokens(tok)
        if "buffer" in self.variant:
            x = x + self.pos_table.to(x.dtype)
            self.calls += 1
        for b in self.blocks:
            x = b(x)
        x = torch.cat([x[..., :7] + self.odd(x[..., 7:20]), x[..., 7:]], dim=-1)
        if "oddmid" in self.variant:
            x = x + self.odd2(x[..., :3]).view(*x.shape[:-1], 19, 3).mean(-2).repeat(1, 1, D // 3)
        logits = self.lm_head(self.norm_f(x)).float()
        return F.cross_entropy(logits.view(-1, VOCAB), tgt.reshape(-1))


def build_model(variant, seed):
    m = Tiny(variant)
    g = torch.Generator().manual_seed(seed)
    done = set()
    for n, p in m.named_parameters():
        if id(p) in done:
            continue
        done.add(id(p))
        with torch.no_grad():
            if "ln" in n or "norm" in n:
                base = torch.ones_like(p) if n.endswith("weight") else torch.zeros_like(p)
                p.copy_(base + 0.05 * torch.randn(p.shape, generator=g))
            else:
                p.copy_(0.3 * torch.randn(p.shape, generator=g))
    return m


def batch(step):
    g = torch.Generator().manual_seed(1000 + step)
    z = torch.randint(0, VOCAB, (GB, T + 1), generator=g)
    return z[:, :-1].contiguous(), z[:, 1:].contiguous()


# --------------------------------------------------------------------------------------------- config
def make_config(c):
    gas = 2 if "gas2" in c["variant"] else 1
    z = {"stage": c["stage"]}
    if c["stage"] == 3:
        z["reduce_scatter"] = False                           # DeepSpeed refuses Muon + reduce_scatter at stage 3
        z["stage3_param_persistence_threshold"] = 0
        if "subgroup" in c["variant"]:
            z["sub_group_size"] = 1200
        if "inmem" in c["variant"]:
            z["save_muon_momentum_buffer_in_memory"] = True
        if "persist" in c["variant"]:
            z["stage3_param_persistence_threshold"] = 100000
    if c["offload"] == "cpu":
        z["offload_optimizer"] = {"device": "cpu", "pin_memory": False}
    elif c["offload"] == "nvme":
        z["offload_optimizer"] = {"device": "nvme", "nvme_path": c["nvme_path"], "pin_memory": False, "buffer_count": 6}
        z["sub_group_size"] = 1200
        import deepspeed.runtime.swap_tensor.optimizer_utils as ou
        if "swap" in c["variant"]:                            # DeepSpeed swaps only tensors >= 1 MiB: documented hack, so that
            ou.MIN_AIO_BYTES = 1024                           # a tiny fixture has real *.tensor.swp files
    elif c["offload"] == "cpuparam":
        z["offload_optimizer"] = {"device": "cpu", "pin_memory": False}
        z["offload_param"] = {"device": "cpu", "pin_memory": False}
    if "rr" in c["variant"].split("+"):
        z["round_robin_gradients"] = True
    if "palign" in c["variant"]:
        z["parameter_alignment"] = True
    if "elastic" in c["variant"]:
        z["elastic_checkpoint"] = True
    cfg = {
        "train_micro_batch_size_per_gpu": GB // c["ws"] // gas,
        "gradient_accumulation_steps": gas,
        "steps_per_print": 1 << 30,
        "gradient_clipping": 1.0,
        "optimizer": {"type": "Muon", "params": {"lr": 0.01, "muon_lr": 0.02, "adam_lr": 0.003, "momentum": 0.95,
                                                 "weight_decay": 0.01, "betas": [0.9, 0.95], "eps": 1e-8}},
        "zero_optimization": z,
    }
    if c["offload"] == "nvme" and "swap" in c["variant"]:     # "swapall": every sub-group; "swapbig": only those >= 4096 bytes
        cfg["aio"] = {"block_size": 1024 if "swapall" in c["variant"] else 4096, "queue_depth": 4, "intra_op_parallelism": 1,
                      "single_submit": False, "overlap_events": True}
    if c["precision"] == "bf16":
        cfg["bf16"] = {"enabled": True}
        if "gacc32" in c["variant"]:
            cfg["data_types"] = {"grad_accum_dtype": "fp32"}
    elif c["precision"] == "fp16":
        cfg["fp16"] = {"enabled": True, "initial_scale_power": 8, "loss_scale_window": 4}
    if "comm32" in c["variant"]:
        cfg["communication_data_type"] = "fp32"
    if "sched" in c["variant"]:
        cfg["scheduler"] = {"type": "WarmupLR", "params": {"warmup_min_lr": 0.0, "warmup_max_lr": 0.02,
                                                           "warmup_num_steps": 6, "warmup_type": "linear"}}
    if c.get("universal"):
        cfg["checkpoint"] = {"load_universal": True}
    return cfg


def make_engine(c, seed):
    if c["precision"] == "fp16":                              # the CPU accelerator reports no fp16 here: documented hack
        type(get_accelerator()).is_fp16_supported = lambda self: True
    model = build_model(c["variant"], seed)
    params = None
    if "groups" in c["variant"]:
        decay = [p for n, p in model.named_parameters() if p.ndim >= 2]
        nodecay = [p for n, p in model.named_parameters() if p.ndim < 2]
        params = [{"params": decay}, {"params": nodecay, "weight_decay": 0.0}]
    cfg = make_config(c)
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=params if params is not None else
                                           [p for p in model.parameters()], config=cfg)
    return engine, cfg


def train_steps(engine, c, first, n):
    import torch.distributed as td
    rank, ws = c["rank"], c["ws"]
    gas = engine.gradient_accumulation_steps()
    out = []
    for s in range(first, first + n):
        tok, tgt = batch(s)
        per = GB // ws
        tok, tgt = tok[rank * per:(rank + 1) * per], tgt[rank * per:(rank + 1) * per]
        mb = per // gas
        acc = 0.0
        for k in range(gas):
            loss = engine(tok[k * mb:(k + 1) * mb], tgt[k * mb:(k + 1) * mb])
            engine.backward(loss)
            engine.step()
            acc += loss.detach().double().item() / gas
        t = torch.tensor([acc], dtype=torch.float64)
        lst = [torch.zeros_like(t) for _ in range(ws)]
        td.all_gather(lst, t)
        out.append({"step": s, "per_rank": [x.item() for x in lst], "mean": float(np.mean([x.item() for x in lst])),
                    "lr": [g["lr"] for g in engine.optimizer.param_groups],
                    "overflow": bool(getattr(engine.optimizer, "overflow", False)),
                    "loss_scale": float(getattr(engine.optimizer, "loss_scale", 1.0) or 1.0) if c["precision"] == "fp16" else 1.0})
    return out


# --------------------------------------------------------------------------------------------- by-hand state gather
def local_pieces(engine, c):
    """[(kind, name, start, array-or-scalar, dtype-string)] of everything this rank owns, from the live optimizer."""
    opt = engine.optimizer
    names = {p: n for n, p in engine.module.named_parameters()}
    rank, ws = c["rank"], c["ws"]
    cls = type(opt).__name__
    out, layout = [], []

    def add(kind, name, start, t):
        out.append((kind, name, int(start), t.detach().float().cpu().numpy().copy().reshape(-1), str(t.dtype)))

    if cls == "DeepSpeedZeroOptimizer_Stage3":
        base = opt.optimizer
        for i, group in enumerate(opt.fp16_groups):
            swap = opt._swappable_optimizer_subgroup(i)
            if swap:
                opt._optimizer_states_and_gradient_swap_in(i)
            flat = opt.fp32_partitioned_groups_flat[i]
            st = dict(base.state.get(flat, {}))
            if getattr(opt, "save_muon_momentum_buffer_in_memory", False) and opt.use_muon and opt.sub_groups_using_muon[i]:
                st["momentum_buffer"] = opt.muon_momentum_buffer_partitioned_groups_flat[i]
            off = 0
            for p in group:
                pn = p.partition_numel()
                real = max(0, min(pn, p.ds_numel - rank * pn))
                add("fp32", names[p], rank * pn, flat.narrow(0, off, pn)[:real])
                for k, v in st.items():
                    if torch.is_tensor(v) and v.dim() > 0:
                        add(k, names[p], rank * pn, v.narrow(0, off, pn)[:real])
                    else:
                        out.append((k, names[p], -1, float(v), type(v).__name__))
                off += pn
            layout.append({"group": i, "flat": flat.numel(), "params": [names[p] for p in group],
                           "state": {k: [str(getattr(v, "dtype", type(v).__name__)), list(getattr(v, "shape", []))] for k, v in st.items()}})
            if swap:
                opt._release_swap_buffers(i)
    elif cls == "BF16_Optimizer":
        base = opt.optimizer
        for i, group in enumerate(opt.bf16_groups):
            flat = opt.fp32_groups_flat_partition[i]
            st = base.state.get(flat, {})
            ps = flat.numel()
            g0 = 0
            for p in group:
                a, b = max(g0, rank * ps), min(g0 + p.numel(), (rank + 1) * ps)
                if a < b:
                    add("fp32", names[p], a - g0, flat[a - rank * ps:b - rank * ps])
                    for k, v in st.items():
                        if torch.is_tensor(v) and v.dim() > 0:
                            add(k, names[p], a - g0, v[a - rank * ps:b - rank * ps])
                        else:
                            out.append((k, names[p], -1, float(v), type(v).__name__))
                g0 += p.numel()
            layout.append({"group": i, "flat": ps, "params": [names[p] for p in group],
                           "state": {k: [str(getattr(v, "dtype", type(v).__name__)), list(getattr(v, "shape", []))] for k, v in st.items()}})
    elif cls == "DeepSpeedZeroOptimizer":
        base = opt.optimizer
        for i, group in enumerate(opt.round_robin_bit16_groups):
            flat = opt.single_partition_of_fp32_groups[i]
            st = base.state.get(flat, {})
            ps = int(opt.partition_size[i])
            for p, g0 in zip(group, opt.round_robin_bit16_offsets[i]):
                a, b = max(g0, rank * ps), min(g0 + p.numel(), (rank + 1) * ps)
                if a < b:
                    add("fp32", names[p], a - g0, flat[a - rank * ps:b - rank * ps])
                    for k, v in st.items():
                        if k == "momentum_buffer" and not opt.cpu_offload:
                            continue
                        if torch.is_tensor(v) and v.dim() > 0:
                            add(k, names[p], a - g0, v[a - rank * ps:b - rank * ps])
                        else:
                            out.append((k, names[p], -1, float(v), type(v).__name__))
            mom = st.get("momentum_buffer")
            if mom is not None and not opt.cpu_offload:      # WHOLE matrices that touch this partition, back to back
                off = 0
                for p in opt.params_in_partition[i]:
                    add("momentum_buffer", names[p], 0, mom[off:off + p.numel()])
                    off += p.numel()
            layout.append({"group": i, "flat": ps, "first_offset": int(opt.first_offset[i]),
                           "params_in_partition": [names[p] for p in opt.params_in_partition[i]],
                           "params": [names[p] for p in group], "offsets": list(opt.round_robin_bit16_offsets[i]),
                           "state": {k: [str(getattr(v, "dtype", type(v).__name__)), list(getattr(v, "shape", []))] for k, v in st.items()}})
    else:
        raise RuntimeError(f"no gather rule for {cls}")
    return out, layout


def gather_full(engine, c):
    import torch.distributed as td
    pieces, layout = local_pieces(engine, c)
    alls, lays = [None] * c["ws"], [None] * c["ws"]
    td.all_gather_object(alls, pieces)
    td.all_gather_object(lays, layout)
    shapes = {n: tuple(getattr(p, "ds_shape", p.shape)) for n, p in engine.module.named_parameters()}
    full, cover, notes, dts = {}, {}, [], {}
    for r, pl in enumerate(alls):
        for kind, name, start, a, dt in pl:
            key = f"{kind}/{name}"
            dts.setdefault(kind, set()).add(dt)
            if start < 0:
                if key in full and float(full[key]) != a:
                    notes.append(f"rank {r}: {key} {a} != {float(full[key])}")
                full[key] = np.float64(a)
                continue
            n = int(np.prod(shapes[name])) if shapes[name] else 1
            if key not in full:
                full[key], cover[key] = np.zeros(n, np.float32), np.zeros(n, bool)
            sl = slice(start, start + a.size)
            dup = cover[key][sl]
            if dup.any() and not np.array_equal(full[key][sl][dup], a[dup]):
                notes.append(f"rank {r}: replica of {key} differs (max {np.abs(full[key][sl][dup]-a[dup]).max():.3e})")
            full[key][sl] = a
            cover[key][sl] = True
    for key, cv in cover.items():
        if not cv.all():
            notes.append(f"{key}: {int((~cv).sum())} elements covered by no rank")
        full[key] = full[key].reshape(shapes[key.split('/', 1)[1]])
    return full, lays, notes, {k: sorted(v) for k, v in dts.items()}


def safe_api_check(engine, full, c):
    import torch.distributed as td
    res = {}
    for kind in ("fp32", "momentum_buffer", "exp_avg", "exp_avg_sq"):
        r = {"equal": 0, "differ": 0, "none": 0, "errors": {}}
        for n, p in engine.module.named_parameters():
            if not p.requires_grad or f"{kind}/{n}" not in full:
                continue
            if kind != "fp32" and not hasattr(p, "ds_id"):
                # A rank whose fragment map lacks the key raises BEFORE the all_reduce that the other ranks enter
                # (observed: gloo aborts the process). Ask every rank first; call only if none would raise.
                hm = getattr(p, "_hp_mapping", None)
                mine = hm is not None and (hm.optim_fragment is None or kind not in hm.optim_fragment)
                alls = [None] * c["ws"]
                td.all_gather_object(alls, (bool(mine), hm is None))
                if any(a for a, _ in alls):
                    k = (f"ValueError: {kind} not found in optimizer state fragment (raised on a rank that owns a piece"
                         + ("; OTHER ranks, owning none, would enter all_reduce: collective mismatch)" if any(b for _, b in alls) else ")"))
                    r["errors"][k] = r["errors"].get(k, 0) + 1
                    continue
            try:
                v = safe_get_full_fp32_param(p) if kind == "fp32" else safe_get_full_optimizer_state(p, kind)
                if v is None:
                    r["none"] += 1
                elif np.array_equal(v.detach().float().cpu().numpy().reshape(full[f"{kind}/{n}"].shape), full[f"{kind}/{n}"]):
                    r["equal"] += 1
                else:
                    r["differ"] += 1
            except Exception as e:                            # every rank raises alike, or else the collective hangs
                k = f"{type(e).__name__}: {e}"
                r["errors"][k] = r["errors"].get(k, 0) + 1
                if kind == "momentum_buffer" and len(r["errors"]):
                    break                                     # ranks may disagree: stop before a lone collective
        res[kind] = r
    return res


def diff(a, b):
    """max |a-b| per kind and the list of keys present on one side only"""
    d, miss = {}, []
    for k in sorted(set(a) | set(b)):
        if k not in a or k not in b:
            miss.append(("missing after: " if k not in b else "extra after: ") + k)
            continue
        kind = k.split("/", 1)[0]
        x = float(np.max(np.abs(np.asarray(a[k], np.float64) - np.asarray(b[k], np.float64)))) if np.size(a[k]) else 0.0
        d[kind] = max(d.get(kind, 0.0), x)
    return d, miss


# --------------------------------------------------------------------------------------------- phases (one rank)
def ph_train(c):
    engine, cfg = make_engine(c, SEED)
    losses = train_steps(engine, c, 0, STEPS_BEFORE)
    ck = os.path.join(c["dir"], "ckpt")
    engine.save_checkpoint(ck, tag="step5", client_state={"fixture": c["name"], "rng": [1, 2, 3], "nested": {"lr": 0.5}})
    full, layout, notes, dts = gather_full(engine, c)
    safe = safe_api_check(engine, full, c) if c["offload"] != "nvme" else {"skipped": "nvme"}
    losses += train_steps(engine, c, STEPS_BEFORE, STEPS_AFTER)
    fin, _, notes2, _ = gather_full(engine, c)
    if c["rank"] == 0:
        gold = dict(full)
        gold.update({f"final_{k}": v for k, v in fin.items()})
        for n, b in engine.module.named_buffers():
            gold[f"buffer_after8/{n}"] = b.detach().float().cpu().numpy()
        golden.save(c["dir"], gold)
        json.dump(losses, open(os.path.join(c["dir"], "losses.json"), "w"), indent=1)
        return {"optimizer_class": type(engine.optimizer).__name__, "base_optimizer": type(engine.optimizer.optimizer).__name__,
                "aux_optimizer": type(getattr(engine.optimizer.optimizer, "aux_optimizer", None)).__name__,
                "ds_config": cfg, "layout_per_rank": layout, "gather_notes": notes + notes2, "live_state_dtypes": dts,
                "safe_get_api": safe, "params": {n: {"shape": list(getattr(p, "ds_shape", p.shape)), "requires_grad": p.requires_grad,
                                                     "use_muon": bool(getattr(p, "use_muon", False))}
                                                 for n, p in engine.module.named_parameters(remove_duplicate=False)}}
    return {}


def ph_resume(c):
    src = c.get("src_dir", c["dir"])
    gold = golden.load(src)
    ref = json.load(open(os.path.join(src, "losses.json")))[STEPS_BEFORE:]
    engine, cfg = make_engine(c, SEED + 99)                   # other initial weights: nothing may survive from init
    ck = c.get("ckpt", os.path.join(src, "ckpt"))
    path, client = engine.load_checkpoint(ck, tag=c.get("tag", "step5"), **c.get("load_kw", {}))
    if path is None:
        return {"loaded": False, "why": "load_checkpoint returned None"}
    full, layout, notes, dts = gather_full(engine, c)
    at, miss = diff({k: v for k, v in gold.items() if not k.startswith(("final_", "buffer_after8"))}, full)
    if c.get("resave"):                                       # same step, saved again by the resumed run: dtypes may change
        engine.save_checkpoint(os.path.join(c["dir"], "ckpt_resaved"), tag="step5", client_state={"fixture": c["name"], "resaved": True})
    losses = train_steps(engine, c, STEPS_BEFORE, STEPS_AFTER)
    fin, _, notes2, _ = gather_full(engine, c)
    fd, fmiss = diff({k[6:]: v for k, v in gold.items() if k.startswith("final_")}, fin)
    same_ws = len(ref[0]["per_rank"]) == c["ws"]
    ld = [abs(a["mean"] - b["mean"]) for a, b in zip(ref, losses)]
    exact = all(a["per_rank"] == b["per_rank"] for a, b in zip(ref, losses)) if same_ws else None
    return {"loaded": True, "state_diff_after_load": at, "keys_missing_or_extra_after_load": miss[:8], "n_missing": len(miss),
            "loss_abs_diff_steps6to8": ld, "losses_bitwise_equal": exact, "final_state_diff": fd, "n_final_missing": len(fmiss),
            "gather_notes": (notes + notes2)[:6], "state_dtypes_after_load": dts,
            "global_steps_after": engine.global_steps, "client_keys": sorted(client.keys()) if client else None,
            "losses": losses}


def ph_tofp32(c):
    from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
    gold = golden.load(c["dir"])
    sd = get_fp32_state_dict_from_zero_checkpoint(os.path.join(c["dir"], "ckpt"), tag="step5")
    res = {"n": len(sd), "keys": sorted(sd.keys())}
    bad, absent = {}, []
    for k, v in gold.items():
        if k.startswith("fp32/"):
            n = k[5:]
            if n not in sd:
                absent.append(n)
            else:
                x = float(np.abs(sd[n].detach().float().numpy() - v).max())
                if x:
                    bad[n] = x
    m = build_model(c["variant"], SEED)
    res["expected_keys_absent"] = sorted(set(m.state_dict().keys()) - set(sd.keys()))
    res["master_missing"], res["master_differs"] = absent, bad
    res["dtypes"] = sorted({str(v.dtype) for v in sd.values()})
    res["optimizer_state_exported"] = False
    return res


def ph_universal(c):
    from deepspeed.checkpoint.ds_to_universal import main as u_main
    out = os.path.join(LOGDIR, "universal", c["name"], "step5_universal")
    shutil.rmtree(os.path.dirname(out), ignore_errors=True)
    res = {}
    for label, inj in (("plain", False), ("inject_missing_state", True)):
        ns = argparse.Namespace(input_folder=os.path.join(c["dir"], "ckpt", "step5"), output_folder=out, num_extract_workers=1,
                                num_merge_workers=1, keep_temp_folder=False, strict=True, inject_missing_state=inj)
        try:
            u_main(ns)
            files = sorted(os.path.relpath(os.path.join(r, f), out) for r, _, fs in os.walk(out) for f in fs)
            res[label] = {"ok": True, "n_files": len(files), "momentum_files": [f for f in files if "momentum" in f], "sample": files[:6]}
        except BaseException as e:
            tb = traceback.extract_tb(e.__traceback__)[-1]
            res[label] = {"ok": False, "error": f"{type(e).__name__}: {e}"[:600], "at": f"{os.path.basename(tb.filename)}:{tb.lineno} in {tb.name}"}
        shutil.rmtree(os.path.dirname(out), ignore_errors=True)
    return res


PH = {"train": ph_train, "resume": ph_resume, "tofp32": ph_tofp32, "universal": ph_universal}


def child(phase, c, log, resfile):
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(fd, 1); os.dup2(fd, 2)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    try:
        if phase in ("train", "resume"):
            os.environ.update(RANK=str(c["rank"]), LOCAL_RANK=str(c["rank"]), WORLD_SIZE=str(c["ws"]), LOCAL_SIZE=str(c["ws"]),
                              LOCAL_WORLD_SIZE=str(c["ws"]), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(c["port"]))
            from datetime import timedelta
            deepspeed.init_distributed(dist_backend="gloo", timeout=timedelta(seconds=60))
        r = {"ok": True, **PH[phase](c)}
    except BaseException as e:
        tb = traceback.extract_tb(e.__traceback__)
        where = [f"{os.path.basename(t.filename)}:{t.lineno} in {t.name}" for t in tb][-4:]
        traceback.print_exc()
        r = {"ok": False, "error": f"{type(e).__name__}: {e}"[:900], "at": where}
    json.dump(r, open(resfile, "w"), default=str)
    sys.stdout.flush(); sys.stderr.flush()
    os._exit(0)


def run(phase, c, tag=None, timeout=240):
    s = socket.socket(); s.bind(("127.0.0.1", 0)); port = s.getsockname()[1]; s.close()
    n = c["ws"] if phase in ("train", "resume") else 1
    ctx, procs = mp.get_context("fork"), []
    key = f"{c['name']}.{tag or phase}"
    os.makedirs(LOGDIR, exist_ok=True)
    for r in range(n):
        rf = f"{LOGDIR}/{key}.r{r}.json"
        if os.path.exists(rf):
            os.unlink(rf)
        p = ctx.Process(target=child, args=(phase, {**c, "rank": r, "port": port}, f"{LOGDIR}/{key}.r{r}.log", rf))
        p.start(); procs.append((p, rf))
    end, res = time.time() + timeout, []
    for p, rf in procs:
        p.join(max(0.1, end - time.time()))
        if p.is_alive():
            os.kill(p.pid, signal.SIGKILL); p.join()
            res.append({"ok": False, "error": f"timeout after {timeout}s (hang)"})
        else:
            res.append(json.load(open(rf)) if os.path.exists(rf) else {"ok": False, "error": f"rank died, exit {p.exitcode}"})
    out = res[0]
    bad = [(i, x.get("error"), x.get("at")) for i, x in enumerate(res) if not x["ok"]]
    if bad:
        pri = [b for b in bad if "onnection" not in (b[1] or "") and "timeout" not in (b[1] or "")] or bad
        out = {**out, "ok": False, "error": pri[0][1], "at": pri[0][2], "failing_ranks": [b[0] for b in bad]}
    return out


def cells():
    L = []
    def add(stage, ws, precision="bf16", offload="none", variant="base", essential=False):
        L.append(dict(stage=stage, ws=ws, precision=precision, offload=offload, variant=variant,
                      name=f"s{stage}-ws{ws}-{precision}-{offload}-{variant}"))
    for st in (1, 2, 3):
        for ws in (1, 2, 4):
            add(st, ws)
    for st in (1, 2, 3):
        for ws in (2, 1, 4):
            add(st, ws, offload="cpu")
    for v in ("tied", "frozen", "buffer"):
        for st in (1, 2, 3):
            add(st, 2, variant=v)
    for st in (1, 2, 3):
        add(st, 2, variant="gacc32")
    add(1, 1, variant="gacc32"); add(1, 4, variant="gacc32")
    add(3, 2, variant="subgroup"); add(3, 4, variant="subgroup"); add(3, 2, variant="inmem"); add(3, 2, variant="persist")
    add(2, 2, variant="rr"); add(1, 4, variant="rr")
    for st in (1, 2, 3):
        add(st, 2, variant="groups+sched")
    add(2, 2, variant="gas2"); add(1, 2, variant="gas2"); add(3, 2, variant="gas2")
    for st in (1, 2, 3):
        add(st, 2, precision="fp32")
    for st in (1, 2, 3):
        add(st, 2, precision="fp32", offload="cpu")
    add(3, 2, variant="comm32")
    for st in (1, 2, 3):
        add(st, 2, precision="fp16")
    add(1, 2, variant="elastic"); add(2, 2, variant="elastic")
    add(3, 2, offload="cpuparam"); add(3, 2, offload="nvme"); add(3, 1, offload="nvme")
    add(3, 2, offload="cpu", variant="inmem"); add(3, 2, offload="cpu", variant="subgroup")
    add(2, 2, offload="cpu", variant="tied+frozen")
    for st in (1, 2, 3):
        add(st, 4, variant="oddmid"); add(st, 4, offload="cpu", variant="oddmid")
    add(1, 4, variant="oddmid+gacc32")
    for st in (1, 2):
        add(st, 2, variant="oddmid+palign"); add(st, 4, variant="oddmid+palign")
    add(2, 2, variant="oddmid"); add(2, 4, variant="oddmid+rr")
    add(2, 4, variant="oddmid+palign+rr"); add(2, 2, offload="cpu", variant="oddmid+palign")
    for v in ("swapall", "swapbig", "swapall+inmem"):
        add(3, 2, offload="nvme", variant=v)
    add(3, 1, offload="nvme", variant="swapall")
    for c in L:
        if c["name"] in ("s1-ws2-bf16-none-base", "s2-ws2-bf16-none-base", "s3-ws2-bf16-none-base", "s1-ws2-bf16-none-gacc32"):
            c["resave"] = True
    return L


def cross(out):
    """Loads checkpoint SRC with DeepSpeed configured as DST; what does DeepSpeed say, and are the states right?"""
    N = lambda st, ws, prec="bf16", off="none", var="base": dict(stage=st, ws=ws, precision=prec, offload=off, variant=var,
                                                                 name=f"s{st}-ws{ws}-{prec}-{off}-{var}")
    J = []
    def add(what, src, dst, **kw):
        J.append((what, src, {**dst, **kw}))
    for a_, b in ((1, 2), (2, 1), (1, 3), (2, 3), (3, 1), (3, 2)):
        add("other stage", N(a_, 2), N(b, 2))
    for st in (1, 2, 3):
        for ws in (1, 2, 4):
            add("offload on", N(st, ws), N(st, ws, off="cpu"))
            add("offload off", N(st, ws, off="cpu"), N(st, ws))
        for x, y in ((2, 1), (2, 4), (4, 2), (1, 2)):
            add("other world size", N(st, x), N(st, y))
        add("other world size, load_optimizer_states=False", N(st, 2), N(st, 4), load_kw={"load_optimizer_states": False})
        add("other world size, load_module_only=True", N(st, 2), N(st, 4), load_kw={"load_module_only": True})
        add("universal flag on a plain checkpoint", N(st, 2), N(st, 2), universal=True)
    add("elastic checkpoint, other world size", N(1, 2, var="elastic"), N(1, 4, var="elastic"))
    for ws in (1, 2, 4):
        add("BF16_Optimizer -> ZeRO-1", N(1, ws, var="gacc32"), N(1, ws))
        add("ZeRO-1 -> BF16_Optimizer", N(1, ws), N(1, ws, var="gacc32"))
    add("ZeRO-2 bf16 -> ZeRO-2 fp32", N(2, 2), N(2, 2, prec="fp32"))
    add("ZeRO-2 fp32 -> ZeRO-2 bf16", N(2, 2, prec="fp32"), N(2, 2))
    add("round_robin_gradients off", N(2, 2, var="rr"), N(2, 2))
    add("round_robin_gradients on", N(2, 2), N(2, 2, var="rr"))
    add("round_robin_gradients off", N(1, 4, var="rr"), N(1, 4))
    add("parameter_alignment off", N(2, 2, var="oddmid+palign"), N(2, 2, var="oddmid"))
    add("parameter_alignment on", N(2, 2, var="oddmid"), N(2, 2, var="oddmid+palign"))
    for st in (1, 2, 3):
        add("offload on", N(st, 4, var="oddmid"), N(st, 4, off="cpu", var="oddmid"))
        add("offload off", N(st, 4, off="cpu", var="oddmid"), N(st, 4, var="oddmid"))
    add("BF16_Optimizer -> ZeRO-1", N(1, 4, var="oddmid+gacc32"), N(1, 4, var="oddmid"))
    add("offload on", N(2, 2, var="tied+frozen"), N(2, 2, off="cpu", var="tied+frozen"))
    add("other sub_group_size", N(3, 2, var="subgroup"), N(3, 2))
    add("other sub_group_size", N(3, 2), N(3, 2, var="subgroup"))
    add("save_muon_momentum_buffer_in_memory on", N(3, 2), N(3, 2, var="inmem"))
    add("save_muon_momentum_buffer_in_memory off", N(3, 2, var="inmem"), N(3, 2))
    add("other param groups", N(2, 2, var="groups+sched"), N(2, 2))
    add("other param groups", N(3, 2), N(3, 2, var="groups+sched"))
    add("frozen param thawed", N(2, 2, var="frozen"), N(2, 2))
    add("frozen param thawed", N(3, 2, var="frozen"), N(3, 2))
    res = []
    for k, (what, src, dst) in enumerate(J):
        sd = os.path.join(out, src["name"])
        if not os.path.exists(os.path.join(sd, "golden.h5")):
            continue
        c = {**dst, "src_dir": sd, "dir": sd, "nvme_path": "./nvme", "name": "x"}
        r = run("resume", c, tag=f"cross{k:02d}", timeout=90)
        st = r.get("state_diff_after_load") or {}
        if not r.get("ok"):
            verdict = "refused/crashed"
        elif not r.get("loaded"):
            verdict = "not loaded, None returned"
        elif r["n_missing"] or any(v > 0 for v in st.values()):
            verdict = "SILENTLY WRONG STATE"
        elif (r.get("final_state_diff") or {}).get("momentum_buffer", 0) > 0.02:
            verdict = "right after load, then MOMENTUM DROPPED at the first step"
        else:
            verdict = "state right"
        row = {"what": what, "src": src["name"], "dst": dst["name"], "load_kw": dst.get("load_kw"), "verdict": verdict,
               "error": r.get("error"), "at": r.get("at"), "state_diff_after_load": st, "n_missing": r.get("n_missing"),
               "missing": r.get("keys_missing_or_extra_after_load"), "loss_abs_diff_steps6to8": r.get("loss_abs_diff_steps6to8"),
               "final_state_diff": r.get("final_state_diff"), "state_dtypes": r.get("state_dtypes_after_load"), "gather_notes": r.get("gather_notes")}
        res.append(row)
        print(what, "|", row["src"], "->", row["dst"], "|", verdict, "|", row["error"] or st, "|", r.get("loss_abs_diff_steps6to8"), flush=True)
        json.dump(res, open(os.path.join(out, "CROSS.json"), "w"), indent=1, default=str)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", default="./out/deepspeed")
    ap.add_argument("--only", default=".*")
    ap.add_argument("--phases", default="train,resume,tofp32,universal")
    ap.add_argument("--force", action="store_true")
    ap.add_argument("--nvme", action="store_true", help="also JIT-build libaio's op (minutes)")
    ap.add_argument("--cross", action="store_true", help="cross-load matrix over the checkpoints made before")
    a = ap.parse_args()
    for n in ("CPUAdamBuilder", "FusedAdamBuilder") + (("AsyncIOBuilder",) if "nvme" in a.only or a.nvme else ()):
        try:
            get_accelerator().create_op_builder(n).load(verbose=False)
        except Exception as e:
            print("op", n, e)
    if a.cross:
        return cross(a.out)
    for c in cells():
        if not re.search(a.only, c["name"]) or (c["offload"] == "nvme" and not a.nvme):
            continue
        c["dir"] = os.path.join(a.out, c["name"])
        c["nvme_path"] = os.path.join(LOGDIR, "nvme", c["name"])
        meta_f = os.path.join(c["dir"], "meta.json")
        if os.path.exists(meta_f) and not a.force:
            meta = json.load(open(meta_f))
        else:
            meta = {}
        t0 = time.time()
        for ph in a.phases.split(","):
            if ph in meta and not a.force:
                continue
            if ph == "train":
                shutil.rmtree(c["dir"], ignore_errors=True); os.makedirs(c["dir"])
                shutil.rmtree(c["nvme_path"], ignore_errors=True); os.makedirs(c["nvme_path"])
                meta = {k: c[k] for k in ("stage", "ws", "precision", "offload", "variant", "name")}
                meta["versions"] = {"torch": torch.__version__, "deepspeed": deepspeed.__version__, "python": sys.version.split()[0], "numpy": np.__version__}
            elif not meta.get("train", {}).get("ok"):
                break
            if ph == "resume" and c["offload"] == "nvme":
                shutil.rmtree(c["nvme_path"], ignore_errors=True); os.makedirs(c["nvme_path"])
            meta[ph] = run(ph, c)
            for root, _, fs in os.walk(c["dir"]):
                for f in fs:
                    if f in ("zero_to_fp32.py", "zero_to_torch.py"):
                        os.unlink(os.path.join(root, f))      # DeepSpeed's own scripts: not ours to redistribute
            json.dump(meta, open(meta_f, "w"), indent=1, default=str)
        tr, rs = meta.get("train", {}), meta.get("resume", {})
        print(f"{c['name']:36s} {time.time()-t0:6.1f}s train={'ok' if tr.get('ok') else tr.get('error')} "
              f"cls={tr.get('optimizer_class')} resume={'ok' if rs.get('ok') else rs.get('error')} bitwise={rs.get('losses_bitwise_equal')} "
              f"load={rs.get('state_diff_after_load')} tofp32={meta.get('tofp32', {}).get('ok')}/{len(meta.get('tofp32', {}).get('master_differs', []) or [])}bad "
              f"univ={meta.get('universal', {}).get('plain', {}).get('error', meta.get('universal', {}).get('plain', {}).get('ok'))}", flush=True)


if __name__ == "__main__":
    main()
