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


    def test_memory_that_overlaps_is_refused_where_elements_do(self):
        flat = torch.zeros(12)
        matrix = torch.zeros(4, 6)

        def make_of(*tensors):
            OffloadMuon([(str(i), torch.nn.Parameter(t))
                         for i, t in enumerate(tensors)])

        for pair in ((flat[0:6], flat[3:9]), (matrix[:, :3], matrix[:, 2:]),
                     (matrix, matrix[1:3, 1:2]), (flat[3:9], flat[5:7])):
            with self.assertRaisesRegex(muonstore.InvalidArgumentError,
                                        "shares its memory"):
                make_of(*pair)
        make_of(flat[0:6], flat[6:12], matrix[:, :3], matrix[:, 3:])

    def test_parameters_that_change_their_kind_are_refused(self):
        def reshape(weight):
            weight.data = weight.data.reshape(6, 10)

        def narrow(weight):
            weight.data = weight.data.bfloat16()

        for change, words in ((reshape, r"\[6, 10\]"), (narrow, "bfloat16")):
            model, optimizer = make()
            backward(model, 0)
            model.fc1.weight.grad = None
            change(model.fc1.weight)
            for call in (optimizer.step, optimizer.state_dict):
                with self.assertRaisesRegex(muonstore.InvalidArgumentError,
                                            "fc1.weight.*" + words):
                    call()

    def test_frozen_integers_are_left_alone(self):
        codes = torch.nn.Parameter(torch.arange(4, dtype=torch.uint8),
                                   requires_grad=False)
        weight = torch.nn.Parameter(torch.ones(2, 2))
        optimizer = OffloadMuon([("codes", codes), ("weight", weight)])
        weight.grad = torch.ones(2, 2)
        optimizer.step()
        self.assertEqual(codes.tolist(), [0, 1, 2, 3])
        self.assertLess(float(weight.detach().max()), 1)

    def test_parameters_without_values_are_refused(self):
        with torch.device("meta"):
            weight = torch.nn.Parameter(torch.ones(2, 2))
        with torch.inference_mode():
            inferred = torch.nn.Parameter(torch.ones(2, 2))
        for param in (weight, inferred):
            with self.assertRaises(muonstore.InvalidArgumentError):
                OffloadMuon([("w", param)])


class InterruptedTest(unittest.TestCase):
    """Ctrl-C comes when Python gets its hands on a call's result."""

    class Interrupted:
        def __init__(self, core, names):
            self._core, self._names = core, list(names)

        def __getattr__(self, name):
            real = getattr(self._core, name)
            if self._names[:1] != [name]:
                return real

            def call(*args):
                self._names.pop(0)
                real(*args)
                raise KeyboardInterrupt
            return call

    def test_a_step_is_done_or_not(self):
        expected_model, expected = trained(3)
        for names in (["step"], ["step", "give_weights"], ["give_weights"]):
            model, optimizer = trained(2)
            backward(model, 2)
            core = optimizer._core
            optimizer._core = self.Interrupted(core, names)
            with self.assertRaises(KeyboardInterrupt):
                optimizer.step()
            optimizer._core = core
            with tempfile.TemporaryDirectory() as folder:
                optimizer.save(folder, "interrupted")
                optimizer.resume(folder)
            assert_same(self, state_of(expected), state_of(optimizer))
            for name, weight in expected_model.named_parameters():
                self.assertTrue(torch.equal(
                    weight, dict(model.named_parameters())[name]), name)

    def test_before_a_step_nothing_is_done(self):
        for folds in (False, True):
            model, optimizer = trained(2, fold_in_backward=folds)
            before = state_of(optimizer)
            backward(model, 2)
            core = optimizer._core
            optimizer._core = self.Interrupted(core, ["set_max_norm"])
            with self.assertRaises(KeyboardInterrupt):
                optimizer.step()
            optimizer._core = core
            assert_same(self, before, state_of(optimizer))
            optimizer.zero_grad()
            backward(model, 2)
            optimizer.step()
            assert_same(self, state_of(trained(3, fold_in_backward=folds)[1]),
                        state_of(optimizer))


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


    def test_values_of_a_mixed_group(self):
        model = seeded.Model()
        optimizer = OffloadMuon([{
            "params": model.named_parameters(), "lr": 0.5, "weight_decay": 0.0,
            "adam_betas": (0.5, 0.75), "adam_eps": 0.125, "adam_lr": 0.25}])
        muon, adam = optimizer.param_groups
        self.assertEqual((muon["lr"], muon["weight_decay"]), (0.5, 0.0))
        self.assertEqual([adam[key] for key in ("lr", "weight_decay", "betas",
                                                "eps")],
                         [0.25, 0.0, (0.5, 0.75), 0.125])
        other = OffloadMuon([{"params": seeded.Model().named_parameters(),
                              "weight_decay": 0.5}], adam_weight_decay=0.25)
        self.assertEqual([g["weight_decay"] for g in other.param_groups],
                         [0.5, 0.25])

    def test_values_of_groups_that_do_nothing_are_refused(self):
        for values, words in (({"maximize": True}, "maximize"),
                              ({"amsgrad": True}, "amsgrad"),
                              ({"adam_decay": 0.1}, "adam_decay")):
            with self.assertRaisesRegex(muonstore.InvalidArgumentError, words):
                OffloadMuon([{"params": seeded.Model().named_parameters(),
                              **values}])

    def test_what_an_unscaler_found_skips_the_step(self):
        model, optimizer = make()
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        before = state_of(optimizer)
        scaler.scale(model(seeded.gradients(0))).backward()
        model.fc1.weight.grad[0, 0] = float("inf")
        scaler.unscale_(optimizer)
        model.fc1.weight.grad.nan_to_num_(0, 0, 0)
        scaler.step(optimizer)
        scaler.update()
        self.assertTrue(optimizer.report.overflow)
        self.assertEqual(scaler.get_scale(), 2.0)
        assert_same(self, before, state_of(optimizer))


