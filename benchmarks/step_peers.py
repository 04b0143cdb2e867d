#!/usr/bin/env python3
"""One peer of benchmarks/step.py: prints the seconds of each of its steps.

    step_peers.py torch        torch.optim.Muon and fused AdamW, whole tensors
    step_peers.py deepspeed    ZeRO-2 with the optimizer offloaded to the CPU

Needs the Python of scripts/setup_interop. The shapes are those of
benchmarks/step_benchmark.cc. DeepSpeed's gradients are reduced and copied to the
host in backward, which is not timed: only engine.step() is.
"""
import argparse
import json
import os
import sys
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("DS_SKIP_CUDA_CHECK", "1")
os.environ.setdefault("TORCH_COMPILE_DISABLE", "1")

import torch  # noqa: E402


def shapes(a):
    w = a.width
    yield "embed.weight", (a.vocabulary, w)
    for layer in range(a.layers):
        for name, rows, cols in (("qkv", 3 * w, w), ("proj", w, w),
                                 ("up", 4 * w, w), ("down", w, 4 * w)):
            yield f"layers.{layer}.{name}.weight", (rows, cols)


def run_torch(a):
    torch.set_num_threads(a.threads)
    generator = torch.Generator().manual_seed(1)
    muon, adam = [], []
    for name, shape in shapes(a):
        p = torch.nn.Parameter(torch.zeros(shape))
        p.grad = torch.rand(shape, generator=generator) - 0.5
        (adam if "embed" in name else muon).append(p)
    optimizers = [torch.optim.Muon(muon, lr=0.02, weight_decay=0.0),
                  torch.optim.AdamW(adam, lr=0.003, fused=True)]
    for _ in range(a.steps):
        start = time.perf_counter()
        torch.nn.utils.clip_grad_norm_(muon + adam, 1.0)
        for optimizer in optimizers:
            optimizer.step()
        yield time.perf_counter() - start


class Weights(torch.nn.Module):
    """Its loss is linear, so that gradients cost next to nothing."""

    def __init__(self, a):
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.names = []
        for name, shape in shapes(a):
            flat = name.replace(".", "_")
            self.names.append(flat)
            self.register_parameter(flat, torch.nn.Parameter(
                torch.zeros(shape)))
            self.register_buffer(flat + "_g", torch.rand(
                shape, generator=generator) - 0.5)

    def forward(self):
        return sum((getattr(self, n) * getattr(self, n + "_g")).sum()
                   for n in self.names)


def deepspeed_rank(rank, a, port, results):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank),
                      WORLD_SIZE=str(a.ranks), MASTER_ADDR="127.0.0.1",
                      LOCAL_SIZE=str(a.ranks), MASTER_PORT=str(port),
                      OMP_NUM_THREADS=str(a.threads))
    torch.set_num_threads(a.threads)
    import deepspeed
    deepspeed.init_distributed("gloo")
    engine, _, _, _ = deepspeed.initialize(
        model=(model := Weights(a)), model_parameters=list(model.parameters()),
        config={
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 1,
            "steps_per_print": 1 << 30,
            "gradient_clipping": 1.0,
            "bf16": {"enabled": True},
            "optimizer": {"type": "Muon", "params": {
                "lr": 0.02, "muon_lr": 0.02, "adam_lr": 0.003,
                "momentum": 0.95, "weight_decay": 0.0}},
            "zero_optimization": {"stage": 2, "offload_optimizer": {
                "device": "cpu", "pin_memory": False}}})
    times = []
    for _ in range(a.steps):
        engine.backward(engine())
        torch.distributed.barrier()
        start = time.perf_counter()
        engine.step()
        times.append(time.perf_counter() - start)
    if rank == 0:
        results.put(times)


def run_deepspeed(a):
    context = torch.multiprocessing.get_context("spawn")
    results = context.Queue()
    port = 20000 + os.getpid() % 20000
    ranks = [context.Process(target=deepspeed_rank, args=(r, a, port, results))
             for r in range(a.ranks)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join()
        if process.exitcode:
            sys.exit(f"step_peers: a DeepSpeed rank ended with "
                     f"{process.exitcode}")
    return results.get(timeout=10)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer", choices=["torch", "deepspeed"])
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--vocabulary", type=int, default=8192)
    a = parser.parse_args()
    run = run_torch if a.peer == "torch" else run_deepspeed
    times = list(run(a))
    # DeepSpeed prints to standard output, too.
    print("\nstep_seconds " + json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
