#!/usr/bin/env python3
"""Second batch of REAL DeepSpeed checkpoints (same layout as gen_deepspeed.py, which it imports and extends).

    DS_ACCELERATOR=cpu python gen/gen_deepspeed2.py --out out/deepspeed [--only REGEX] [--cross BASE_FIXTURES]

New tokens of `variant`: zinit (model built under deepspeed.zero.Init), exclfrozen (save_checkpoint(exclude_frozen_parameters=True)),
adamonly / adamonly+dsadam (no Muon), muononly (other model: only matrices), clientstate, ws11, twotags, scaledoubled / scalemid /
overflow / overflow2 (fp16), vNNNN (older DeepSpeed, run by an interpreter that imports it).
"""
import os, sys
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import gen_deepspeed as g
import golden
import argparse, hashlib, json, re, shutil, time
import numpy as np, torch, torch.nn as nn, torch.nn.functional as F, deepspeed

g.LOGDIR = "./scratch"
tok = lambda c: c["variant"].split("+")
_make_config, _build_model = g.make_config, g.build_model


class MuonOnly(nn.Module):
    """Every parameter is a matrix and none is called embed / lm_head; inputs come from a fixed, non-persistent table."""
    def __init__(self, variant):
        super().__init__()
        gen = torch.Generator().manual_seed(5)
        self.register_buffer("table", torch.randn(g.VOCAB, g.D, generator=gen), persistent=False)
        self.attn = g.Attn()
        self.fc1 = nn.Linear(g.D, g.FF, bias=False)
        self.fc2 = nn.Linear(g.FF, g.D, bias=False)
        self.odd = nn.Linear(13, 7, bias=False)
        self.readout = nn.Linear(g.D, g.VOCAB, bias=False)

    def forward(self, t, tgt):
        x = self.table[t].to(self.fc1.weight.dtype)
        x = x + self.attn(x)
        x = x + self.fc2(F.gelu(self.fc1(x)))
        x = torch.cat([x[..., :7] + self.odd(x[..., 7:20]), x[..., 7:]], dim=-1)
        return F.cross_entropy(self.readout(x).float().view(-1, g.VOCAB), tgt.reshape(-1))


def values(shapes, seed):
    gen, out = torch.Generator().manual_seed(seed), {}
    for n, s in shapes:
        z = torch.randn(s, generator=gen)
        if "ln" in n or "norm" in n:
            out[n] = (1.0 if n.endswith("weight") else 0.0) + 0.05 * z
        else:
            out[n] = 0.3 * z
    return out


def build_model2(c, seed, cfg):
    v = c["variant"]
    if "muononly" in tok(c):
        m = MuonOnly(v)
        for n, p in values([(n, p.shape) for n, p in m.named_parameters()], seed).items():
            m.get_parameter(n).data.copy_(p)
        return m
    if "zinit" not in tok(c):
        return _build_model(v, seed)
    with deepspeed.zero.Init(config_dict_or_path=cfg):
        m = g.Tiny(v)
    P = list(m.named_parameters())
    val = values([(n, tuple(p.ds_shape)) for n, p in P], seed)
    for n, p in P:
        with deepspeed.zero.GatheredParameters([p], modifier_rank=0):
            if c["rank"] == 0:
                with torch.no_grad():
                    p.copy_(val[n])
    return m


