#!/usr/bin/env python3
"""torch.optim.Muon and AdamW judge the baseline optimizer of train_gpt.

    reference_oracle_test.py WRITE_REFERENCE_STEPS

The program steps its own Muon and AdamW; torch's optimizers step the same
parameters with the same gradients, with torch's Newton-Schulz in f32 instead of
bf16. Exits with 77 where torch is not installed.
"""
import inspect
import subprocess
import sys
import tempfile

try:
    import numpy
    import torch
    import torch.optim._muon as torch_muon
except ImportError:
    print("torch.optim.Muon is not installed; skipped")
    sys.exit(77)

STEPS = 6
HEADS = 2
# Rounding of f32, times the slope of Newton-Schulz at small singular values.
TOLERANCE = 2e-5
# Flags of train_gpt, and what they mean to torch's optimizers.
CASES = {
    "defaults": ([], {}),
    "plain momentum": (["--no-nesterov"], {"nesterov": False}),
    "match_rms": (["--scale", "match_rms"],
                  {"adjust_lr_fn": "match_rms_adamw"}),
    # Newton-Schulz does not see the constant between the two conventions.
    "accumulate": (["--momentum-convention", "accumulate"], {}),
    "accumulate, plain": (["--momentum-convention", "accumulate",
                           "--no-nesterov"], {"nesterov": False}),
    "whole": (["--qkv", "whole"], {"blocks": 1}),
    "heads": (["--qkv", "heads", "--heads", str(HEADS)],
              {"blocks": 3 * HEADS}),
    "no clipping": (["--max-norm", "0"], {"max_norm": None}),
    "hyper-parameters": (["--lr", "0.03", "--adam-lr", "0.01", "--momentum",
                          "0.8", "--weight-decay", "0.2"],
                         {"lr": 0.03, "adam_lr": 0.01, "momentum": 0.8,
                          "weight_decay": 0.2}),
}


def use_f32():
    """Torch's own Newton-Schulz, with its cast to bf16 replaced."""
    name = "_zeropower_via_newtonschulz"
    source = inspect.getsource(getattr(torch_muon, name))
    assert source.count("torch.bfloat16") == 1
    exec(source.replace("torch.bfloat16", "torch.float32"),
         torch_muon.__dict__)


def read(folder, name, parameters, steps):
    """Per step a list of one tensor a parameter."""
    values = torch.from_numpy(
        numpy.fromfile(f"{folder}/{name}", dtype="<f4")).clone()
    sizes = [shape.numel() for _, shape in parameters] * steps
    assert values.numel() == sum(sizes), name
    tensors = [part.view(shape) for part, (_, shape)
               in zip(values.split(sizes), parameters * steps)]
    count = len(parameters)
    return [tensors[i:i + count] for i in range(0, len(tensors), count)]


def read_parameters(folder):
    parameters = []
    with open(f"{folder}/parameters.txt") as f:
        for line in f:
            name, rows, cols = line.split()
            dims = [int(rows)] + ([int(cols)] if int(cols) else [])
            parameters.append((name, torch.Size(dims)))
    return parameters


def takes_muon(name, shape):
    return len(shape) == 2 and "embed" not in name and "lm_head" not in name


def blocks_of(name, tensor, blocks):
    """torch.optim.Muon takes whole matrices only: each block is one."""
    count = blocks if name.endswith("qkv.weight") else 1
    return [part.clone() for part in tensor.chunk(count)]


def torch_steps(parameters, before, gradients, options):
    """The parameters after each step of torch's optimizers."""
    blocks = options.get("blocks", 3)
    weights = [blocks_of(name, tensor, blocks)
               for (name, _), tensor in zip(parameters, before)]
    for part in sum(weights, []):
        part.requires_grad_(True)
    muon = [p for (name, shape), parts in zip(parameters, weights)
            if takes_muon(name, shape) for p in parts]
    adam = [p for (name, shape), parts in zip(parameters, weights)
            if not takes_muon(name, shape) for p in parts]
    decay = options.get("weight_decay", 0.01)
    optimizers = [
        torch.optim.Muon(muon, lr=options.get("lr", 0.01), weight_decay=decay,
                         momentum=options.get("momentum", 0.95),
                         nesterov=options.get("nesterov", True),
                         adjust_lr_fn=options.get("adjust_lr_fn", "original")),
        torch.optim.AdamW(adam, lr=options.get("adam_lr", 0.003),
                          betas=(0.9, 0.95), eps=1e-8, weight_decay=decay,
                          foreach=False),
    ]
    for step in gradients:
        for (name, _), parts, gradient in zip(parameters, weights, step):
            for part, grad in zip(parts, blocks_of(name, gradient, blocks)):
                part.grad = grad
        if options.get("max_norm", 1.0) is not None:
            torch.nn.utils.clip_grad_norm_(muon + adam, 1.0)
        for optimizer in optimizers:
            optimizer.step()
        yield [torch.cat([p.detach() for p in parts]) for parts in weights]


def check(program, flags, options):
    """The largest relative error of a cumulative update."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([program, folder, "--steps", str(STEPS), *flags],
                       check=True)
        parameters = read_parameters(folder)
        before, = read(folder, "before.bin", parameters, 1)
        gradients = read(folder, "gradients.bin", parameters, STEPS)
        after = read(folder, "after.bin", parameters, STEPS)
    worst = 0.0
    expected_steps = torch_steps(parameters, before, gradients, options)
    for expected, found in zip(expected_steps, after):
        for start, right, ours in zip(before, expected, found):
            update = (right.double() - start.double()).norm()
            error = (ours.double() - right.double()).norm()
            worst = max(worst, (error / update).item())
    return worst


def main():
    use_f32()
    failed = False
    for name, (flags, options) in CASES.items():
        error = check(sys.argv[1], flags, options)
        wrong = not error < TOLERANCE
        failed = failed or wrong
        print(f"{'WRONG' if wrong else 'ok   '} {name}: {error:.1e}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
