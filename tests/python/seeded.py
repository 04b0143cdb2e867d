"""A model whose gradients are what a seed says, whatever its weights are.

The loss is the sum of weight times gradient, so that each rank of a job gets
the very same gradient, and their mean is it, to the bit. torch.optim.Muon, with
its Newton-Schulz iteration in float32, and AdamW are the reference.
"""
import torch
import torch.optim._muon as torch_muon
from torch import nn

# Name, shape; rows that 2 and 4 ranks do not share out evenly, and too few.
SHAPES = (("embed.weight", (13, 6)), ("fc1.weight", (10, 6)),
          ("fc1.bias", (10,)), ("norm.weight", (10,)), ("fc2.weight", (7, 10)),
          ("gate.weight", (2, 7)), ("qkv.weight", (12, 7)),
          ("conv.weight", (5, 3, 2, 2)), ("lm_head.weight", (13, 7)))
MUON = ("fc1.weight", "fc2.weight", "gate.weight", "qkv.weight", "conv.weight")
MUON_OPTIONS = {"lr": 0.02, "weight_decay": 0.1, "momentum": 0.95}
ADAM_OPTIONS = {"lr": 3e-3, "weight_decay": 0.1, "betas": (0.9, 0.95),
                "eps": 1e-8}
OURS = {**MUON_OPTIONS, "adam_lr": 3e-3, "adam_eps": 1e-8}


class Part(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, gradients):
        return sum((parameter * gradients[name].to(parameter.dtype)).sum()
                   for name, parameter in self.named_parameters())


class Model(nn.Module):
    """Parts with the parameters of SHAPES."""

    def __init__(self, dtype=torch.float32, skip=()):
        super().__init__()
        random = torch.Generator().manual_seed(1)
        for name, shape in SHAPES:
            values = torch.randn(shape, generator=random)
            if name in skip:
                continue
            part, leaf = name.split(".")
            if not hasattr(self, part):
                self.add_module(part, Part())
            getattr(self, part).register_parameter(
                leaf, nn.Parameter(values.to(dtype)))

    def forward(self, gradients):
        """`gradients`: name -> tensor, by part."""
        return sum(part(gradients[name])
                   for name, part in self.named_children())


def gradients(step, scale=1.0):
    """By part and leaf; sizes differ by parameter and step."""
    random = torch.Generator().manual_seed(1000 + step)
    result = {}
    for index, (name, shape) in enumerate(SHAPES):
        part, leaf = name.split(".")
        result.setdefault(part, {})[leaf] = scale * torch.randn(
            shape, generator=random) * 2.0 ** (index % 4 - step % 3)
    return result


def newton_schulz(grad, ns_coefficients, ns_steps, eps):
    """torch's, without its rounding to bfloat16."""
    a, b, c = ns_coefficients
    x = grad.T if grad.size(0) > grad.size(1) else grad
    x = x / x.norm().clamp(min=eps)
    for _ in range(ns_steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if grad.size(0) > grad.size(1) else x


class Reference:
    """torch.optim.Muon and AdamW; convolutions folded, as ours are."""

    def __init__(self, model, float32=True):
        self.model = model
        if float32:
            torch_muon._zeropower_via_newtonschulz = newton_schulz
        named = dict(model.named_parameters())
        self.flat = {name: nn.Parameter(named[name].detach().flatten(1))
                     for name in MUON}
        self.muon = torch.optim.Muon(list(self.flat.values()), **MUON_OPTIONS)
        self.adam = torch.optim.AdamW(
            [p for n, p in named.items() if n not in MUON], **ADAM_OPTIONS)

    @property
    def optimizers(self):
        return [self.muon, self.adam]

    def step(self, grads):
        self.model.zero_grad()
        self.model(grads).backward()
        named = dict(self.model.named_parameters())
        for name, flat in self.flat.items():
            flat.grad = named[name].grad.flatten(1)
        self.muon.step()
        self.adam.step()
        with torch.no_grad():
            for name, flat in self.flat.items():
                named[name].copy_(flat.view_as(named[name]))


def decay(step):
    """A schedule: warm-up, then down."""
    return min(1.0, (step + 1) / 10) * (1 - step / 200)


def weights(model):
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def distances(ours, reference, start):
    """By parameter: how far apart, over how far the reference went."""
    return {name: float((ours[name] - reference[name]).norm()
                        / (reference[name] - start[name]).norm())
            for name in reference}
