#!/usr/bin/env python3
"""OffloadMuon beside torch.optim.Muon + fused AdamW: memory and time of a step.

    PYTHONPATH=build/release/python build/interop/venv/bin/python \\
        benchmarks/offload_muon.py [--layers 4] [--width 768] [--steps 3]
                                   [--rounds 3] [--json FILE]

One process, float32 weights, the same gradients, the shapes of step.py. Each
run is a process of its own; rounds alternate and the best step of each counts.

  state      what the optimizer says it holds, for ours weights, masters and the
             sum of gradients included
  resident   by how much the process grew at most: model and gradients, too
  wall, cpu  seconds of a step; cpu is the processor time of all threads, which
             other programs on the machine change less
"""
import argparse
import json
import os
import subprocess
import sys
import time

from step_peers import shapes

RUNS = {"torch": "torch.optim.Muon (bf16 inside) + fused AdamW",
        "f32": "OffloadMuon", "bf16": 'OffloadMuon, precision="bf16"'}


def memory_bytes(field):
    with open("/proc/self/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith(field))
    return int(line.split()[1]) << 10


class Torch:
    def __init__(self, named):
        import torch
        self._all = [
            torch.optim.Muon([p for n, p in named if "embed" not in n],
                             lr=0.02, weight_decay=0.0),
            torch.optim.AdamW([p for n, p in named if "embed" in n], lr=0.003,
                              fused=True)]

    def step(self):
        for optimizer in self._all:
            optimizer.step()

    @property
    def state_bytes(self):
        return sum(value.nbytes for optimizer in self._all
                   for state in optimizer.state.values()
                   for value in state.values())


class Ours:
    def __init__(self, named, precision):
        from muonstore import OffloadMuon
        self._it = OffloadMuon(named, lr=0.02, adam_lr=0.003, weight_decay=0.0,
                               precision=precision)

    def step(self):
        self._it.step()

    @property
    def state_bytes(self):
        return sum(self._it.state_bytes)


def run_once(a):
    """In a process of its own."""
    import torch
    torch.set_num_threads(a.threads)
    import muonstore  # noqa: F401
    base = memory_bytes("VmRSS")
    random = torch.Generator().manual_seed(1)
    named = []
    for name, shape in shapes(a):
        parameter = torch.nn.Parameter(torch.rand(shape, generator=random))
        parameter.grad = torch.rand(shape, generator=random) - 0.5
        named.append((name, parameter))
    optimizer = Torch(named) if a.run == "torch" else Ours(named, a.run)
    steps = []
    for _ in range(a.steps + 1):
        wall, cpu = time.perf_counter(), time.process_time()
        optimizer.step()
        steps.append((time.perf_counter() - wall, time.process_time() - cpu))
    # The first one allocates.
    wall, cpu = (min(values) for values in zip(*steps[1:]))
    print(json.dumps({"state_bytes": optimizer.state_bytes,
                      "resident_bytes": memory_bytes("VmHWM") - base,
                      "wall_s": wall, "cpu_s": cpu}))


def measure(a):
    """By run: the least of all rounds."""
    flags = ["--layers", str(a.layers), "--width", str(a.width),
             "--vocabulary", str(a.vocabulary), "--steps", str(a.steps),
             "--threads", str(a.threads)]
    best = {}
    for _ in range(a.rounds):
        for run in RUNS:
            found = json.loads(subprocess.run(
                [sys.executable, __file__, "--run", run, *flags], check=True,
                stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
            old = best.setdefault(run, found)
            best[run] = {key: min(value, old[key])
                         for key, value in found.items()}
    return best


def report(best):
    print("| | state, MiB | resident, MiB | wall, s | cpu, s |")
    print("|---|--:|--:|--:|--:|")
    for run, it in best.items():
        print(f"| {RUNS[run]} | {it['state_bytes'] >> 20} | "
              f"{it['resident_bytes'] >> 20} | {it['wall_s']:.2f} | "
              f"{it['cpu_s']:.2f} |")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", help="also write the figures here")
    parser.add_argument("--run", choices=RUNS, help=argparse.SUPPRESS)
    a = parser.parse_args()
    if a.run:
        run_once(a)
        return
    print(f"load of the machine before: {os.getloadavg()[0]:.1f} on "
          f"{os.cpu_count()} cores")
    best = measure(a)
    report(best)
    if a.json:
        with open(a.json, "w", encoding="utf-8") as file:
            json.dump(best, file, indent=1)


if __name__ == "__main__":
    main()