class FoldingTest(unittest.TestCase):
    def test_gradients_set_by_hand_count(self):
        model, optimizer = make(fold_in_backward=True)
        backward(model, 0)
        for name, param in model.named_parameters():
            part, leaf = name.split(".")
            param.grad = seeded.gradients(1)[part][leaf]
        optimizer.step()
        other, plain = make()
        backward(other, 0)
        backward(other, 1)
        plain.step()
        assert_same(self, state_of(plain), state_of(optimizer))

    def test_backward_on_two_threads_at_once_is_refused(self):
        model, optimizer = make(fold_in_backward=True)
        name = optimizer.param_groups[0]["param_names"][0]
        with optimizer._members[0].folding():
            with self.assertRaisesRegex(muonstore.UnsupportedError, name):
                backward(model, 0)
        optimizer.zero_grad()
        backward(model, 0)
        optimizer.step()

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


def other_folder(root):
    """After a save into the same one, whose channel between ranks is open."""
    model, optimizer = make(timeout_s=30)
    optimizer.save(root, "before")
    try:
        optimizer.save(f"{root}/{dist.get_rank()}", "bad")
        words = ""
    except muonstore.Error as error:
        words = str(error)
    backward(model, 0)
    optimizer.step()
    optimizer.save(root, "good")
    return words


def other_kind_on_one_rank():
    model, optimizer = make(timeout_s=30)
    backward(model, 0)
    weight = model.fc1.weight
    kept = weight.data
    if dist.get_rank() == 1:
        weight.grad = None
        weight.data = kept.bfloat16()
    words = []
    for call in (optimizer.step, optimizer.state_dict):
        try:
            call()
        except muonstore.InvalidArgumentError as error:
            words.append(str(error))
    weight.data = kept
    optimizer.zero_grad()
    backward(model, 1)
    optimizer.step()
    return words


class RanksTest(unittest.TestCase):
    def test_other_folders_are_refused_and_the_store_lives(self):
        with tempfile.TemporaryDirectory() as root:
            for words in ranks.run(2, other_folder, root):
                self.assertNotEqual(words, "")
            self.assertEqual(muonstore.open(root).tag, "good")

    def test_another_kind_on_one_rank_is_refused_on_all(self):
        first, second = ranks.run(2, other_kind_on_one_rank)
        self.assertEqual((len(first), len(second)), (2, 2))
        self.assertIn("another rank", first[0])
        self.assertIn("fc1.weight", second[0])

    def test_gradients_that_one_rank_lacks_are_refused_on_all(self):
        for words in ranks.run(2, missing_on_one_rank):
            self.assertIn("different parameters", words)

    def test_what_one_rank_cannot_save_is_refused_on_all(self):
        with tempfile.TemporaryDirectory() as root:
            first, second = ranks.run(2, bad_client_state, root)
            self.assertIn("another rank", first)
            self.assertIn("client_state", second)
            self.assertEqual(muonstore.open(root).summary["tag"], "good")


if __name__ == "__main__":
    unittest.main()