def make_config2(c):
    cfg = _make_config(c)
    T = tok(c)
    if "adamonly" in T:
        cfg["optimizer"] = {"type": "AdamW", "params": {"lr": 0.003, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.01, "torch_adam": "dsadam" not in T}}
        if "dsadam" in T:
            del cfg["optimizer"]["params"]["torch_adam"]
        if c["offload"] != "none":
            cfg["zero_force_ds_cpu_optimizer"] = False
    if "clientstate" in T:
        cfg["scheduler"] = {"type": "WarmupLR", "params": {"warmup_min_lr": 0.0, "warmup_max_lr": 0.02, "warmup_num_steps": 6, "warmup_type": "linear"}}
    if re.match(r"v\d+$", T[0]) and T[0] < "v0190":
        cfg["zero_allow_untested_optimizer"] = True; cfg["zero_force_ds_cpu_optimizer"] = False
    if re.match(r"v\d+$", T[0]) and c["offload"] != "none" and T[0] >= "v0190":
        cfg["zero_optimization"]["reduce_scatter"] = False    # 0.19.6 refuses Muon + reduce_scatter + offload
    if c["precision"] == "fp16":
        w = {"scaledoubled": 4, "scalemid": 3}
        for k in w:
            if k in T:
                cfg["fp16"] = {"enabled": True, "initial_scale_power": 8, "loss_scale_window": w[k]}
        if "overflow" in T or "overflow2" in T:
            cfg["fp16"] = {"enabled": True, "initial_scale_power": 8, "loss_scale_window": 1000, "hysteresis": 1}
    return cfg


def make_engine2(c, seed):
    if c["precision"] == "fp16":
        type(g.get_accelerator()).is_fp16_supported = lambda self: True
    if c["ws"] == 11:
        g.GB = 11
    cfg = g.make_config(c)
    model = build_model2(c, seed, cfg)
    if os.environ.get("DS_FILTER_FROZEN") == "1":
        ps = [p for p in model.parameters() if p.requires_grad]
    else:
        ps = [p for p in model.parameters()]
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=ps, config=cfg)
    return engine, cfg


def client_state(c):
    cs = {"fixture": c["name"]}
    if "clientstate" in tok(c):
        torch.manual_seed(4321)
        torch.rand(3)
        cs.update({"rng": {"torch": torch.get_rng_state(), "python_like": [3, [1, 2, 3], None]},
                   "epoch": 7, "best": float("inf"), "numpy_scalar": np.float64(0.125), "numpy_int": np.int64(-9),
                   "tensor": torch.arange(6, dtype=torch.float64).view(2, 3) / 7, "bf16": torch.ones(5, dtype=torch.bfloat16), "empty": torch.zeros(0, 4),
                   "nested": {"lr": 0.5, 3: ("a", b"\x00\xff", {"deep": [True, None, -1.5, 2 ** 70]}), "unicode": "\u00e9\u4e2d\U0001f600"},
                   "set": {1, 2}, "slice_view": torch.arange(10)[2:8:2]})
    return cs


def describe(v):
    if torch.is_tensor(v):
        b = v.contiguous()
        raw = b.view(torch.uint8).numpy().tobytes() if b.numel() else b""
        return {"__tensor__": str(v.dtype), "shape": list(v.shape), "sha256": hashlib.sha256(raw).hexdigest(), **({"values": v.double().flatten().tolist()} if v.numel() <= 16 else {})}
    if isinstance(v, np.generic):
        return {"__numpy__": str(v.dtype), "value": v.item()}
    if isinstance(v, dict):
        return {"__dict__": [[describe(k), describe(x)] for k, x in v.items()]}
    if isinstance(v, (tuple, list, set)):
        return {f"__{type(v).__name__}__": [describe(x) for x in (sorted(v) if isinstance(v, set) else v)]}
    if isinstance(v, bytes):
        return {"__bytes__": v.hex()}
    if isinstance(v, float) and not np.isfinite(v):
        return {"__float__": repr(v)}
    return v


