#!/usr/bin/env python3
"""muonstore.deepspeed.resume into real DeepSpeed engines.

    deepspeed_test.py FAMILY [SUBSTRING]      exit code 77 without DeepSpeed

Each rank is a process, CPU and gloo. The state after resuming must be the
golden one, bit for bit and by name; training on must be the run that DeepSpeed
itself resumed from the original, within tests/interop/judge.py's tolerances.
A refused engine must be as it was.
"""
import contextlib
import functools
import os
import pathlib
import shutil
import sys
import tempfile

from data import REPOSITORY, root

SKIPPED = 77
sys.path[:0] = [str(REPOSITORY / "tests" / "interop")]

try:
    import deepspeed_run
except ImportError as error:
    print(f"skipped: {error}; scripts/setup_interop installs DeepSpeed")
    sys.exit(SKIPPED)
import judge
import numpy as np
import torch
import torch.distributed as dist
from cases import parse_run
from data import golden
from deepspeed_cases import FAMILIES, NotANumber, Refusal
from muonstore.deepspeed import resume

AT_SAVE = ("fp32/", "momentum_buffer/", "exp_avg/", "exp_avg_sq/", "step/")


def by_resume(options, trained=0):
    """Fills an engine as deepspeed_run wants it, after some training."""
    def load(engine, run):
        deepspeed_run.gen.train_steps(engine, run, 20, trained)
        resumed = resume(engine, run["root"], run["tag"], **options)
        assert resumed.tag == run["tag"], resumed
        assert resumed.step == engine.global_steps == 5, resumed
        return resumed.client_state
    return load


def refused_as(case):
    """Resuming must fail by name and change nothing."""
    def load(engine, run):
        before, *_ = deepspeed_run.gen.gather_full(engine, run)
        with spoiled(engine, case.spoil):
            try:
                resume(engine, run["root"], run["tag"])
            except Exception as error:
                assert type(error).__name__ == case.error, repr(error)
                assert case.words in str(error), error
            else:
                raise AssertionError("it was not refused")
        after, *_ = deepspeed_run.gen.gather_full(engine, run)
        worst, lacking = judge.max_difference(before, after)
        assert not any(worst.values()) and not lacking, (worst, lacking)
        return {}
    return load


def put_nan(source, to):
    """A copy of the checkpoint with one NaN in rank 0's momentum."""
    shutil.copytree(source, to)
    (path,) = to.glob("*/*_rank_0_*_optim_states.pt")
    content = torch.load(path, weights_only=False)
    base = content["optimizer_state_dict"]["base_optimizer_state"]
    base["state"][0]["momentum_buffer"][0] = float("nan")
    torch.save(content, path)
    return to


def noted(engine, run):
    """Resumes, and some rank must tell of the NaN."""
    resumed = resume(engine, run["root"], run["tag"])
    notes = [None] * dist.get_world_size()
    dist.all_gather_object(notes, resumed.notes)
    assert any(" has NaN" in note for rank in notes for note in rank), notes
    return resumed.client_state


@contextlib.contextmanager
def spoiled(engine, attributes):
    """The engine with other attributes: "optimizer.swap_optimizer": True."""
    places = []
    for path, value in attributes.items():
        *owners, name = path.split(".")
        owner = functools.reduce(getattr, owners, engine)
        places.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)
    try:
        yield
    finally:
        for owner, name, value in places:
            setattr(owner, name, value)


class Judge:
    def __init__(self, scratch):
        self.scratch = scratch
        self.references = {}

    def folder(self):
        return os.path.join(tempfile.mkdtemp(dir=self.scratch), "run")

    def reference(self, case):
        """DeepSpeed's own resume of the original; on fewer samples than its
        ranks can share, ours on one rank."""
        source = case.reference or case.source
        key = (source, case.samples)
        if key not in self.references:
            cell, options = parse_run(source), {}
            if case.samples % cell["ws"]:
                cell["ws"] = 1
                options["load"] = by_resume({})
            self.references[key] = deepspeed_run.run(
                cell, root(source), self.folder(), case.samples, **options)
        return self.references[key]

    def run(self, case, load):
        return deepspeed_run.run(parse_run(case.target), root(case.source),
                                 self.folder(), getattr(case, "samples", 8),
                                 load=load)

    def problems(self, case):
        if isinstance(case, Refusal):
            self.run(case, refused_as(case))
            return []
        if isinstance(case, NotANumber):
            return self.nan_problems(case)
        seen = self.run(case, by_resume(case.options, case.trained))
        values = golden(case.source)
        state = {key: value * case.momentum_factor
                 if key.startswith("momentum_buffer/") else value
                 for key, value in values.items() if key.startswith(AT_SAVE)}
        found = judge.state_problems(state, seen["loaded"]) + seen["notes"]
        if "fixture" not in seen["client"]:
            found.append(f"client state {seen['client']}")
        if not np.all(np.isfinite(seen["losses"])):
            found.append(f"losses {seen['losses']}")
        if not case.same_training:
            return found
        training, words = judge.training_problems(
            self.reference(case), seen, case.momentum_factor == 1)
        print(f"  {words}")
        return found + training

    def nan_problems(self, case):
        spoiled_root = put_nan(root(case.source),
                               pathlib.Path(self.scratch, "nan"))
        seen = deepspeed_run.run(parse_run(case.target), spoiled_root,
                                 self.folder(), load=noted)
        found = []
        for key, value in golden(case.source).items():
            if not key.startswith(AT_SAVE):
                continue
            loaded = np.asarray(seen["loaded"][key])
            same = loaded == value
            if key.startswith("momentum_buffer/"):
                same |= np.isnan(loaded)
            if not np.all(same):
                found.append(f"{key} differs")
        nans = sum(np.isnan(value).sum()
                   for value in map(np.asarray, seen["loaded"].values()))
        return found if nans == 1 else [*found, f"{nans} elements are NaN"]


def main():
    family = sys.argv[1]
    wanted = sys.argv[2] if len(sys.argv) > 2 else ""
    with tempfile.TemporaryDirectory() as scratch:
        judge_ = Judge(scratch)
        return judge.verdict(
            (case.title, functools.partial(judge_.problems, case))
            for case in FAMILIES[family] if wanted in case.title)


if __name__ == "__main__":
    sys.exit(main())
