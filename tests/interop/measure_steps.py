#!/usr/bin/env python3
"""How far optimizers that should do the same are apart, measured.

    measure_steps.py STEP_FILE [--folder DIR] [--tables adam,loss,muon]

Prints the tables of docs/numerics-adam.md: AdamW of torch, fused and DeepSpeed
against float64 over 100 steps of the same gradients; what a silent fallback to
element-wise updates does to the loss; cumulative Muon updates after steps 1, 2,
3 and 100 against float64 and torch.optim.Muon. STEP_FILE is the program
step_file of this build. Needs torch and DeepSpeed (scripts/setup_interop).
"""
import argparse
import json
import math
import os
import subprocess
import tempfile

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")
import numpy as np
import torch

STEPS = 100
SAVED = (1, 2, 3, STEPS)
RESUMED = 5
ADAM = dict(lr=3e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1)
MUON = dict(lr=0.02, momentum=0.95, weight_decay=0.0)
JORDAN = (3.4445, -4.7750, 2.0315)


# ------------------------------------------------------------------ references
def adam_f64(init, gradients, o=ADAM):
    w = init.astype(np.float64)
    m = np.zeros_like(w)
    v = np.zeros_like(w)
    saved = {}
    for t, g in enumerate(gradients.astype(np.float64), 1):
        m = o["beta1"] * m + (1 - o["beta1"]) * g
        v = o["beta2"] * v + (1 - o["beta2"]) * g * g
        w = w * (1 - o["lr"] * o["weight_decay"])
        w -= o["lr"] * (m / (1 - o["beta1"] ** t)) / (
            np.sqrt(v / (1 - o["beta2"] ** t)) + o["eps"])
        if t in SAVED:
            saved[t] = w.copy()
    return saved


def newton_schulz(x):
    x = x / (np.linalg.norm(x) + 1e-7)
    if x.shape[0] > x.shape[1]:
        return newton_schulz(x.T).T
    a, b, c = JORDAN
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def muon_f64(init, gradients):
    w = init.astype(np.float64)
    m = np.zeros_like(w)
    scale = math.sqrt(max(1, w.shape[0] / w.shape[1]))
    saved = {}
    for t, g in enumerate(gradients, 1):
        g = g.astype(np.float64)
        m += (1 - MUON["momentum"]) * (g - m)
        u = g + MUON["momentum"] * (m - g)
        w -= MUON["lr"] * scale * newton_schulz(u)
        if t in SAVED:
            saved[t] = w.copy()
    return saved


# ---------------------------------------------------------------- other people
def torch_optimizer(make, init, gradients):
    w = torch.nn.Parameter(torch.from_numpy(init.copy()))
    optimizer = make([w])
    saved = {}
    for t, g in enumerate(gradients, 1):
        w.grad = torch.from_numpy(g.astype(np.float32))
        optimizer.step()
        if t in SAVED:
            saved[t] = w.detach().double().numpy().copy()
    return saved


def torch_adamw(fused):
    return lambda parameters: torch.optim.AdamW(
        parameters, lr=ADAM["lr"], betas=(ADAM["beta1"], ADAM["beta2"]),
        eps=ADAM["eps"], weight_decay=ADAM["weight_decay"], fused=fused,
        foreach=False)


def torch_muon(parameters):
    return torch.optim.Muon(parameters, lr=MUON["lr"],
                            momentum=MUON["momentum"],
                            weight_decay=MUON["weight_decay"])


def cpu_adam(parameters, **options):
    from deepspeed.ops.adam import DeepSpeedCPUAdam
    return DeepSpeedCPUAdam(
        parameters, lr=ADAM["lr"], betas=(ADAM["beta1"], ADAM["beta2"]),
        eps=ADAM["eps"], weight_decay=ADAM["weight_decay"], **options)


def cpu_adam_resumed(init, gradients, at):
    """A new process in the middle: its powers of beta come from pow()."""
    w = torch.nn.Parameter(torch.from_numpy(init.copy()))
    optimizer = cpu_adam([w])
    saved = {}
    for t, g in enumerate(gradients, 1):
        w.grad = torch.from_numpy(g.astype(np.float32))
        optimizer.step()
        if t == at:
            state = optimizer.state_dict()
            optimizer = cpu_adam([w])
            optimizer.load_state_dict(state)
        if t in SAVED:
            saved[t] = w.detach().double().numpy().copy()
    return saved


