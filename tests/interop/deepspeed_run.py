"""One run of real DeepSpeed: load a checkpoint, look at the state, train.

The model, the data and the gathering of state by hand are those that made
tests/data (tests/data/generators). One parent imports torch and DeepSpeed once;
every rank of every run is a fresh fork of it.
"""
import functools
import os
import pathlib
import pickle
import sys

import cpuinfo

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "data" / "generators"),
                str(HERE.parents[1] / "scripts")]

import gen_deepspeed as gen  # noqa: E402

make_engine_with_groups = gen.make_engine
import gen_deepspeed2  # noqa: E402,F401  Teaches gen_deepspeed more variants,
# but not several param groups.
import deepspeed_fingerprint  # noqa: E402

# DeepSpeed asks twice in each rank, and an answer takes seconds.
cpuinfo.get_cpu_info = functools.cache(cpuinfo.get_cpu_info)
cpuinfo.get_cpu_info()

STEPS = 3
FULL_BATCH = gen.GB


def load_by_deepspeed(engine, run):
    """The client state."""
    path, client = engine.load_checkpoint(run["root"], tag=run["tag"])
    if path is None:
        raise RuntimeError("DeepSpeed found no checkpoint")
    return client


def _load_and_train(run):
    """In each rank's process; rank 0 writes what it saw."""
    full_batch = gen.batch

    def batch(step):
        gen.GB = FULL_BATCH  # The data do not depend on how many are taken.
        tokens, targets = full_batch(step)
        gen.GB = run["samples"]
        return tokens[:gen.GB], targets[:gen.GB]

    gen.batch, gen.GB = batch, run["samples"]
    make_engine = (make_engine_with_groups if "groups" in run["variant"]
                   else gen.make_engine)
    engine, _ = make_engine(run, gen.SEED + 99)  # Nothing survives of init.
    client = run["load"](engine, run)
    problems = None
    if run["fingerprint"]:
        problems = deepspeed_fingerprint.check(engine, run["fingerprint"])
    loaded, _, notes, _ = gen.gather_full(engine, run)
    losses = gen.train_steps(engine, run, gen.STEPS_BEFORE, STEPS)
    final, _, more_notes, _ = gen.gather_full(engine, run)
    if run["rank"] == 0:
        seen = {"loaded": loaded, "final": final, "notes": notes + more_notes,
                "losses": [step["mean"] for step in losses],
                "lr": [step["lr"] for step in losses],
                "fingerprint_problems": problems,
                "client": sorted(client or {}),
                "global_steps": engine.global_steps}
        with open(run["result"], "wb") as f:
            pickle.dump(seen, f)
    return {}


gen.PH["resume"] = _load_and_train


def run(cell, root, folder, samples=FULL_BATCH, fingerprint=None,
        load=load_by_deepspeed):
    """What rank 0 saw; RuntimeError with DeepSpeed's words if it failed.
    `folder` must be new; it keeps the logs. `load(engine, run)` fills the
    engine, on every rank, and gives the client state."""
    os.makedirs(folder)
    result = os.path.join(folder, "result.pickle")
    gen.LOGDIR = os.path.join(folder, "logs")
    outcome = gen.run("resume", {
        **cell, "root": root, "tag": "step5", "result": result, "dir": folder,
        "samples": samples, "fingerprint": fingerprint, "load": load,
        "nvme_path": os.path.join(folder, "nvme")})
    if not outcome["ok"]:
        raise RuntimeError(f"{outcome['error']} at {outcome.get('at')}; logs "
                           f"are in {gen.LOGDIR}")
    with open(result, "rb") as f:
        return pickle.load(f)
