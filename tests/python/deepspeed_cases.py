"""Which checkpoint is resumed by which run; names as in tests/interop/cases.py.

The cases are those that DeepSpeed's own load refuses, or loads wrongly without
a word.
"""
from dataclasses import dataclass, field


@dataclass
class Case:
    source: str
    target: str
    options: dict = field(default_factory=dict)  # Of resume.
    samples: int = 8  # Of the global batch of 8.
    # Another rule of clipping, or another unit: trained on, it is another run.
    same_training: bool = True
    # A run of the same values whose own resume by DeepSpeed is right.
    reference: str = ""
    momentum_factor: float = 1
    # Steps that the engine has trained before it resumes.
    trained: int = 0

    @property
    def title(self):
        how = f", which has trained {self.trained} steps" * bool(self.trained)
        return f"{self.source} -> {self.target}{how}"


@dataclass
class Refusal:
    source: str
    target: str
    error: str  # The class.
    words: str  # Of the message.
    # What makes the engine one that is refused: sets attributes.
    spoil: dict = field(default_factory=dict)

    @property
    def title(self):
        how = "".join(f" with {name}" for name in self.spoil)
        return f"{self.source} -> {self.target}{how} is refused"


@dataclass
class NotANumber:
    """One element of rank 0's momentum is NaN."""
    source: str
    target: str

    @property
    def title(self):
        return f"{self.source} with NaN -> {self.target}"


def bf16(stage, ranks, offload="none", variant="base"):
    return f"s{stage}-ws{ranks}-bf16-{offload}-{variant}"


