#!/usr/bin/env python3
"""Does a training loop with OffloadMuon grow? Memory, objects, files, threads.

    PYTHONPATH=build/release/python build/interop/venv/bin/python \\
        benchmarks/offload_muon_leaks.py [--steps 10000] [--json FILE]

A small language model on the CPU: gradients folded in during backward, a
schedule, a GradScaler, an asynchronous checkpoint every tenth of the steps.
A row is printed at each, beginning with the first; the first tenth warms up.
"""
import argparse
import gc
import json
import os
import tempfile
import threading

import torch
from torch import nn

from muonstore import OffloadMuon

VOCABULARY, WIDTH, CONTEXT = 32, 32, 16


def resident_kib():
    with open("/proc/self/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith("VmRSS"))
    return int(line.split()[1])


def look(step):
    gc.collect()
    return {"step": step, "resident_kib": resident_kib(),
            "python_objects": len(gc.get_objects()),
            "open_files": len(os.listdir("/proc/self/fd")),
            "os_threads": len(os.listdir("/proc/self/task")),
            "python_threads": threading.active_count()}


class Run:
    def __init__(self, steps):
        torch.manual_seed(1)
        self.model = nn.Sequential(
            nn.Embedding(VOCABULARY, WIDTH), nn.Linear(WIDTH, 4 * WIDTH),
            nn.ReLU(), nn.Linear(4 * WIDTH, WIDTH), nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, VOCABULARY))
        self.scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        self.optimizer = OffloadMuon(
            self.model.named_parameters(), lr=0.01, adam_lr=1e-3,
            use_muon={"0.weight": False, "5.weight": False},
            fold_in_backward=True, grad_scaler=self.scaler, num_threads=1)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: 1 - 0.9 * step / steps)

    def step(self, step):
        random = torch.Generator().manual_seed(step)
        start = torch.randint(VOCABULARY, (4, 1), generator=random)
        tokens = (start + torch.arange(CONTEXT + 1)) % VOCABULARY
        loss = nn.functional.cross_entropy(
            self.model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.schedule.step()


def measure(steps):
    """Yields rows."""
    torch.set_num_threads(1)
    run = Run(steps)
    every = max(1, steps // 10)
    with tempfile.TemporaryDirectory() as folder:
        for step in range(1, steps + 1):
            run.step(step)
            if step % every == 0:
                run.optimizer.save(
                    folder, f"step{step}", asynchronous=True, keep=1,
                    client_state=run.schedule.state_dict()).wait()
                yield look(step)
        run.optimizer.close()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--json", help="also write the figures here")
    a = parser.parse_args()
    rows = []
    for row in measure(a.steps):
        if not rows:
            print("| " + " | ".join(row) + " |\n" + "|--:" * len(row) + "|")
        print("| " + " | ".join(str(value) for value in row.values()) + " |",
              flush=True)
        rows.append(row)
    if a.json:
        with open(a.json, "w", encoding="utf-8") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
