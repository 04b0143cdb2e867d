#!/usr/bin/env python3
"""muonstore.deepspeed.save from real DeepSpeed engines.

    deepspeed_save_test.py [SUBSTRING...]   exit code 77 without DeepSpeed

An engine trains, saves while it trains on, and is gone. What was saved must be
the state at the call: resumed by another engine, and, converted, by DeepSpeed
itself, which train on as the first one did.
"""
import functools
import os
import pathlib
import pickle
import sys
import tempfile

import deepspeed_test as resuming  # Exits with 77 without DeepSpeed.
import judge
import muonstore
from cases import parse_run
from deepspeed_test import deepspeed_run
from deepspeed_types import keep_types
from muonstore.deepspeed import _save, resume, save
from muonstore.deepspeed._ranks import Ranks

gen = deepspeed_run.gen
# Trained as, resumed as, and what DeepSpeed loads after a conversion.
CASES = [
    ("s2-ws2-bf16-none-base", "s3-ws4-bf16-cpu-base", "s1-ws4-bf16-none-base"),
    ("s2-ws4-bf16-cpu-base", "s2-ws2-bf16-none-rr", "s2-ws2-bf16-cpu-base"),
    ("s3-ws2-bf16-none-frozen", "s2-ws2-bf16-none-frozen",
     "s2-ws4-bf16-none-frozen"),
    ("s3-ws2-bf16-none-zinit+tied", "s3-ws4-bf16-none-tied",
     "s2-ws2-bf16-none-tied"),
    ("s1-ws2-bf16-none-gacc32", "s1-ws4-bf16-none-gacc32",
     "s1-ws2-bf16-none-gacc32"),
    ("s1-ws2-bf16-none-groups+sched", "s3-ws2-bf16-none-groups+sched",
     "s2-ws2-bf16-none-groups+sched"),
    ("s2-ws2-bf16-none-oddmid+palign", "s2-ws4-bf16-none-oddmid",
     "s2-ws4-bf16-none-oddmid+palign"),
    ("s2-ws2-bf16-none-buffer", "s3-ws2-bf16-none-buffer",
     "s2-ws4-bf16-none-buffer"),
    ("s2-ws2-fp16-none-base", "s2-ws4-fp16-none-base",
     "s2-ws4-fp16-none-base"),
]


def make_engine(run):
    make = deepspeed_run.make_engine_with_groups \
        if "groups" in run["variant"] else gen.make_engine
    engine, _ = make(run, gen.SEED)
    gen.train_steps(engine, run, 0, gen.STEPS_BEFORE)
    return engine


def train_and_save(run):
    """In each rank's process."""
    engine = make_engine(run)
    state, *_ = gen.gather_full(engine, run)
    handle = save(engine, run["root"], "step5",
                  client_state={"fixture": "x", "rank": run["rank"]})
    losses = gen.train_steps(engine, run, gen.STEPS_BEFORE, gen.STEPS_AFTER)
    handle.wait()
    assert handle.done and handle.path == run["root"] + "/step5"
    final, *_ = gen.gather_full(engine, run)
    if run["rank"] == 0:
        seen = {"state": state, "final": final,
                "losses": [step["mean"] for step in losses],
                "lr": [step["lr"] for step in losses]}
        with open(run["result"], "wb") as f:
            pickle.dump(seen, f)
    return {}


def names_in(root):
    return sorted(str(p.relative_to(root))
                  for p in pathlib.Path(root).rglob("*"))


def fails(work, words):
    try:
        work()
    except muonstore.Error as error:
        assert words in str(error), error
        return
    raise AssertionError(f"did not fail: {words}")


