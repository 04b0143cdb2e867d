"""What else programs do with an optimizer, and what they get wrong."""
import os
import sys
import tempfile
import unittest

try:
    import torch
    import torch.distributed as dist
except ImportError as error:
    print(f"skipped: {error}; scripts/setup_interop installs torch")
    sys.exit(77)

import muonstore
import ranks
import seeded
from muonstore import OffloadMuon


def make(**options):
    model = seeded.Model()
    return model, OffloadMuon(model.named_parameters(), **options)


def backward(model, step):
    model(seeded.gradients(step)).backward()


def trained(steps, **options):
    model, optimizer = make(**options)
    for step in range(steps):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


def state_of(optimizer):
    return {(index, key): value.clone()
            for index, values in optimizer.state_dict()["state"].items()
            for key, value in values.items()}


def assert_same(test, before, after):
    test.assertEqual(before.keys(), after.keys())
    for key, value in before.items():
        torch.testing.assert_close(after[key], value, rtol=0, atol=0,
                                   msg=lambda text, k=key: f"{k}: {text}")


class WeightsTest(unittest.TestCase):
    def test_what_is_written_through_data_counts(self):
        def assign(weight):
            weight.data = torch.full_like(weight, 3.0)

        for write in (lambda w: w.data.mul_(0.5), assign,
                      lambda w: w.detach().numpy().fill(2.0)):
            model, optimizer = make(lr=0.0, adam_lr=0.0)
            backward(model, 0)
            optimizer.step()
            write(model.fc1.weight)
            written = model.fc1.weight.detach().clone()
            optimizer.zero_grad()
            backward(model, 1)
            optimizer.step()
            torch.testing.assert_close(model.fc1.weight.detach(), written,
                                       rtol=0, atol=0)

    def test_masters_in_the_state_dict_follow(self):
        weight = torch.nn.Parameter(torch.ones(4, 4).bfloat16())
        optimizer = OffloadMuon([("w", weight)])
        weight.data.fill_(0.5)
        master = optimizer.state_dict()["state"][0]["master"]
        torch.testing.assert_close(master, torch.full((4, 4), 0.5))

    def test_frozen_parameters_that_get_gradients_are_refused(self):
        model = seeded.Model()
        model.fc2.weight.requires_grad_(False)
        optimizer = OffloadMuon(model.named_parameters())
        backward(model, 0)
        optimizer.step()
        model.fc2.weight.requires_grad_(True)
        backward(model, 1)
        with self.assertRaisesRegex(muonstore.UnsupportedError, "frozen"):
            optimizer.step()

    def test_expanded_parameters_are_refused(self):
        weight = torch.nn.Parameter(torch.ones(1, 4).expand(4, 4))
        with self.assertRaisesRegex(muonstore.InvalidArgumentError, "expand"):
            OffloadMuon([("w", weight)])

    def test_memory_of_two_parameters_is_refused(self):
        weight = torch.nn.Parameter(torch.ones(4, 4))
        twin = torch.nn.Parameter(weight.detach())
        with self.assertRaisesRegex(muonstore.InvalidArgumentError,
                                    "memory with another"):
            OffloadMuon([("w", weight), ("twin", twin)])


class StateTest(unittest.TestCase):
    def test_torchs_checkpoint_door_changes_nothing(self):
        from torch.distributed.checkpoint.state_dict import (
            get_optimizer_state_dict)
        model, optimizer = trained(3)
        before = state_of(optimizer)
        get_optimizer_state_dict(model, optimizer)
        assert_same(self, before, state_of(optimizer))

    def test_a_fresh_state_starts_adam_anew(self):
        _, optimizer = trained(5)
        parts = [[torch.nn.Parameter(torch.zeros_like(p).flatten(1)
                                     if group["use_muon"] else
                                     torch.zeros_like(p))
                  for p in group["params"]] for group in optimizer.param_groups]
        fresh = [torch.optim.Muon(parts[0]).state_dict(),
                 torch.optim.AdamW(parts[1]).state_dict()]
        optimizer.load_state_dict(fresh)
        steps = [values["step"] for values in
                 optimizer.state_dict()["state"].values() if "step" in values]
        self.assertTrue(steps)
        self.assertFalse(any(steps))

    def test_a_refused_state_changes_nothing(self):
        model, optimizer = trained(2)
        before = state_of(optimizer)
        for spoil in (lambda s: s["state"][max(s["state"])].update(
                          exp_avg_sq=s["state"][max(s["state"])][
                              "exp_avg_sq"].int()),
                      lambda s: s["state"][max(s["state"])].update(step=-3),
                      lambda s: s["param_groups"][1].update(lr="x"),
                      lambda s: s.pop("state")):
            state = optimizer.state_dict()
            state["state"][0]["momentum_buffer"].zero_()
            spoil(state)
            with self.assertRaises(muonstore.InvalidArgumentError):
                optimizer.load_state_dict(state)
            assert_same(self, before, state_of(optimizer))

    def test_torchs_muon_steps_on_with_it(self):
        _, optimizer = trained(2)
        state = optimizer.state_dict()
        group = state["param_groups"][0]
        self.assertTrue(group["use_muon"])
        params = [torch.nn.Parameter(p.detach().clone())
                  for p in optimizer.param_groups[0]["params"] if p.ndim == 2]
        theirs = torch.optim.Muon(params)
        group["params"] = group["params"][:len(params)]
        theirs.load_state_dict({"state": {}, "param_groups": [
            {**group, "params": list(range(len(params)))}]})
        for param in params:
            param.grad = torch.ones_like(param)
        theirs.step()