# ---------------------------------------------------------------------- ours
def ours(program, folder, parameters, dtype="f32", order="torch",
         form="auto", precision="f32"):
    """parameters: name -> (optimizer, init, gradients)."""
    run = dict(folder=folder, steps=STEPS, save_after=SAVED,
               gradient_dtype=dtype, form=form, precision=precision, muon=MUON,
               adam=dict(ADAM, order=order, decoupled=True), parameters=[])
    for name, (optimizer, init, gradients) in parameters.items():
        run["parameters"].append(dict(name=name, shape=init.shape,
                                      optimizer=optimizer))
        init.astype(np.float32).tofile(os.path.join(folder, name + ".init"))
        stored = torch.from_numpy(gradients.astype(np.float32))
        if dtype == "bf16":
            stored = stored.bfloat16().view(torch.int16)
        stored.numpy().tofile(os.path.join(folder, name + ".gradients"))
    path = os.path.join(folder, "run.json")
    with open(path, "w") as f:
        json.dump(run, f)
    subprocess.run([program, path], check=True)
    return {name: {t: np.fromfile(os.path.join(folder, f"{name}.{t}"),
                                  np.float32).reshape(init.shape).astype(float)
                   for t in SAVED}
            for name, (_, init, _) in parameters.items()}


# -------------------------------------------------------------------- tables
def row(cells):
    print("| " + " | ".join(cells) + " |", flush=True)


def header(cells):
    row(cells)
    row(["---"] * len(cells))


def adam_table(program, folder):
    random = np.random.default_rng(1)
    shape = (400, 500)
    init = (0.1 * random.standard_normal(shape)).astype(np.float32)
    # Elements of very different size, and a mean that stays.
    size = np.exp(2 * random.standard_normal(shape))
    mean = size * random.standard_normal(shape)
    gradients = np.stack([
        (mean + size * random.standard_normal(shape)).astype(np.float32)
        for _ in range(STEPS)])
    want = adam_f64(init, gradients)[STEPS]
    moved = np.abs(want - init).max()

    def measure(name, got):
        error = np.abs(got[STEPS] - want)
        row([name, f"{error.max():.1e}", f"{error.max() / moved:.1e}"])

    print("\nAdamW, 200,000 weights, 100 steps, the same f32 gradients:\n")
    header(["optimizer", "largest difference to float64",
            "over the largest update"])
    measure("torch.optim.AdamW", torch_optimizer(torch_adamw(False), init,
                                                 gradients))
    measure("torch.optim.AdamW, fused",
            torch_optimizer(torch_adamw(True), init, gradients))
    measure("DeepSpeedCPUAdam", torch_optimizer(cpu_adam, init, gradients))
    measure(f"DeepSpeedCPUAdam, resumed after step {RESUMED}",
            cpu_adam_resumed(init, gradients, RESUMED))
    for order in ("torch", "deepspeed"):
        result = ours(program, folder, {"w": ("adam", init, gradients)},
                      order=order)
        measure(f"ours, order of {order}", result["w"])
    rounded = torch.from_numpy(gradients).bfloat16().float().numpy()
    measure("any of them with bf16 gradients (torch's)",
            torch_optimizer(torch_adamw(False), init, rounded))
    measure("DeepSpeedCPUAdam(adamw_mode=False): L2 decay",
            torch_optimizer(lambda p: cpu_adam(p, adamw_mode=False), init,
                            gradients))
    a = torch_optimizer(cpu_adam, init, gradients)
    b = cpu_adam_resumed(init, gradients, RESUMED)
    print(f"\nDeepSpeedCPUAdam, resumed against not resumed, after step "
          f"{STEPS}: {np.abs(a[STEPS] - b[STEPS]).max():.1e}, in "
          f"{np.mean(a[STEPS] != b[STEPS]):.0%} of the weights")