FAMILIES = {
    "same": [
        Case(bf16(2, 2), bf16(2, 2)),
        Case(bf16(3, 2), bf16(3, 2)),
        Case(bf16(1, 2, variant="gacc32"), bf16(1, 2, variant="gacc32")),
        Case(bf16(3, 4, "cpu"), bf16(3, 4, "cpu")),
        Case(bf16(2, 2), bf16(2, 2), trained=2),
        Case(bf16(2, 4), bf16(2, 2, "cpu"), trained=2),
        Case(bf16(2, 2), bf16(3, 2, variant="inmem"), trained=2),
    ],
    "ranks": [
        Case(bf16(1, 2), bf16(1, 1)),
        Case(bf16(1, 2), bf16(1, 4)),
        Case(bf16(2, 2), bf16(2, 1)),
        Case(bf16(2, 4), bf16(2, 2)),
        # 3 ranks cannot share 8 samples: 2 each, of the first 6.
        Case(bf16(2, 4), bf16(2, 3), samples=6),
        Case(bf16(3, 2), bf16(3, 1)),
        Case(bf16(3, 4, "cpu"), bf16(3, 2, "cpu")),
        Case(bf16(3, 2), bf16(3, 4)),
    ],
    "stages": [
        Case(bf16(1, 2), bf16(2, 2)),
        Case(bf16(1, 2), bf16(3, 2)),
        Case(bf16(2, 2), bf16(3, 2)),
        Case(bf16(2, 2), bf16(3, 4)),
        Case(bf16(3, 2), bf16(1, 2)),
        Case(bf16(3, 2), bf16(2, 4)),
        Case("s2-ws2-fp32-none-base", "s3-ws2-fp32-cpu-base"),
    ],
    "offload": [
        Case(bf16(1, 1), bf16(1, 1, "cpu")),
        Case(bf16(1, 2), bf16(1, 2, "cpu")),
        Case(bf16(2, 2), bf16(2, 2, "cpu")),
        Case(bf16(2, 4), bf16(2, 4, "cpu")),
        Case(bf16(2, 2, "cpu"), bf16(2, 2)),
        Case(bf16(1, 4, "cpu"), bf16(1, 4)),
        Case(bf16(3, 2), bf16(3, 2, "cpu")),
        Case(bf16(3, 4, "cpu"), bf16(3, 4)),
        Case(bf16(3, 2), bf16(3, 2, "cpuparam")),
    ],
    "layouts": [
        Case(bf16(2, 2, variant="rr"), bf16(2, 2)),
        Case(bf16(2, 2), bf16(2, 2, variant="rr")),
        Case(bf16(2, 2, variant="rr"), bf16(3, 4)),
        Case(bf16(1, 2, variant="oddmid+palign"), bf16(2, 4, variant="oddmid")),
        Case(bf16(2, 2, "cpu", "oddmid+palign"), bf16(2, 2, variant="oddmid")),
        Case(bf16(1, 2, variant="oddmid+palign"),
             bf16(2, 4, variant="oddmid+palign")),
        Case(bf16(3, 2, variant="subgroup"), bf16(3, 2)),
        Case(bf16(3, 2), bf16(3, 2, variant="subgroup")),
        Case(bf16(3, 2), bf16(3, 2, variant="persist")),
        Case(bf16(3, 2, variant="subgroup"), bf16(2, 2)),
    ],
    "bf16optimizer": [
        Case(bf16(1, 2, variant="gacc32"), bf16(1, 2), same_training=False),
        Case(bf16(1, 2), bf16(1, 2, variant="gacc32"), same_training=False),
        Case(bf16(1, 2, variant="gacc32"), bf16(1, 4, variant="gacc32")),
        Case(bf16(3, 2), bf16(1, 2, variant="gacc32"), same_training=False),
    ],
    "inmemory": [
        Case(bf16(3, 2), bf16(3, 2, variant="inmem")),
        Case(bf16(3, 2), bf16(3, 2, "cpu", "inmem")),
        Case(bf16(3, 2, variant="inmem"), bf16(3, 2, variant="inmem"),
             reference=bf16(3, 2)),
        Case(bf16(3, 2, variant="inmem"), bf16(3, 2), reference=bf16(3, 2)),
        Case(bf16(2, 2), bf16(3, 4, variant="inmem+subgroup")),
    ],
    "order": [
        Case(bf16(2, 2), bf16(3, 2, variant="zinit")),
        Case(bf16(3, 2), bf16(3, 2, variant="zinit")),
        Case(bf16(3, 2, variant="zinit"), bf16(3, 2)),
        Case(bf16(3, 2, variant="zinit"), bf16(2, 2)),
        Case(bf16(3, 2, variant="zinit+subgroup"),
             bf16(3, 4, "cpu", "zinit+subgroup")),
    ],
    "variants": [
        Case(bf16(2, 2, variant="tied"), bf16(3, 2, variant="tied")),
        Case(bf16(3, 2, variant="tied"), bf16(2, 4, variant="tied")),
        Case(bf16(3, 2, variant="frozen"), bf16(2, 4, variant="frozen")),
        Case(bf16(1, 2, variant="frozen"), bf16(3, 2, variant="frozen")),
        Case(bf16(1, 2, variant="groups+sched"),
             bf16(2, 4, variant="groups+sched")),
        Case(bf16(2, 2, variant="buffer"), bf16(3, 4, variant="buffer")),
        Case(bf16(3, 2, "nvme", "swapall"), bf16(3, 2, "cpu", "subgroup"),
             same_training=False),
        Case(bf16(2, 2, variant="adamonly"), bf16(3, 2, variant="adamonly")),
        Case(bf16(2, 2, variant="adamonly"),
             bf16(2, 4, variant="adamonly+dsadam")),
    ],
    "fp16": [
        Case("s2-ws2-fp16-none-scaledoubled", "s2-ws4-fp16-none-base"),
        Case("s2-ws2-fp16-none-scaledoubled", "s2-ws2-fp16-cpu-base",
             {"momentum_scale": "auto"}, momentum_factor=1 / 256),
        Case("s2-ws2-fp16-cpu-scalemid", "s3-ws2-fp16-cpu-base"),
        Refusal("s2-ws2-fp16-none-scaledoubled", "s2-ws2-fp16-cpu-base",
                "UnsupportedError", "loss scale that the checkpoint does not"),
    ],
    "refused": [
        NotANumber(bf16(2, 2), bf16(3, 2)),
        Refusal(bf16(1, 2, variant="frozen"), bf16(2, 2), "NotFoundError",
                "was it frozen"),
        Refusal(bf16(2, 2), bf16(3, 2, variant="frozen"),
                "InvalidArgumentError", "does not train"),
        Refusal(bf16(2, 2), bf16(2, 2, variant="oddmid"), "NotFoundError",
                "odd2.weight"),
        Refusal(bf16(1, 2, variant="oddmid+palign"), bf16(1, 2),
                "InvalidArgumentError", "odd2.weight"),
        Refusal(bf16(1, 2, variant="elastic"), bf16(1, 2), "DataLossError",
                "does not hold element 90"),
        Refusal(bf16(2, 2, "cpu", "v0196"), bf16(2, 2), "NotFoundError",
                "no momentum"),
        Refusal(bf16(1, 2, variant="groups+sched"), bf16(3, 2),
                "InvalidArgumentError", "keep its groups"),
        Refusal(bf16(3, 2), bf16(3, 2), "UnsupportedError", "on NVMe",
                {"optimizer.swap_optimizer": True}),
        Refusal(bf16(3, 2), bf16(3, 2), "UnsupportedError", "experts",
                {"has_moe_layers": True}),
        Refusal(bf16(2, 2), bf16(2, 2), "UnsupportedError", "parallelism",
                {"mp_world_size": 2}),
    ],
}