def save_and_fail(run):
    """Every failure is every rank's, and leaves what was there."""
    engine, root, rank = make_engine(run), run["root"], run["rank"]
    ranks = gen.deepspeed.comm
    save(engine, root, "a", asynchronous=False)
    ranks.barrier()  # Rank 0 gives its lock back.
    before = names_in(root)
    fails(lambda: save(engine, root, "a"), "exists")
    fails(lambda: save(engine, root, "b", client_state={"module": 1}),
          "DeepSpeed's own")
    fails(lambda: save(engine, root, "../b"), "tag")
    fails(lambda: save(engine.module, root, "b"), "no engine")

    prepare = _save._prepare

    def spoiled(*arguments):
        job = prepare(*arguments)
        if rank == 1:
            job._arrays[0] = job._arrays[0][:-1]  # Too short to be written.
        return job

    _save._prepare = spoiled
    handle = save(engine, root, "b")
    fails(handle.wait, "")
    fails(handle.wait, "")
    _save._prepare = prepare
    ranks.barrier()
    assert names_in(root) == before, names_in(root)

    # A second save waits for the first; a tag is replaced as a whole.
    gen.train_steps(engine, run, gen.STEPS_BEFORE, 1)
    save(engine, root, "b", set_latest=False)
    save(engine, root, "a", overwrite=True, zstd=3).wait()
    ranks.barrier()
    assert muonstore.open(root).tag == "a"
    for tag in ("a", "b"):
        assert muonstore.open(root, tag).summary["step"] == 6
        assert muonstore.verify(root, tag)["whole"]
    assert muonstore.diff(root + "/a", root + "/b")["same_state"]
    prune_old_tags(engine, root, rank)
    return {}


def prune_old_tags(engine, root, rank):
    """Of three tags of one step that which is new stays; "b" is the oldest."""
    fails(lambda: save(engine, root, "c", keep=-1), "not negative")
    handle = save(engine, root, "c", keep=1)
    handle.wait()
    gen.deepspeed.comm.barrier()
    assert handle.pruned == (["b", "a"] if rank == 0 else []), handle.pruned
    assert [name for name in names_in(root) if "/" not in name] == [
        "c", "latest"], names_in(root)


def fail_differently(rank):
    """The class is the first Error's; what is none stays with its rank."""
    def fail(*errors):
        if errors[rank] is not None:
            raise errors[rank]

    lost = muonstore.DataLossError("DataLoss", "a.pt: lost", "lost", "a.pt")
    absent = muonstore.NotFoundError("NotFound", "no such tag")
    ended = ZeroDivisionError("ended")
    unavailable = muonstore.UnavailableError
    for errors, classes in (
            ((lost, None), (type(lost), type(lost))),
            ((absent, lost), (type(absent), type(absent))),
            ((ended, lost), (ZeroDivisionError, type(lost))),
            ((ended, None), (ZeroDivisionError, unavailable))):
        try:
            Ranks(None).together(lambda errors=errors: fail(*errors))
        except Exception as error:
            assert type(error) is classes[rank], (rank, repr(error))
            if errors[0] is lost:
                assert (error.message, error.file) == ("lost", "a.pt"), error
        else:
            raise AssertionError(errors)


def save_and_damage(run):
    """What one rank reads is damaged: all fail alike, and all go on alike."""
    engine, root, rank = make_engine(run), run["root"], run["rank"]
    for tag in ("older", "newer"):
        save(engine, root, tag, asynchronous=False)
    gen.deepspeed.comm.barrier()
    (path,) = pathlib.Path(root, "newer").glob("rank-00001.*.h5")
    if rank == 0:
        content = bytearray(path.read_bytes())
        content[8192] ^= 1  # A master, which rank 1 alone reads.
        path.write_bytes(content)
    gen.deepspeed.comm.barrier()
    fail_differently(rank)
    try:
        resume(engine, root, "newer")
    except muonstore.DataLossError as error:
        assert error.file == str(path) and error.offset_bytes, error.args
        assert ("rank 1: " in str(error)) == (rank == 0), (rank, str(error))
        resumed = resume(engine, root, "older")
        assert resumed.tag == "older", resumed
        return {}
    raise AssertionError("nothing was found")


