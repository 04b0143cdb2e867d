#!/usr/bin/env python3
"""The steps of scripts/demo: runs the tools, checks what they say.

    demo_steps.py build/release/bin tests/data/deepspeed
"""
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile

BIN, DATA = sys.argv[1:3]


class Claim(Exception):
    """Something that the demo claims does not hold."""


def tool(name, *arguments, exit_code=0):
    """The JSON that a tool prints; its exit code must be as expected."""
    run = subprocess.run([f"{BIN}/{name}", *arguments, "--json"],
                         capture_output=True, text=True)
    if run.returncode != exit_code:
        raise Claim(f"{name} {' '.join(arguments)} ended with "
                    f"{run.returncode}, not {exit_code}: {run.stderr.strip()}")
    return json.loads(run.stdout)


def inspect(*arguments, exit_code=0):
    return tool("ckpt-inspect", *arguments, exit_code=exit_code)


def require(condition, what):
    if not condition:
        raise Claim(what)


def case(name):
    return f"{DATA}/{name}/ckpt"


def summary(name):
    s = inspect("summary", case(name))
    muon, adam = s["groups"]
    require((muon["optimizer"], adam["optimizer"]) == ("muon", "adam"),
            "a Muon and an Adam group")
    require(muon["num_elements"] + adam["num_elements"] == 12251,
            "all elements of the model")
    return (f"{s['producer']}, ZeRO-{s['stage']}, {s['num_ranks']} ranks, "
            f"{s['precision']}, offload {s['offload']}, step {s['step']}: "
            f"{muon['num_parameters']} Muon matrices and "
            f"{adam['num_parameters']} Adam parameters")


def verify(*names):
    files = 0
    for name in names:
        report = inspect("verify", case(name))
        require(report["whole"] and not report["num_faults"], "no fault")
        files += report["num_files"]
    return (f"all {files} files of {len(names)} checkpoints match their "
            "checksums; every element is covered once")


def momentum(name):
    report = inspect("momentum", case(name))
    worst = report["matrices"][0]
    require(len(report["matrices"]) == 9 and not report["flagged"],
            "9 matrices, none flagged")
    return (f"9 momentum matrices are finite and none is zero; the lowest "
            f"stable rank is {worst['stats']['stable_rank']:.2f} "
            f"({worst['parameter']})")


def same(a, b, what):
    report = inspect("diff", case(a), case(b))
    require(report["same_state"] and report["counts"]["different"] == 0,
            "the same state")
    return f"{what}: the same state, {report['counts']['equal']} tensors equal"


def different(a, b, what):
    report = inspect("diff", case(a), case(b), exit_code=1)
    require(not report["same_state"], "different state")
    worst = max(report["tensors"], key=lambda t: t["max_abs"])
    return (f"{what}: {report['counts']['different']} tensors differ, most by "
            f"{worst['max_abs']:.2g} ({worst['parameter']}/{worst['state']})")