def steps_with_capture(engine, c, first, n, rec):
    """fp16: local gradients of every step (as autograd made them: times the loss scale); optional real overflow at one step"""
    import torch.distributed as td
    T = tok(c); bad = 4 if "overflow" in T else 2 if "overflow2" in T else None
    out, local = [], {}
    hs = [p.register_hook((lambda nm: lambda x: local.__setitem__(nm, x.detach().clone()))(nm)) for nm, p in engine.module.named_parameters() if p.requires_grad]
    for s in range(first, first + n):
        a, b = g.batch(s); per = g.GB // c["ws"]; a, b = (z[c["rank"] * per:(c["rank"] + 1) * per] for z in (a, b))
        scale = float(engine.optimizer.loss_scale)
        loss = engine(a, b)
        engine.backward(loss * 1e6 if s == bad else loss)
        engine.step()
        L = [None] * c["ws"]
        td.all_gather_object(L, {k: v.float().numpy() for k, v in local.items()}); local.clear()
        ls = [None] * c["ws"]
        td.all_gather_object(ls, loss.detach().double().item())
        ov = bool(engine.optimizer.overflow)
        rec.append({"step": s, "scale": scale, "overflow": ov, "L": L})
        out.append({"step": s, "per_rank": ls, "mean": float(np.mean(ls)), "lr": [x["lr"] for x in engine.optimizer.param_groups], "overflow": ov,
                    "loss_scale_used": scale, "loss_scale": float(engine.optimizer.loss_scale), **({"loss_multiplied_by": 1e6} if s == bad else {})})
    for h in hs: h.remove()
    return out


def units(rec, full, c):
    """Which running average of which gradients is the stored momentum?"""
    b, H = 0.95, {}
    names = [k[16:] for k in full if k.startswith("momentum_buffer/")]
    def run(gr, skip=True, rescale=False):
        M = {n: np.zeros(full["momentum_buffer/" + n].shape) for n in names}; prev = None
        for r in rec:
            if r["overflow"] and skip: continue
            for n in names:
                x = sum(L[n].astype(np.float64) for L in r["L"]) / len(r["L"]) * gr(r)
                if rescale and prev is not None: M[n] = M[n] * (r["scale"] / prev)
                M[n] = M[n] + (1 - b) * (x - M[n])
            prev = r["scale"]
        return M
    used = [r for r in rec if not r["overflow"]]
    now = c["cur_scale"]
    H["true gradients (unit 1)"] = run(lambda r: 1 / r["scale"])
    H["gradients as seen, each with the loss scale of its own step (units mixed, never rescaled)"] = run(lambda r: 1.0)
    base = H["true gradients (unit 1)"]
    H["true momentum x loss scale of the last applied step"] = {n: v * used[-1]["scale"] for n, v in base.items()}
    H["true momentum x loss scale stored in the file (cur_scale)"] = {n: v * now for n, v in base.items()}
    H["true momentum x loss scale of the first step"] = {n: v * rec[0]["scale"] for n, v in base.items()}
    if any(r["overflow"] for r in rec):
        H["as seen, the overflowed step also blended in"] = run(lambda r: 1.0, skip=False)
    res = {}
    for k, M in H.items():
        num = den = 0.0
        for n in names:
            x = full["momentum_buffer/" + n].astype(np.float64)
            with np.errstate(all="ignore"): num += float(((x - M[n]) ** 2).sum()); den += float((x ** 2).sum())
        res[k] = (num / den) ** 0.5 if den and np.isfinite(num) else None
    best = min((v, k) for k, v in res.items() if v is not None) if any(v is not None for v in res.values()) else None
    nonfinite = int(sum((~np.isfinite(full["momentum_buffer/" + n])).sum() for n in names))
    per_step = [{"step": r["step"], "scale": r["scale"], "overflow": r["overflow"]} for r in rec]
    return {"steps": per_step, "cur_scale_in_file": now, "relative_error_of_each_hypothesis": res, "best": best, "nonfinite_momentum_elements": nonfinite,
            "stored_dtype": c["dts"], "ratio_stored_to_true": {n: float((full["momentum_buffer/" + n].astype(np.float64) * base[n]).sum() / (base[n] ** 2).sum()) for n in names}}


