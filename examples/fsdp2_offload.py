"""Trains a small language model under FSDP2, its optimizer state in muonstore.

    torchrun --nproc-per-node 2 examples/fsdp2_offload.py --steps 40
    torchrun --nproc-per-node 4 examples/fsdp2_offload.py --steps 80 --resume

The second command goes on from the checkpoint of the first, on other ranks.
"""
import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from muonstore import OffloadMuon

VOCABULARY, WIDTH, CONTEXT, BATCH = 32, 48, 24, 24


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        x = x + self.out(nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=True))
        return x + self.down(torch.relu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(x)


def batch(step, rank, size):
    """This rank's share of what all ranks train on: sequences that count up
    by 1, 2 or 3."""
    random = torch.Generator().manual_seed(step)
    start = torch.randint(VOCABULARY, (BATCH, 1), generator=random)
    stride = torch.randint(1, 4, (BATCH, 1), generator=random)
    tokens = (start + stride * torch.arange(CONTEXT + 1)) % VOCABULARY
    return tokens.chunk(size)[rank]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--root", default="fsdp2_run")
    parser.add_argument("--resume", action="store_true")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(1)
    model = Model()
    mesh = init_device_mesh("cpu", (size,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)

    # Matrices to Muon, the rest to Adam; Q, K and V are matrices of their own.
    optimizer = OffloadMuon(
        model.named_parameters(), lr=0.02, adam_lr=3e-3, weight_decay=0.01,
        layouts=lambda name, _: (f"packed_rows[{WIDTH},{WIDTH},{WIDTH}]"
                                 if name.endswith("qkv.weight") else None),
        max_norm=1.0, fold_in_backward=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / 10))
    first = 0
    if options.resume:
        resumed = optimizer.resume(options.root)
        schedule.load_state_dict(resumed.client_state["schedule"])
        first = resumed.step

    for step in range(first, options.steps):
        tokens = batch(step, rank, size)
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1),
                                           tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        schedule.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"{step + 1:4d}  {float(mean) / size:.6f}", flush=True)

    saved = optimizer.save(options.root, f"step{options.steps}",
                           asynchronous=True, overwrite=True,
                           client_state={"schedule": schedule.state_dict()})
    report = saved.wait()  # Training could go on until here.
    if rank == 0:
        memory, _ = optimizer.state_bytes
        print(f"saved {report.path}; state of rank 0: {memory} bytes")
    optimizer.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