def flipped_bit(name, folder):
    """One bit in the middle of rank 1's payloads is damage that a load by
    torch does not see."""
    copy = os.path.join(folder, "ckpt")
    shutil.copytree(case(name), copy)
    file = "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
    with open(os.path.join(copy, "step5", file), "r+b") as f:
        f.seek(os.path.getsize(f.name) // 2)
        byte = f.read(1)[0]
        f.seek(-1, os.SEEK_CUR)
        f.write(bytes([byte ^ 1]))
    findings = inspect("verify", copy, exit_code=1)["findings"]
    faults = [f for f in findings
              if f["code"] == "checksum" and (f["file"] or "").endswith(file)]
    require(len(faults) == 1, "one damaged record in that file")
    return (f"one bit flipped in a copy: {faults[0]['message']} in rank 1's "
            f"file ({faults[0]['tensor']})")


def elastic(name):
    error = inspect("momentum", case(name), exit_code=4)["error"]
    require("odd.weight" in json.dumps(error), "the error names the matrix")
    report = inspect("momentum", case(name), "--allow-loss")
    require(report["flagged"] == {"missing": 1}, "one matrix is missing")
    return ("a momentum that DeepSpeed truncated is refused by name; "
            f"--allow-loss reads the other {len(report['matrices']) - 1}")


def convert(name, folder):
    """ZeRO-2 on 2 ranks -> native -> ZeRO-3 on 4 ranks."""
    native, zero3 = f"{folder}/native", f"{folder}/zero3"
    tool("ckpt-convert", case(name), native, "--to", "native")
    tool("ckpt-convert", native, zero3, "--to", "deepspeed", "--stage", "3",
         "--world-size", "4", "--zero-init", "no")
    files = sum(inspect("verify", root)["num_files"]
                for root in (native, zero3))
    s = inspect("summary", zero3)
    require((s["stage"], s["num_ranks"]) == (3, 4), "ZeRO-3 on 4 ranks")
    report = inspect("diff", case(name), zero3)
    require(report["same_state"], "the same state")
    return (f"ZeRO-2 on 2 ranks to native to ZeRO-3 on 4 ranks: {files} files "
            f"are whole, {report['counts']['equal']} tensors equal the source")


def losses(path, *flags, steps=20):
    """The loss of each step of a short training, by step."""
    command = [f"{BIN}/train_gpt", "--steps", str(steps), "--csv", path, *flags]
    run = subprocess.run(command, capture_output=True, text=True)
    require(run.returncode == 0,
            f"{' '.join(command)} trains: {run.stderr.strip()}")
    with open(path) as f:
        return {int(row["step"]): float(row["loss"])
                for row in csv.DictReader(f)}


def deviation(curve, baseline, limit):
    """Of losses, relative; of the steps that the curve has."""
    worst = max(abs(loss - baseline[step]) / baseline[step]
                for step, loss in curve.items())
    require(worst <= limit, f"losses within {limit:.0e}, not {worst:.1e}")
    return worst


def train(folder):
    """The live half: optimizer state of a GPT in the store."""
    baseline = losses(f"{folder}/baseline.csv", "--baseline")
    stored = losses(f"{folder}/stored.csv", "--ranks", "2", "--stage", "2",
                    "--newton-schulz", "standard")
    require(list(baseline) == list(stored) == list(range(1, 21)), "20 steps")
    worst = deviation(stored, baseline, 1e-5)
    return (f"a GPT under ZeRO-2 on 2 ranks, Muon and Adam state in the store: "
            f"loss {stored[1]:.3f} -> {stored[20]:.3f} in 20 steps, within "
            f"{worst:.0e} of plain Muon and AdamW in one process")


def killed_training(root):
    """Losses of a run that saves at step 20 while it goes on, killed once it
    has done 25 steps and the checkpoint is durable."""
    command = [f"{BIN}/train_gpt", "--steps", "1000", "--ranks", "2", "--stage",
               "2", "--newton-schulz", "standard", "--save-every", "20",
               "--async", "--save-dir", root]
    run = subprocess.Popen(command, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)
    curve, saved = {}, None
    for line in run.stdout:
        words = line.split()
        if words[0] == "saved":
            saved = saved or line
        elif words[0] == "step":
            curve[int(words[1].split("/")[0])] = float(words[3])
        if saved and max(curve, default=0) >= 25:
            break
    run.kill()
    _, errors = run.communicate()
    require(saved is not None, f"the run saves: {errors.strip()}")
    return curve


def resume(folder):
    """From a kill to another number of ranks, another stage, another tier."""
    root, disk = f"{folder}/run", f"{folder}/disk"
    os.mkdir(disk)
    killed = killed_training(root)
    baseline = losses(f"{folder}/long.csv", "--baseline", steps=40)
    before = {step: loss for step, loss in killed.items() if step <= 40}
    deviation(before, baseline, 1e-5)
    newest = inspect("list", root)["tags"][-1]
    require(newest["complete"], "a whole checkpoint")
    after = losses(f"{folder}/resumed.csv", "--ranks", "3", "--stage", "3",
                   "--newton-schulz", "standard", "--resume", root, "--tier",
                   "nvme", "--nvme-dir", disk, steps=newest["step"] + 20)
    if newest["step"] > 20:
        baseline = losses(f"{folder}/long.csv", "--baseline",
                          steps=newest["step"] + 20)
    require(min(after) == newest["step"] + 1, "no step is repeated or left out")
    require(not os.listdir(disk), "nothing is left on the disk")
    worst = deviation(after, baseline, 1e-5)
    return (f"saved at step {newest['step']} while training went on, killed at "
            f"step {max(killed)}, resumed on 3 ranks under ZeRO-3 with state on "
            f"NVMe: steps {min(after)} to {max(after)} within {worst:.0e} of "
            "the baseline's losses")


def steps(folder):
    yield summary, "s2-ws2-fp32-none-base"
    yield summary, "s3-ws2-fp32-cpu-base"
    yield (verify, "s2-ws2-fp32-none-base", "s3-ws2-fp32-cpu-base",
           "s3-ws2-bf16-nvme-swapall", "s2-ws11-bf16-none-ws11")
    yield momentum, "s2-ws2-fp32-none-base"
    yield (same, "s2-ws2-fp32-none-base", "s3-ws2-fp32-cpu-base",
           "ZeRO-2 and ZeRO-3 with CPU offload, fp32")
    yield (same, "s3-ws2-bf16-none-base", "s3-ws2-bf16-none-zinit+subgroup",
           "ZeRO-3 sorted, and in module order and sub-groups, bf16")
    yield (different, "s2-ws2-bf16-none-base", "s3-ws2-bf16-none-base",
           "ZeRO-2 and ZeRO-3, bf16 (they round differently)")
    yield flipped_bit, "s2-ws2-bf16-none-base", folder
    yield elastic, "s1-ws2-bf16-none-elastic"
    yield convert, "s2-ws2-bf16-none-base", folder
    yield train, folder
    yield resume, folder


def main():
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for step, *arguments in steps(folder):
            name = step.__name__.replace("_", " ")
            try:
                print(f"ok    {name:<12} {step(*arguments)}", flush=True)
            except Claim as claim:
                failed += 1
                print(f"WRONG {name:<12} not so: {claim}", flush=True)
    print(f"{failed} claims do not hold" if failed else "all of it holds")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