def ph_probe(c):
    """older DeepSpeed, stage 1/2 without offload: what is in the replicas of a matrix that straddles two partitions?"""
    torch.manual_seed(0)
    engine, cfg = make_engine2(c, g.SEED)
    rec = []
    steps_with_capture(engine, c, 0, g.STEPS_BEFORE, rec)
    allp = [None] * c["ws"]
    torch.distributed.all_gather_object(allp, g.local_pieces(engine, c)[0])
    if c["rank"]: return {}
    def mom(f, n):
        M = 0.0
        for r in rec: M = M + 0.05 * (f([L[n].astype(np.float64) for L in r["L"]]) - M)
        return M.reshape(-1)
    own = {}
    for r, pl in enumerate(allp):
        for kind, n, st, a, _ in pl:
            if kind == "fp32": own[r, n] = (st, st + a.size)
    out = {}
    for r, pl in enumerate(allp):
        for kind, n, st, a, _ in pl:
            if kind != "momentum_buffer": continue
            lo, hi = own.get((r, n), (0, 0)); inside = np.zeros(a.size, bool); inside[lo:hi] = True
            H = {"average of all ranks": mom(lambda L: sum(L) / len(L), n), "own local gradient": mom(lambda L: L[r], n), "own local gradient / ws": mom(lambda L: L[r] / len(L), n), "sum": mom(lambda L: sum(L), n)}
            rel = lambda m, H_: float(np.abs(a[m] - H_[m]).max() / np.abs(H_[m]).max()) if m.any() else None
            o = {k: [rel(inside, h), rel(~inside, h)] for k, h in H.items()}
            if not inside.all() or r == 0 and n.startswith("odd"): out[f"rank {r} {n} own [{lo},{hi}) of {a.size}"] = o
            else: out.setdefault("wholly owned matrices, worst error to the average of all ranks", 0.0); out["wholly owned matrices, worst error to the average of all ranks"] = max(out["wholly owned matrices, worst error to the average of all ranks"], o["average of all ranks"][0])
    return {"probe": out}


def ph_train2(c):
    T = tok(c)
    torch.manual_seed(0)
    engine, cfg = make_engine2(c, g.SEED)
    extra, rec = {}, []
    capt = c["precision"] == "fp16"
    step = (lambda a, b: steps_with_capture(engine, c, a, b, rec)) if capt else (lambda a, b: g.train_steps(engine, c, a, b))
    losses = step(0, g.STEPS_BEFORE)
    ck = os.path.join(c["dir"], "ckpt")
    kw = {"exclude_frozen_parameters": True} if "exclfrozen" in T else {}
    cs = client_state(c)
    engine.save_checkpoint(ck, tag="step5", client_state=dict(cs), **kw)
    if "clientstate" in T:
        extra["client_state"] = describe(cs)
        extra["lr_scheduler"] = describe(engine.lr_scheduler.state_dict())
    full, layout, notes, dts = g.gather_full(engine, c)
    allp = [None] * c["ws"]
    torch.distributed.all_gather_object(allp, g.local_pieces(engine, c)[0])
    if capt:
        extra["momentum_unit"] = units(rec, full, {**c, "cur_scale": float(engine.optimizer.loss_scale), "dts": dts.get("momentum_buffer")})
    safe = {}
    if c.get("safe", True) and not capt:
        safe = g.safe_api_check(engine, full, c)
    frozen = {}
    for n, p in engine.module.named_parameters():
        if not p.requires_grad:
            with deepspeed.zero.GatheredParameters([p], enabled=hasattr(p, "ds_id")):
                frozen[n] = describe(p.detach().cpu().clone())
    losses += step(g.STEPS_BEFORE, g.STEPS_AFTER)
    if "twotags" in T:
        engine.save_checkpoint(ck, tag="step8", client_state={"fixture": c["name"], "second": True})
        extra["tags"] = {"step5": "golden.h5 <kind>/<param>", "step8": "golden.h5 final_<kind>/<param>", "latest": "step8"}
    fin, _, notes2, _ = g.gather_full(engine, c)
    if c["rank"] == 0:
        gold = dict(full)
        gold.update({f"final_{k}": v for k, v in fin.items()})
        for n, b in engine.module.named_buffers():
            gold[f"buffer_after8/{n}"] = b.detach().float().cpu().numpy()
        golden.save(c["dir"], gold)
        if any("replica of momentum_buffer" in x for x in notes):
            reps = {f"rank_{r}/{nm}": a.reshape(full[f"{kind}/{nm}"].shape) for r, pl in enumerate(allp) for kind, nm, st, a, _ in pl
                    if kind == "momentum_buffer" and any(nm + " differs" in x for x in notes)}
            os.makedirs(os.path.join(c["dir"], "replicas"), exist_ok=True); golden.save(os.path.join(c["dir"], "replicas"), reps)
        json.dump(losses, open(os.path.join(c["dir"], "losses.json"), "w"), indent=1)
        return {"optimizer_class": type(engine.optimizer).__name__, "base_optimizer": type(engine.optimizer.optimizer).__name__,
                "aux_optimizer": type(getattr(engine.optimizer.optimizer, "aux_optimizer", None)).__name__,
                "ds_config": cfg, "layout_per_rank": layout, "gather_notes": notes + notes2, "live_state_dtypes": dts, "safe_get_api": safe,
                "frozen_params": frozen, **extra,
                "params": {n: {"shape": list(getattr(p, "ds_shape", p.shape)), "requires_grad": p.requires_grad, "use_muon": bool(getattr(p, "use_muon", False))}
                           for n, p in engine.module.named_parameters(remove_duplicate=False)}}
    return {}