def save_packed(run):
    """By OffloadMuon, with matrices that DeepSpeed does not tell apart."""
    model = gen.build_model(run["variant"], gen.SEED)
    names = [f"blocks.{i}.attn.qkv.weight" for i in range(2)]
    optimizer = muonstore.OffloadMuon(
        model.named_parameters(), num_threads=1,
        layouts={name: "packed_rows[24,24,24]" for name in names})
    sum(p.sum() for p in model.parameters()).backward()
    optimizer.step()
    optimizer.save(run["root"], "packed")
    optimizer.close()
    gen.deepspeed.comm.barrier()
    notes = resume(make_engine(run), run["root"]).notes
    words = ", ".join(f"{name} (packed_rows[24,24,24])" for name in names)
    assert any(note.endswith(words) for note in notes), notes
    return {}


def save_types(run):
    keep_types(make_engine(run), run["root"], run["rank"])
    return {}


def in_ranks(phase, name, folder, root):
    gen.PH["train"], gen.LOGDIR = phase, f"{folder}/logs"
    os.makedirs(folder, exist_ok=True)
    outcome = gen.run("train", {**parse_run(name), "root": root,
                                "result": f"{folder}/seen", "dir": folder})
    if not outcome["ok"]:
        raise RuntimeError(f"{outcome['error']} at {outcome.get('at')}; logs "
                           f"are in {gen.LOGDIR}")


def case_problems(scratch, trained, resumed, converted):
    folder = tempfile.mkdtemp(dir=scratch)
    root, out = f"{folder}/root", f"{folder}/out"
    in_ranks(train_and_save, trained, folder, root)
    with open(f"{folder}/seen", "rb") as f:
        first = pickle.load(f)
    problems = [str(f) for f in muonstore.verify(root)["findings"]]
    summary = muonstore.open(root).summary
    carried = {value["path"] for value in summary["carried"]}
    if not {"client_state.fixture", "client_state.rank"} <= carried:
        problems.append(f"the summary lists as carried {carried}")
    cell = parse_run(converted)
    layout = {} if cell["stage"] < 3 else {"zero_init": False}
    if "palign" in converted:
        layout["ds_config"] = f"{folder}/config.json"
        with open(layout["ds_config"], "w") as f:
            f.write('{"zero_optimization": {"stage": 2, '
                    '"parameter_alignment": true}, "bf16": {"enabled": true}}')
    muonstore.convert(root, out, to="deepspeed", verify=True,
                      stage=cell["stage"], world_size=cell["ws"],
                      offload=cell["offload"], **layout)
    for name, where, load in (
            (resumed, root, resuming.by_resume({})),
            (converted, out, deepspeed_run.load_by_deepspeed)):
        seen = deepspeed_run.run(parse_run(name), where,
                                 f"{tempfile.mkdtemp(dir=folder)}/run",
                                 load=load)
        problems += judge.state_problems(first["state"], seen["loaded"])
        problems += seen["notes"]
        training, words = judge.training_problems(first, seen)
        print(f"  {name}: {words}")
        problems += training
        if not {"fixture", "rank"} <= set(seen["client"]):
            problems.append(f"client state {seen['client']}")
    return problems


def phase_problems(scratch, phase, run="s2-ws2-bf16-none-base"):
    folder = tempfile.mkdtemp(dir=scratch)
    in_ranks(phase, run, folder, f"{folder}/root")
    return []


def main():
    wanted = sys.argv[1:] or [""]
    with tempfile.TemporaryDirectory() as scratch:
        cases = [(f"{case[0]} saved", functools.partial(case_problems, scratch,
                                                        *case))
                 for case in CASES]
        cases += [(title, functools.partial(phase_problems, scratch, phase))
                  for title, phase in (
                      ("a save that fails", save_and_fail),
                      ("a damaged file fails alike", save_and_damage),
                      ("s2-ws2-bf16-none-base keeps types", save_types),
                      ("a layout fails to be DeepSpeed's", save_packed))]
        stage3 = "s3-ws2-bf16-none-base"
        cases.append((f"{stage3} keeps types", functools.partial(
            phase_problems, scratch, save_types, stage3)))
        return judge.verdict(case for case in cases
                             if any(part in case[0] for part in wanted))


if __name__ == "__main__":
    sys.exit(main())
