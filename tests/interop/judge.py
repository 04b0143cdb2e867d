"""How far a converted run may be from the original one.

The loaded state must be equal bit for bit, by parameter name. Training on from
it is not bitwise comparable at another stage, rank count or offload mode:
gradients are averaged in another order and rounded to bf16 at other places,
and Newton-Schulz runs in bf16 or in float32. How much that adds was measured on
DeepSpeed alone: runs of eight steps from the same seed, at stages 1 to 3, 1 to
4 ranks, with and without offload and zero.Init (the runs that made tests/data),
end at most 0.0064 apart in a master and 0.0042 in a loss, and the momentum of a
matrix differs by at most 2.9 % of its norm. Three steps may add no more; the
tolerances leave half as much again, or twice for the momentum.

What a wrong state shows, also measured: with its momentum zeroed, a run ends
with momenta that differ by 66 to 73 % of their norm (and masters by 0.002 only:
losses and masters alone would not tell); a wrong order differs by more than 1 in
the masters already after the load.
"""
import math

import numpy as np

MASTER_TOLERANCE = 0.01
LOSS_TOLERANCE = 0.0065  # Of about 4.5.
MOMENTUM_TOLERANCE = 0.05  # Of a matrix's Frobenius norm.


def max_difference(a, b):
    """Largest absolute difference by kind, and keys that one side lacks."""
    worst = {}
    for key in a.keys() & b.keys():
        kind = key.split("/", 1)[0]
        if np.shape(a[key]) != np.shape(b[key]):
            worst[kind] = math.inf
        elif np.size(a[key]):
            gap = np.abs(np.asarray(a[key], np.float64) -
                         np.asarray(b[key], np.float64)).max()
            worst[kind] = max(worst.get(kind, 0.0), float(gap))
    return worst, sorted(a.keys() ^ b.keys())


def state_problems(golden, loaded):
    worst, lacking = max_difference(golden, loaded)
    problems = [f"after the load {kind} differs by {gap:.3g}"
                for kind, gap in worst.items() if gap != 0]
    if lacking:
        problems.append(f"only on one side: {lacking[:5]}")
    return problems


def zero_momentum_problems(seen):
    """Of a run that resumed without momentum: none after the load, and some
    after training."""
    problems = []
    for when, expected in (("loaded", False), ("final", True)):
        moved = any(np.any(np.asarray(value)) for key, value in
                    seen[when].items() if key.startswith("momentum_buffer/"))
        if moved != expected:
            problems.append(f"{when}: momentum is {'not ' * expected}there")
    if not all(math.isfinite(loss) for loss in seen["losses"]):
        problems.append(f"losses {seen['losses']}")
    return problems


def momentum_difference(a, b):
    """Of the worst matrix, relative to its norm."""
    worst = 0.0
    for key in a:
        if key.startswith("momentum_buffer/"):
            x, y = (np.asarray(side[key], np.float64) for side in (a, b))
            worst = max(worst, np.linalg.norm(x - y) / np.linalg.norm(x))
    return float(worst)


def training_problems(reference, seen, same_unit=True):
    """Problems, and the differences for people. Momenta in other units are not
    compared after training: DeepSpeed adds gradients of several loss scales."""
    gap = max(abs(a - b) for a, b in zip(reference["losses"], seen["losses"]))
    worst, _ = max_difference(reference["final"], seen["final"])
    problems = []
    if not gap <= LOSS_TOLERANCE:
        problems.append(f"losses differ by {gap:.3g}: {reference['losses']} "
                        f"and {seen['losses']}")
    if not worst["fp32"] <= MASTER_TOLERANCE:
        problems.append(f"masters differ by {worst['fp32']:.3g} after training")
    momenta = momentum_difference(reference["final"], seen["final"])
    if same_unit and not momenta <= MOMENTUM_TOLERANCE:
        problems.append(f"momenta differ by {momenta:.3g} of their norm")
    if reference["lr"] != seen["lr"]:
        problems.append(f"learning rates {seen['lr']}, not {reference['lr']}")
    return problems, (f"losses within {gap:.2g}, masters within "
                      f"{worst['fp32']:.2g}, momenta within {momenta:.2g}")


def verdict(cases):
    """Runs (title, function that gives problems) pairs; the exit code."""
    failed = 0
    for title, problems_of in cases:
        print(title, flush=True)
        try:
            problems = problems_of()
        except RuntimeError as error:
            problems = [str(error)]
        for problem in problems:
            print(f"  FAILED: {problem}", flush=True)
        failed += bool(problems)
    print(f"{failed} of the cases failed" if failed else "all hold")
    return 1 if failed else 0