_ph_resume = g.ph_resume


def ph_resume2(c):
    T = tok(c)
    if "exclfrozen" in T:
        c = {**c, "load_kw": {"load_module_strict": False}}
    if "twotags" in T:                                       # no tag named: `latest` decides (step8)
        engine, _ = make_engine2(c, g.SEED + 99)
        path, _ = engine.load_checkpoint(os.path.join(c["dir"], "ckpt"))
        full, _, notes, _ = g.gather_full(engine, c)
        fd, miss = g.diff({k[6:]: v for k, v in golden.load(c["dir"]).items() if k.startswith("final_")}, full)
        steps = engine.global_steps
        r = _ph_resume(c)
        r["latest"] = {"loaded": os.path.basename(os.path.dirname(path)), "diff_to_final": fd, "missing": miss[:3], "global_steps": steps}
        return r
    r = _ph_resume(c)
    if "clientstate" in T:
        pass
    return r


if tuple(int(x) for x in deepspeed.__version__.split(".")[:3]) < (0, 19, 7):
    import torch.distributed as _td                           # shims to run OLD DeepSpeed on torch 2.15 + gloo; numerically neutral
    _into, _ag = _td.all_gather_into_tensor, _td.all_gather

    def _no_grad_into(*a, **k):                               # torch 2.15 splits the output under autograd: "is a view and is being modified inplace"
        with torch.no_grad():
            return _into(*a, **k)

    def _uneven(tensor_list, tensor, group=None, async_op=False):          # gloo refuses unequal shapes; do what ProcessGroupNCCL does: one broadcast a rank
        out, t = tensor_list, tensor
        if all(o.shape == out[0].shape for o in out):
            return _ag(out, t, group=group, async_op=async_op)
        r = _td.get_rank(group)
        with torch.no_grad():
            for i, o in enumerate(out):
                if i == r: o.copy_(t)
                _td.broadcast(o, src=_td.get_global_rank(group, i) if group is not None else i, group=group)

        class W:
            def wait(self, *a): return True
            def is_completed(self): return True
        return W() if async_op else None

    _td.all_gather_into_tensor, _td.all_gather = _no_grad_into, _uneven

