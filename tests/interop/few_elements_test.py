#!/usr/bin/env python3
"""More ranks than a group has elements, with real DeepSpeed on both sides.

    few_elements_test.py CKPT_CONVERT      exit code 77 without DeepSpeed

A model of three elements trains on one rank and saves; DeepSpeed loads the
converted checkpoint on four ranks, some of which hold nothing but padding, and
trains on.
"""
import functools
import math
import os
import pickle
import sys
import tempfile

try:
    import deepspeed_run
except ImportError as error:
    print(f"skipped: {error}; scripts/setup_interop installs DeepSpeed")
    sys.exit(77)
import torch
import judge
from cases import parse_run
from deepspeed_run import gen
from interop_test import call

TARGETS = [("s2-ws4-bf16-none-base", []), ("s1-ws4-bf16-cpu-base", []),
           ("s3-ws4-bf16-none-base", ["--zero-init", "no"])]


class Few(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.matrix = torch.nn.Linear(2, 1, bias=False)
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, tokens, targets):
        x = tokens[:, :2].to(self.matrix.weight.dtype) / gen.VOCAB
        y = (self.matrix(x) * self.scale).float()
        return ((y - targets[:, :1].float() / gen.VOCAB) ** 2).mean()


def build(_variant, seed):
    torch.manual_seed(seed)
    return Few()


def save(run):
    """In the process of the one rank."""
    engine, _ = deepspeed_run.make_engine_with_groups(run, gen.SEED)
    gen.train_steps(engine, run, 0, gen.STEPS_BEFORE)
    engine.save_checkpoint(run["root"], tag="step5")
    state, _, _, _ = gen.gather_full(engine, run)
    with open(run["result"], "wb") as f:
        pickle.dump(state, f)
    return {}


def problems_of(tool, source, state, target, options, folder):
    cell = parse_run(target)
    root = os.path.join(folder, target)
    call(tool, source, root, "--verify", "--stage", str(cell["stage"]),
         "--world-size", str(cell["ws"]), "--offload", cell["offload"],
         *options)
    seen = deepspeed_run.run(cell, root, os.path.join(folder, target + "-run"),
                             fingerprint=f"{root}/step5.fingerprint.json")
    problems = judge.state_problems(state, seen["loaded"])
    if not all(math.isfinite(loss) for loss in seen["losses"]):
        problems.append(f"losses {seen['losses']}")
    return problems + seen["notes"] + seen["fingerprint_problems"]


def main():
    tool = os.path.abspath(sys.argv[1])
    gen.build_model = build
    gen.make_engine = deepspeed_run.make_engine_with_groups
    gen.PH["train"] = save
    with tempfile.TemporaryDirectory() as folder:
        source, result = f"{folder}/source", f"{folder}/state.pickle"
        gen.LOGDIR = f"{folder}/logs"
        outcome = gen.run("train", {**parse_run("s2-ws1-bf16-none-base"),
                                    "root": source, "result": result,
                                    "dir": folder})
        if not outcome["ok"]:
            sys.exit(f"{outcome['error']} at {outcome.get('at')}")
        with open(result, "rb") as f:
            state = pickle.load(f)
        return judge.verdict(
            (f"3 elements -> {target}",
             functools.partial(problems_of, tool, source, state, target,
                               options, folder))
            for target, options in TARGETS)


if __name__ == "__main__":
    sys.exit(main())
