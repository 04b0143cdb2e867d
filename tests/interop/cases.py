"""Which checkpoint is converted to what.

A run is described as in tests/data/generators/gen_deepspeed.py: stage, ranks
(`ws`), precision, offload and variant.
"""
from dataclasses import dataclass, field


def parse_run(name):
    """"s2-ws4-bf16-none-base" as the keys that a run is made from."""
    stage, ranks, precision, offload, variant = name.split("-", 4)
    return {"name": name, "stage": int(stage[1:]), "ws": int(ranks[2:]),
            "precision": precision, "offload": offload, "variant": variant}


@dataclass
class Case:
    source: str  # A folder of tests/data/deepspeed.
    target: str  # The run that loads the result.
    options: list = field(default_factory=list)  # Further ones of ckpt-convert.
    samples: int = 8  # Of the global batch of 8.
    through_native: bool = False
    # Over a native tag that carries nothing beside its tensors.
    bare: bool = False
    # What the conversion multiplies the momentum by: another unit.
    momentum_factor: float = 1
    # The source has none; DeepSpeed starts with zeros.
    without_momentum: bool = False
    # The conversion is wrong on purpose: DeepSpeed must end elsewhere, and the
    # fingerprint must say so.
    wrong: bool = False

    @property
    def title(self):
        how = " through native" if self.through_native else ""
        how += " without carried state" if self.bare else ""
        how += " (wrong on purpose)" if self.wrong else ""
        return f"{self.source} -> {self.target}{how}"


def bf16(stage, ranks, offload="none", variant="base"):
    return f"s{stage}-ws{ranks}-bf16-{offload}-{variant}"


SORTED = ["--zero-init", "no"]
MODULE = ["--zero-init", "yes"]

FAMILIES = {
    "stages": [
        Case(bf16(1, 2), bf16(2, 2)),
        Case(bf16(2, 2), bf16(3, 2), SORTED),
        Case(bf16(3, 2), bf16(2, 2)),
        Case(bf16(3, 2), bf16(1, 2)),
    ],
    "ranks": [
        Case(bf16(2, 2), bf16(2, 1)),
        Case(bf16(2, 2), bf16(2, 4)),
        Case(bf16(2, 4), bf16(2, 2)),
        # 3 ranks cannot share 8 samples: 2 each, of the first 6.
        Case(bf16(2, 4), bf16(2, 3), samples=6),
        Case(bf16(3, 4, "cpu"), bf16(3, 2, "cpu")),
    ],
    "offload": [
        Case(bf16(2, 2), bf16(2, 2, "cpu")),
        Case(bf16(2, 2, "cpu"), bf16(2, 2)),
        Case(bf16(3, 2), bf16(3, 2, "cpu")),
        Case(bf16(3, 4, "cpu"), bf16(3, 4)),
    ],
    "variants": [
        Case(bf16(2, 2, variant="tied"), bf16(3, 2, variant="tied"), SORTED),
        Case(bf16(3, 2, variant="frozen"), bf16(2, 4, variant="frozen")),
        Case(bf16(1, 2, variant="frozen"), bf16(3, 2, variant="frozen"),
             SORTED),
        Case(bf16(1, 2, variant="groups+sched"),
             bf16(2, 4, variant="groups+sched")),
        Case(bf16(3, 2, variant="subgroup"), bf16(3, 4, variant="subgroup")),
        Case(bf16(2, 2), bf16(3, 4), SORTED, through_native=True),
        Case("s2-ws2-fp32-none-base", "s3-ws2-fp32-cpu-base", SORTED),
        # BF16_Optimizer stays one: it clips otherwise than the other classes, so
        # that training on under them is another run.
        Case(bf16(1, 2, variant="gacc32"), bf16(1, 4, variant="gacc32")),
    ],
    "fp16": [
        Case("s2-ws2-fp16-none-scaledoubled", "s2-ws4-fp16-none-base"),
        Case("s2-ws2-fp16-none-scaledoubled", "s2-ws2-fp16-cpu-base",
             ["--momentum-scale", "auto"], momentum_factor=1 / 256),
        Case("s2-ws2-fp16-cpu-scalemid", "s3-ws2-fp16-cpu-base", SORTED),
    ],
    # What a source does not tell has DeepSpeed's defaults.
    "bare": [
        Case(bf16(2, 2), bf16(2, 4), bare=True),
        Case(bf16(2, 2), bf16(3, 2), SORTED, bare=True),
        Case(bf16(3, 2), bf16(1, 2, "cpu"), bare=True),
        Case("s2-ws2-bf16-cpu-v0196", bf16(2, 2), without_momentum=True),
        Case("s2-ws2-bf16-cpu-v0189", bf16(3, 2), SORTED,
             without_momentum=True),
    ],
    "order": [
        Case(bf16(2, 2), bf16(3, 2, variant="zinit"), MODULE),
        Case(bf16(3, 2, variant="zinit"), bf16(2, 2, variant="base")),
        Case(bf16(3, 2, variant="zinit"), bf16(3, 4, "cpu", "zinit"), MODULE),
        Case(bf16(2, 2), bf16(3, 2, variant="zinit"), SORTED, wrong=True),
        Case(bf16(2, 2), bf16(3, 2), MODULE, wrong=True),
    ],
}