_local_pieces = g.local_pieces


def local_pieces2(engine, c):
    opt = engine.optimizer
    if type(opt).__name__ == "DeepSpeedZeroOptimizer" and not hasattr(opt, "round_robin_bit16_offsets"):   # older DeepSpeed: no alignment gaps
        opt.round_robin_bit16_offsets = [[sum(q.numel() for q in grp[:k]) for k in range(len(grp))] for grp in opt.round_robin_bit16_groups]
    if type(opt).__name__ == "DeepSpeedZeroOptimizer_Stage3" and not hasattr(opt, "sub_groups_using_muon"):
        opt.sub_groups_using_muon = []
    return _local_pieces(engine, c)


g.local_pieces = local_pieces2
g.make_config, g.make_engine = make_config2, make_engine2
g.PH.update(train=ph_train2, resume=ph_resume2, probe=ph_probe)
_run = g.run


def cells(ver):
    L = []
    def add(stage, ws, precision="bf16", offload="none", variant="base", **kw):
        L.append(dict(stage=stage, ws=ws, precision=precision, offload=offload, variant=variant, name=f"s{stage}-ws{ws}-{precision}-{offload}-{variant}", **kw))
    if ver:
        for off in ("none", "cpu"):
            for st in (1, 2, 3):
                add(st, 2, offload=off, variant=ver)
        return L
    for ws in (2, 4):
        for off in ("none", "cpu"):
            add(3, ws, offload=off, variant="zinit")
    add(3, 2, variant="zinit+subgroup"); add(3, 2, variant="zinit+tied"); add(3, 2, variant="zinit+frozen"); add(3, 4, offload="cpu", variant="zinit+subgroup")
    for st in (1, 2, 3):
        add(st, 2, variant="exclfrozen")
    add(2, 2, variant="clientstate"); add(3, 2, variant="clientstate")
    add(2, 11, variant="ws11"); add(3, 11, variant="ws11"); add(2, 11, offload="cpu", variant="ws11"); add(1, 11, variant="ws11")
    add(2, 2, variant="twotags")
    for st in (2, 3):
        add(st, 2, variant="adamonly"); add(st, 2, variant="adamonly+dsadam"); add(st, 2, variant="muononly")
    for v in ("scaledoubled", "scalemid", "overflow", "overflow2"):
        for st in (2, 3):
            for off in ("none", "cpu"):
                add(st, 2, precision="fp16", offload=off, variant=v)
    return L