def muon_table(program, folder):
    random = np.random.default_rng(2)
    for shape in ((256, 1024), (384, 384)):
        init = (0.02 * random.standard_normal(shape)).astype(np.float32)
        # Of low rank and noise, as gradients are.
        left = random.standard_normal((shape[0], 16))
        right = random.standard_normal((16, shape[1]))
        gradients = np.stack([
            (left @ (random.standard_normal((16, 1)) * right) / 16
             + 0.05 * random.standard_normal(shape)).astype(np.float32)
            for _ in range(STEPS)])
        print(f"\nMuon, {shape[0]} x {shape[1]}: relative error of the "
              "cumulative update\n")
        header(["gradients", "optimizer"] +
               [f"step {t}, float64" for t in SAVED] +
               [f"step {t}, torch.optim.Muon" for t in SAVED])
        for dtype in ("f32", "bf16"):
            fed = gradients
            if dtype == "bf16":
                fed = torch.from_numpy(gradients).bfloat16().float().numpy()
            want = muon_f64(init, fed)
            torchs = torch_optimizer(torch_muon, init, fed)
            results = {"torch.optim.Muon": torchs}
            if dtype == "bf16":
                results["float64 with f32 gradients"] = muon_f64(init,
                                                                 gradients)
            for name, options in (
                    ("ours, f32 standard", dict(form="standard")),
                    ("ours, f32 by shape", {}),
                    ("ours, bf16 class", dict(precision="bf16"))):
                results[name] = ours(program, folder,
                                     {"w": ("muon", init, fed)}, dtype=dtype,
                                     **options)["w"]
            for name, got in results.items():
                def relative(t, reference):
                    return (np.linalg.norm(got[t] - reference[t])
                            / np.linalg.norm(reference[t] - init))
                row([dtype, name] +
                    [f"{relative(t, want):.1e}" for t in SAVED] +
                    [f"{relative(t, torchs):.1e}" for t in SAVED])


def loss_table():
    """Least squares of two layers: a teacher, a student, full batches."""
    random = np.random.default_rng(3)
    width, depth_out, samples = 64, 96, 512
    x = random.standard_normal((samples, width)) * np.logspace(0, -1, width)
    teacher = [random.standard_normal((depth_out, width)) / 8,
               random.standard_normal((width, depth_out)) / 8]
    start = [random.standard_normal(t.shape) / 8 for t in teacher]
    target = np.maximum(x @ teacher[0].T, 0) @ teacher[1].T

    def loss_and_gradients(w):
        hidden = x @ w[0].T
        active = np.maximum(hidden, 0)
        error = active @ w[1].T - target
        g1 = error.T @ active / samples
        g0 = ((error @ w[1]) * (hidden > 0)).T @ x / samples
        return 0.5 * (error ** 2).sum() / samples, [g0, g1]

    def train(update, dtype=np.float64):
        w = [s.astype(dtype) for s in start]
        m = [np.zeros_like(s) for s in w]
        losses = []
        for _ in range(STEPS):
            loss, gradients = loss_and_gradients(
                [v.astype(np.float64) for v in w])
            losses.append(loss)
            for i, g in enumerate(gradients):
                g = g.astype(dtype)
                m[i] += dtype(0.05) * (g - m[i])
                u = g + dtype(0.95) * (m[i] - g)
                w[i] = w[i] - dtype(MUON["lr"]) * update(u, g).astype(dtype)
        losses.append(loss_and_gradients(w)[0])
        return np.array(losses)

    def scaled(u, _):
        return newton_schulz(u) * math.sqrt(max(1, u.shape[0] / u.shape[1]))

    def halves(u, g):
        cut = u.size // 2 + 5
        # One rank's piece of whole rows, and the other's.
        rows = cut // u.shape[1]
        return np.concatenate([scaled(u[:rows], g), scaled(u[rows:], g)])

    def bf16(u, _):
        half = torch.from_numpy(np.ascontiguousarray(u)).bfloat16()
        return torch.optim._muon._zeropower_via_newtonschulz(
            half, JORDAN, 5, 1e-7).double().numpy() * math.sqrt(
                max(1, u.shape[0] / u.shape[1]))

    want = train(scaled)
    print(f"\nLoss of a small network after {STEPS} steps "
          f"({want[0]:.3f} at the start):\n")
    header(["update of the matrices", "loss", "largest relative deviation"])
    for name, losses in (
            ("Muon, float64", want),
            ("Muon, float32", train(scaled, np.float32)),
            ("Muon, Newton-Schulz in bf16 as torch has it", train(bf16)),
            ("each rank its own rows alone", train(halves)),
            ("element-wise: momentum as it is", train(lambda u, g: u)),
            ("element-wise: plain SGD", train(lambda u, g: g))):
        deviation = np.abs(losses / want - 1).max()
        row([name, f"{losses[-1]:.6f}", f"{deviation:.1e}"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("step_file")
    parser.add_argument("--folder")
    parser.add_argument("--tables", default="adam,loss,muon")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        tables = options.tables.split(",")
        if "adam" in tables:
            adam_table(options.step_file, folder)
        if "loss" in tables:
            loss_table()
        if "muon" in tables:
            muon_table(options.step_file, folder)


if __name__ == "__main__":
    main()