class HyperParametersTest(unittest.TestCase):
    def test_what_torch_refuses_is_refused_at_once(self):
        for options in ({"lr": -1.0}, {"lr": float("nan")}, {"lr": "x"},
                        {"momentum": 1.5}, {"weight_decay": -0.1},
                        {"adam_betas": (1.0, 1.0)}, {"adam_betas": (0.9,)},
                        {"adam_eps": -1.0}, {"adjust_lr_fn": "z"},
                        {"max_norm": -1.0}, {"timeout_s": 0}):
            with self.subTest(options):
                with self.assertRaises(muonstore.InvalidArgumentError):
                    make(**options)

    def test_settings_of_the_store_that_make_no_sense(self):
        for options in ({"num_threads": -1}, {"num_threads": 10**6},
                        {"num_threads": 2.5}, {"max_snapshot_bytes": -1}):
            with self.subTest(options):
                with self.assertRaises(muonstore.InvalidArgumentError):
                    make(**options)
        with tempfile.TemporaryDirectory() as folder:
            for options in ({"nvme_kinds": "momentum"},
                            {"nvme_kinds": ["moment"]},
                            {"resident_below_bytes": -1}):
                with self.subTest(options):
                    with self.assertRaises(muonstore.InvalidArgumentError):
                        make(nvme_dir=folder, **options)
            self.assertEqual(os.listdir(folder), [])

    def test_use_muon_is_a_boolean(self):
        group = {"params": list(seeded.Model().named_parameters()),
                 "use_muon": "no"}
        with self.assertRaisesRegex(muonstore.InvalidArgumentError, "boolean"):
            OffloadMuon([group])


class FoldingTest(unittest.TestCase):
    def test_resume_forgets_what_was_folded(self):
        with tempfile.TemporaryDirectory() as root:
            model, optimizer = trained(2, fold_in_backward=True)
            optimizer.save(root, "t")
            expected_model, expected = make(fold_in_backward=True)
            expected.resume(root)
            backward(model, 7)
            optimizer.resume(root)
            for which, by in ((model, optimizer), (expected_model, expected)):
                backward(which, 8)
                by.step()
            assert_same(self, state_of(expected), state_of(optimizer))

    def test_a_refused_step_forgets_them_and_the_next_one_is_right(self):
        model, optimizer = trained(1, fold_in_backward=True)
        expected_model, expected = trained(1, fold_in_backward=True)
        backward(model, 7)
        optimizer.param_groups[0]["lr"] = -1.0
        with self.assertRaises(muonstore.InvalidArgumentError):
            optimizer.step()
        optimizer.param_groups[0]["lr"] = 0.02
        for which, by in ((model, optimizer), (expected_model, expected)):
            backward(which, 8)
            by.step()
        assert_same(self, state_of(expected), state_of(optimizer))


def missing_on_one_rank():
    model, optimizer = make()
    backward(model, 0)
    if dist.get_rank() == 1:
        for param in model.parameters():
            param.grad = None
    try:
        optimizer.step()
        words = ""
    except muonstore.InvalidArgumentError as error:
        words = str(error)
    backward(model, 1)
    optimizer.step()
    return words


def bad_client_state(root):
    model, optimizer = make()
    backward(model, 0)
    optimizer.step()
    try:
        optimizer.save(root, "bad",
                       client_state=object() if dist.get_rank() else None)
        words = ""
    except muonstore.InvalidArgumentError as error:
        words = str(error)
    optimizer.save(root, "good")
    return words


class RanksTest(unittest.TestCase):
    def test_gradients_that_one_rank_lacks_are_refused_on_all(self):
        for words in ranks.run(2, missing_on_one_rank):
            self.assertIn("different parameters", words)

    def test_what_one_rank_cannot_save_is_refused_on_all(self):
        with tempfile.TemporaryDirectory() as root:
            first, second = ranks.run(2, bad_client_state, root)
            self.assertIn("another rank", first)
            self.assertIn("JSON", second)
            self.assertEqual(muonstore.open(root).summary["tag"], "good")


if __name__ == "__main__":
    unittest.main()
