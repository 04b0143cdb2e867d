"""The tools and what OffloadMuon saves under FSDP2, whose cut is by whole rows.

It is inspected, converted to DeepSpeed's files and back, and resumed from those.
"""
import json
import os
import sys
import tempfile
import unittest

try:
    import torch
except ImportError as error:
    print(f"skipped: {error}; scripts/setup_interop installs torch")
    sys.exit(77)

import muonstore
import offload_ranks_test as by_ranks
import ranks
import seeded
from data import tool

TRAINED = 3


def state_of(path):
    """(name, kind) -> what is stored."""
    checkpoint = muonstore.open(path)
    return {(t["parameter"], t["state"]):
            checkpoint.read(t["parameter"], t["state"], torch=True)
            for t in checkpoint.tensors}


class ConvertTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.root = os.path.join(folder.name, "run")

    def save(self, size, dtype=torch.float32):
        ranks.run(size, lambda: by_ranks.save_after(
            "fsdp", self.root, range(TRAINED), dtype=dtype))
        return state_of(self.root)

    def assert_same_state(self, path, expected, kinds):
        found = state_of(path)
        for key, value in expected.items():
            if key[1] in kinds:
                self.assertIn(key, found)
                self.assertTrue(torch.equal(found[key], value), key)

    def assert_resumes(self, path, dtype=torch.float32):
        """On one rank, and trains on as if it had never been cut."""
        model, optimizer = by_ranks.make("plain", dtype)
        optimizer.resume(path)
        by_ranks.step_once(model, optimizer, TRAINED)
        optimizer.close()
        through, expected = by_ranks.make("plain", dtype)
        for step in range(TRAINED + 1):
            by_ranks.step_once(through, expected, step)
        expected.close()
        for name, value in seeded.weights(through).items():
            self.assertTrue(torch.equal(seeded.weights(model)[name], value),
                            name)

    def test_ckpt_inspect_knows_it(self):
        for size in (2, 4):
            state = self.save(size)
            kinds = {kind for _, kind in state}
            self.assertLessEqual({"master", "momentum", "exp_avg",
                                  "exp_avg_sq"}, kinds)
            summary = json.loads(tool("ckpt-inspect", "summary", self.root,
                                      "--json"))
            self.assertEqual((summary["num_ranks"], summary["step"]),
                             (size, TRAINED))
            self.assertTrue(json.loads(tool(
                "ckpt-inspect", "verify", self.root, "--json"))["whole"])
            self.root += "x"

    def test_goes_to_deepspeeds_files_of_any_stage_and_back(self):
        state = self.save(4)
        for stage in (2, 3):
            with self.subTest(stage=stage):
                there = f"{self.folder}/deepspeed{stage}"
                back = f"{self.folder}/native{stage}"
                options = ["--zero-init=no"] if stage == 3 else []
                tool("ckpt-convert", self.root, there, "--to=deepspeed",
                     f"--stage={stage}", "--world-size=3", "--verify", *options)
                self.assert_same_state(there, state, {
                    "master", "momentum", "exp_avg", "exp_avg_sq"})
                tool("ckpt-convert", there, back, "--to=native", "--verify")
                self.assertTrue(muonstore.verify(back)["whole"])
                self.assert_resumes(there)
                self.assert_resumes(back)

    def test_goes_from_bfloat16_to_other_ranks(self):
        state = self.save(2, torch.bfloat16)
        there = f"{self.folder}/four"
        muonstore.convert(self.root, there, to="native", stage=2, world_size=4,
                          verify=True)
        self.assert_same_state(there, state, {kind for _, kind in state})
        self.assertTrue(muonstore.diff(self.root, there)["same_state"])
        self.assert_resumes(there, torch.bfloat16)


if __name__ == "__main__":
    unittest.main()