def cross(base, out):
    """zero.Init (module order) <-> no zero.Init (sorted), both directions, real DeepSpeed loads"""
    def N(ws, off, v): return dict(stage=3, ws=ws, precision="bf16", offload=off, variant=v, name=f"s3-ws{ws}-bf16-{off}-{v}")
    J = []
    for ws in (2, 4):
        for off in ("none", "cpu"):
            J += [("sorted -> module order", base, N(ws, off, "base"), N(ws, off, "zinit")), ("module order -> sorted", out, N(ws, off, "zinit"), N(ws, off, "base"))]
    for v in ("tied", "frozen", "subgroup"):
        J += [("sorted -> module order", base, N(2, "none", v), N(2, "none", "zinit+" + v)), ("module order -> sorted", out, N(2, "none", "zinit+" + v), N(2, "none", v))]
    J += [("same order (control)", out, N(2, "none", "zinit"), N(2, "cpu", "zinit"))]
    res = []
    for k, (what, root, src, dst) in enumerate(J):
        sd = os.path.join(root, src["name"])
        r = g.run("resume", {**dst, "src_dir": sd, "dir": sd, "name": "x"}, tag=f"cross{k:02d}", timeout=90)
        st = r.get("state_diff_after_load") or {}
        verdict = ("refused/crashed" if not r.get("ok") else "not loaded" if not r.get("loaded") else
                   "SILENTLY WRONG STATE" if r["n_missing"] or any(v > 0 for v in st.values()) else "state right")
        row = {"what": what, "src": src["name"], "dst": dst["name"], "verdict": verdict, "error": r.get("error"), "at": r.get("at"),
               "max_master_difference": st.get("fp32"), "state_diff_after_load": st, "n_missing": r.get("n_missing"), "loss_abs_diff_steps6to8": r.get("loss_abs_diff_steps6to8")}
        res.append(row); print(what, "|", src["name"], "->", dst["name"], "|", verdict, "|", row["error"] or st, "|", row["loss_abs_diff_steps6to8"], flush=True)
        json.dump(res, open(os.path.join(out, "CROSS2.json"), "w"), indent=1, default=str)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", default="out/deepspeed"); ap.add_argument("--only", default=".*"); ap.add_argument("--force", action="store_true")
    ap.add_argument("--probe", action="store_true"); ap.add_argument("--no-ops", action="store_true"); ap.add_argument("--cross"); ap.add_argument("--version-variant", default="")
    a = ap.parse_args()
    for n in () if a.no_ops else ("CPUAdamBuilder", "FusedAdamBuilder"):
        try: g.get_accelerator().create_op_builder(n).load(verbose=False)
        except Exception as e: print("op", n, repr(e)[:300])
    if a.probe:
        for c in cells(a.version_variant):
            if re.search(a.only, c["name"]):
                c["dir"] = "work"; c["nvme_path"] = ""
                g.PH["train"] = ph_probe; print(c["name"], json.dumps(g.run("train", c, tag="probe"), indent=1))
        return
    if a.cross: return cross(a.cross, a.out)
    for c in cells(a.version_variant):
        if not re.search(a.only, c["name"]): continue
        c["dir"] = os.path.join(a.out, c["name"]); c["nvme_path"] = ""
        mf = os.path.join(c["dir"], "meta.json")
        if os.path.exists(mf) and not a.force: continue
        t0 = time.time()
        shutil.rmtree(c["dir"], ignore_errors=True); os.makedirs(c["dir"])
        meta = {k: c[k] for k in ("stage", "ws", "precision", "offload", "variant", "name")}
        meta["versions"] = {"torch": torch.__version__, "deepspeed": deepspeed.__version__, "python": sys.version.split()[0], "numpy": np.__version__}
        for ph in ("train", "resume", "tofp32"):
            meta[ph] = g.run(ph, c, timeout=150)
            if ph == "tofp32":
                if "muononly" in c["variant"]: meta[ph]["expected_keys_absent"] = sorted({k[5:] for k in golden.load(c["dir"]) if k.startswith("fp32/")} - set(meta[ph].get("keys", [])))
                meta[ph].pop("keys", None)
            for root, _, fs in os.walk(c["dir"]):
                for f in fs:
                    if f.endswith(".py"): os.unlink(os.path.join(root, f))
            json.dump(meta, open(mf, "w"), indent=1, default=str)
            if not meta["train"].get("ok"): break
        tr, rs, tf = meta.get("train", {}), meta.get("resume", {}), meta.get("tofp32", {})
        print(f"{c['name']:36s} {time.time()-t0:5.1f}s train={'ok' if tr.get('ok') else (tr.get('error'), tr.get('at'))} cls={tr.get('optimizer_class')} notes={tr.get('gather_notes')} "
              f"resume={'ok' if rs.get('ok') else (rs.get('error'), rs.get('at'))} bitwise={rs.get('losses_bitwise_equal')} load={rs.get('state_diff_after_load')} miss={rs.get('n_missing')} "
              f"tofp32={tf.get('ok')} {tf.get('error','')} absent={tf.get('master_missing')} keysabsent={tf.get('expected_keys_absent')} bad={tf.get('master_differs')} latest={rs.get('latest')} unit={(tr.get('momentum_unit') or {}).get('best')}", flush=True)


if __name__ == "__main__":
    main()
