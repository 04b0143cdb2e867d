#!/usr/bin/env python3
"""Trains a small model with Muon under DeepSpeed, and goes on from whatever is
there: on any number of ranks, under any ZeRO stage, with or without offload.

    torchrun --nproc-per-node 2 deepspeed_resume.py runs/1 --stage 2 --steps 20
    torchrun --nproc-per-node 4 deepspeed_resume.py runs/1 --stage 3 --steps 40
    torchrun --nproc-per-node 1 deepspeed_resume.py runs/1 --offload --steps 60

Without a GPU: DS_ACCELERATOR=cpu in the environment.
"""
import argparse
import os

import deepspeed
import torch
import torch.distributed as dist
from muonstore.deepspeed import resume, save

BATCH, WIDTH, WORDS = 16, 32, 50


class Model(torch.nn.Module):
    """Learns a fixed map from words to words."""

    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(WORDS, WIDTH)
        self.fc1 = torch.nn.Linear(WIDTH, 4 * WIDTH)
        self.fc2 = torch.nn.Linear(4 * WIDTH, WIDTH)
        self.lm_head = torch.nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, words, targets):
        x = self.embed(words)
        x = x + self.fc2(torch.nn.functional.gelu(self.fc1(x)))
        logits = self.lm_head(x).float()
        return torch.nn.functional.cross_entropy(logits, targets)


def batch(step, rank, ranks):
    """This rank's share: the same words for any number of ranks."""
    words = torch.randint(WORDS, (BATCH,),
                          generator=torch.Generator().manual_seed(step))
    share = BATCH // ranks
    words = words[rank * share:(rank + 1) * share]
    return words, (7 * words + 3) % WORDS


def config(stage, offload, ranks):
    zero = {"stage": stage}
    if stage == 3:
        zero["reduce_scatter"] = False  # DeepSpeed wants that of Muon.
    if offload:
        zero["offload_optimizer"] = {"device": "cpu"}
    return {"train_micro_batch_size_per_gpu": BATCH // ranks,
            "bf16": {"enabled": True}, "zero_optimization": zero,
            "optimizer": {"type": "Muon", "params": {
                "lr": 0.01, "momentum": 0.95, "betas": [0.9, 0.95]}}}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("root", help="folder of the run's checkpoints")
    parser.add_argument("--stage", type=int, choices=[1, 2, 3], default=2)
    parser.add_argument("--offload", action="store_true")
    parser.add_argument("--steps", type=int, default=20, help="in all")
    parser.add_argument("--save-every", type=int, default=10)
    options = parser.parse_args()

    deepspeed.init_distributed()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    engine, *_ = deepspeed.initialize(
        model=Model(), config=config(options.stage, options.offload, ranks))
    if os.path.exists(os.path.join(options.root, "latest")):
        resumed = resume(engine, options.root)
        if rank == 0:
            print(f"resumed {resumed.path}", *resumed.notes, sep="\n  ")
    saving = None
    while engine.global_steps < options.steps:
        words, targets = batch(engine.global_steps, rank, ranks)
        loss = engine(words.to(engine.device), targets.to(engine.device))
        engine.backward(loss)
        engine.step()
        mean = loss.detach() / ranks
        dist.all_reduce(mean)
        if rank == 0:
            print(f"step {engine.global_steps} loss {mean.item():.4f}")
        if engine.global_steps % options.save_every == 0:
            # Returns once the state is copied; training goes on.
            saving = save(engine, options.root)
    if saving is not None:
        saving.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
