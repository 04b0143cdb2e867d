"""state_dict, load_state_dict, save and resume of OffloadMuon."""
import os
import sys
import tempfile
import unittest
from collections import Counter, OrderedDict

try:
    import torch
except ImportError as error:
    print(f"skipped: {error}; scripts/setup_interop installs torch")
    sys.exit(77)

import muonstore
import seeded
from data import REPOSITORY
from muonstore import OffloadMuon
from offload_plain_test import LIMIT, SameTest, make, reference, train


def torch_dicts(run):
    return [run.muon.state_dict(), run.adam.state_dict()]


def unfolded(dicts):
    """Momentum of convolutions in the parameter's shape."""
    muon, adam = dicts
    shapes = dict(seeded.SHAPES)
    state = {index: {"momentum_buffer":
                     muon["state"][index]["momentum_buffer"].reshape(
                         shapes[name])}
             for index, name in enumerate(seeded.MUON)}
    return [{**muon, "state": state}, adam]


class StateDictTest(SameTest):
    def test_of_torch_is_taken_over(self):
        theirs, run = reference(range(5))
        model = seeded.Model()
        model.load_state_dict(theirs)
        optimizer = make(model, form="standard", lr=0.5)
        optimizer.load_state_dict(unfolded(torch_dicts(run)))
        self.assertEqual(optimizer.param_groups[0]["lr"], 0.02)
        ours = train(model, optimizer, range(5, 10))
        for step in range(5, 10):
            run.step(seeded.gradients(step))
        self.assert_near(ours, seeded.weights(run.model), LIMIT)

    def test_is_taken_over_by_torch(self):
        model = seeded.Model()
        optimizer = make(model, form="standard")
        train(model, optimizer, range(5))
        saved = optimizer.state_dict()
        theirs = seeded.Model()
        theirs.load_state_dict(model.state_dict())
        run = seeded.Reference(theirs)
        muon, adam = ({"state": {}, "param_groups": [{
            **into.state_dict()["param_groups"][0], **{
                key: value for key, value in group.items()
                if key in ("lr", "weight_decay", "momentum", "betas", "eps")}}]}
            for into, group in zip(run.optimizers, saved["param_groups"]))
        for index in range(len(seeded.MUON)):
            name = saved["param_groups"][0]["param_names"][index]
            at = seeded.MUON.index(name)
            muon["state"][at] = {"momentum_buffer": saved["state"][index][
                "momentum_buffer"].flatten(1)}
        for index, key in enumerate(saved["param_groups"][1]["params"]):
            adam["state"][index] = saved["state"][key]
        run.muon.load_state_dict(muon)
        run.adam.load_state_dict(adam)
        ours = train(model, optimizer, range(5, 10))
        for step in range(5, 10):
            run.step(seeded.gradients(step))
        self.assert_near(ours, seeded.weights(theirs), LIMIT)

    def test_flattened_by_torch_goes_round(self):
        from torch.distributed.checkpoint.state_dict import (
            StateDictOptions, get_optimizer_state_dict,
            set_optimizer_state_dict)
        flat = StateDictOptions(flatten_optimizer_state_dict=True)
        for dtype in (torch.float32, torch.bfloat16):
            model = seeded.Model(dtype)
            optimizer = make(model)
            train(model, optimizer, range(3))
            before = optimizer.state_dict()["state"]
            set_optimizer_state_dict(
                model, optimizer,
                get_optimizer_state_dict(model, optimizer, options=flat),
                options=flat)
            after = optimizer.state_dict()["state"]
            for index, values in before.items():
                self.assertEqual(values.keys(), after[index].keys())
                for key, value in values.items():
                    self.assertTrue(torch.equal(value, after[index][key]))
            with self.assertRaisesRegex(muonstore.UnsupportedError,
                                        "state_dict"):
                optimizer.state[model.fc1.weight]["momentum_buffer"]

    def test_adam_without_state_beside_adam_with_steps_is_refused(self):
        theirs = seeded.Model()
        adam = torch.optim.AdamW([theirs.fc1.bias, theirs.norm.weight])
        theirs.fc1.bias.grad = torch.ones(10)
        adam.step()
        named = [(n, p) for n, p in seeded.Model().named_parameters()
                 if n in ("fc1.bias", "norm.weight")]
        optimizer = OffloadMuon(named)
        with self.assertRaisesRegex(muonstore.InvalidArgumentError,
                                    "norm.weight.*group of its own|"
                                    "group of its own.*norm.weight"):
            optimizer.load_state_dict(adam.state_dict())

    def test_a_module_may_be_called_module(self):
        model = torch.nn.ModuleDict({"module": torch.nn.Linear(4, 4),
                                     "norm": torch.nn.LayerNorm(4)})
        optimizer = OffloadMuon(model.named_parameters())
        optimizer.load_state_dict(optimizer.state_dict())

    def round_trip(self, dtype, model_first):
        model = seeded.Model(dtype)
        optimizer = make(model)
        train(model, optimizer, range(4))
        with tempfile.TemporaryDirectory() as folder:
            torch.save([model.state_dict(), optimizer.state_dict()],
                       f"{folder}/x.pt")
            weights, state = torch.load(f"{folder}/x.pt")
        other = seeded.Model(dtype)
        resumed = make(other, lr=0.7)
        if model_first:
            other.load_state_dict(weights)
            resumed.load_state_dict(state)
        else:
            resumed.load_state_dict(state)
            other.load_state_dict(weights)
        self.assert_same(train(other, resumed, range(4, 8)),
                         train(model, optimizer, range(4, 8)))

    def test_goes_round_to_the_bit(self):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for model_first in (True, False):
                with self.subTest(dtype=dtype, model_first=model_first):
                    self.round_trip(dtype, model_first)

    def test_has_torchs_keys(self):
        model = seeded.Model()
        optimizer = make(model)
        train(model, optimizer, range(3))
        saved = optimizer.state_dict()
        self.assertEqual(set(saved["state"][0]), {"momentum_buffer"})
        last = saved["state"][len(seeded.SHAPES) - 1]
        self.assertEqual(set(last), {"step", "exp_avg", "exp_avg_sq"})
        self.assertEqual(float(last["step"]), 3)
        self.assertEqual(len(optimizer.state), 0)

    def test_groups_in_another_order_are_matched_by_name(self):
        model = seeded.Model()
        optimizer = make(model)
        train(model, optimizer, range(3))
        other = seeded.Model()
        other.load_state_dict(model.state_dict())
        backwards = muonstore.OffloadMuon(
            reversed(list(other.named_parameters())),
            **seeded.OURS, num_threads=1)
        backwards.load_state_dict(optimizer.state_dict())
        self.assert_same(train(other, backwards, range(3, 6)),
                         train(model, optimizer, range(3, 6)))

    def test_refuses_what_it_cannot_take_over_and_changes_nothing(self):
        model = seeded.Model()
        optimizer = make(model)
        train(model, optimizer, range(3))
        good = optimizer.state_dict()

        def refused(words, change):
            bad = {"state": {k: dict(v) for k, v in good["state"].items()},
                   "param_groups": [dict(g) for g in good["param_groups"]]}
            change(bad)
            with self.assertRaises(muonstore.InvalidArgumentError) as caught:
                optimizer.load_state_dict(bad)
            self.assertIn(words, str(caught.exception))

        first = good["param_groups"][0]["param_names"][0]
        refused(first, lambda bad: bad["state"][0].update(
            momentum_buffer=torch.zeros(3, 3)))
        refused("max_exp_avg_sq", lambda bad: bad["state"][8].update(
            max_exp_avg_sq=torch.zeros(13, 7)))
        refused("numbers of steps", lambda bad: bad["state"][8].update(
            step=torch.tensor(9.0)))
        refused("param groups", lambda bad: bad["param_groups"].pop())
        refused(first, lambda bad: bad["param_groups"][0].update(
            param_names=["another", *bad["param_groups"][0]["param_names"][1:]]))
        refused("ns_steps", lambda bad: bad["param_groups"][0].update(
            ns_steps=9))
        refused("amsgrad", lambda bad: bad["param_groups"][1].update(
            amsgrad=True))
        after = optimizer.state_dict()
        for key, values in good["state"].items():
            for name, value in values.items():
                self.assertTrue(torch.equal(after["state"][key][name], value))


class SaveTest(SameTest):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = os.path.join(self.folder.name, "run")

    def test_resumes_to_the_bit_with_hyper_parameters(self):
        for asynchronous in (False, True):
            with self.subTest(asynchronous=asynchronous):
                self.resume_once(asynchronous)

    def resume_once(self, asynchronous):
        model = seeded.Model(torch.bfloat16)
        optimizer = make(model)
        plan = torch.optim.lr_scheduler.LambdaLR(optimizer, seeded.decay)
        for step in range(4):
            train(model, optimizer, [step])
            plan.step()
        handle = optimizer.save(self.root, "four", overwrite=True,
                                asynchronous=asynchronous,
                                client_state={"plan": plan.state_dict(),
                                              "seen": 17})
        rate = optimizer.param_groups[0]["lr"]
        expected = train(model, optimizer, range(4, 8))
        self.assertEqual(handle.wait().tag, "four")
        self.assertTrue(handle.done)
        other = seeded.Model(torch.bfloat16)
        resumed = make(other, lr=0.9)
        report = resumed.resume(self.root)
        self.assertEqual((report.tag, report.step), ("four", 4))
        self.assertEqual(report.client_state["seen"], 17)
        self.assertEqual(resumed.param_groups[0]["lr"], rate)
        torch.optim.lr_scheduler.LambdaLR(
            resumed, seeded.decay).load_state_dict(report.client_state["plan"])
        for group in resumed.param_groups:
            group["lr"] = optimizer.param_groups[
                0 if group["use_muon"] else 1]["lr"]
        self.assert_same(train(other, resumed, range(4, 8)), expected)
        optimizer.close()
        resumed.close()

    def test_the_package_reads_what_was_saved(self):
        model = seeded.Model()
        optimizer = make(model, layouts={"qkv.weight": "per_head[3]"})
        train(model, optimizer, range(2))
        optimizer.save(self.root, "two")
        checkpoint = muonstore.open(self.root)
        momentum = checkpoint.read("fc1.weight", "momentum")
        state = optimizer.state_dict()
        at = state["param_groups"][0]["param_names"].index("fc1.weight")
        self.assertTrue(torch.equal(torch.from_numpy(momentum),
                                    state["state"][at]["momentum_buffer"]))
        self.assertEqual(checkpoint.summary["step"], 2)

    def test_client_state_is_json(self):
        optimizer = make(seeded.Model())
        with self.assertRaises(muonstore.InvalidArgumentError):
            optimizer.save(self.root, "x", client_state=object())
        self.assertFalse(os.path.exists(os.path.join(self.root, "x")))

    def test_what_there_is_not(self):
        optimizer = make(seeded.Model())
        with self.assertRaises(muonstore.NotFoundError):
            optimizer.resume(self.root)



class ResumedLoopTest(unittest.TestCase):
    """What a training loop keeps beside the state."""

    def go_round(self, value):
        model = seeded.Model()
        with tempfile.TemporaryDirectory() as folder:
            optimizer = make(model)
            optimizer.save(folder, "t", client_state=value)
            return optimizer.resume(folder).client_state

    def test_client_state_comes_back_as_it_was(self):
        value = {1: "one", False: None, (2, "x"): [1.5, (3,)], None: {4, 5},
                 "counter": Counter({3: 2}), "__type__": "text",
                 "order": OrderedDict([("b", 1), ("a", 2)]),
                 "nan": float("inf")}
        found = self.go_round(value)
        self.assertEqual(found, value)
        for key, each in value.items():
            self.assertIs(type(found[key]), type(each), key)
        tensor = torch.tensor([[1.25, -0.0]], dtype=torch.bfloat16)
        found = self.go_round({"t": tensor})["t"]
        self.assertEqual((found.dtype, found.tolist()),
                         (tensor.dtype, tensor.tolist()))
        with self.assertRaisesRegex(muonstore.InvalidArgumentError,
                                    "client_state\\['x'\\].*object"):
            self.go_round({"x": object()})

    def test_schedules_of_milestones_go_on(self):
        def loop(steps, resumed_from=None, to=None):
            model = seeded.Model()
            optimizer = make(model)
            optimizer.param_groups[0]["lr"] = torch.tensor(0.02)
            schedule = torch.optim.lr_scheduler.SequentialLR(
                optimizer,
                [torch.optim.lr_scheduler.LinearLR(optimizer, 0.5, 1.0, 2),
                 torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 4])], [2])
            if resumed_from:
                resumed = optimizer.resume(resumed_from)
                schedule.load_state_dict(resumed.client_state["schedule"])
            rates = []
            for step in steps:
                optimizer.zero_grad()
                model(seeded.gradients(step)).backward()
                optimizer.step()
                schedule.step()
                rates.append([float(group["lr"])
                              for group in optimizer.param_groups])
            if to:
                optimizer.save(to, "t", client_state={
                    "schedule": schedule.state_dict()})
            return rates

        with tempfile.TemporaryDirectory() as folder:
            whole = loop(range(9))
            parts = loop(range(3), to=folder) + loop(range(3, 9), folder)
        self.assertEqual(parts, whole)
        self.assertLess(whole[-1][0], 0.001)

    def test_groups_go_on_by_their_parameters(self):
        model = seeded.Model()
        named = dict(model.named_parameters())
        first = {"params": [("norm.weight", named["norm.weight"])],
                 "lr": 0.5, "weight_decay": 0.25}
        second = {"params": [("fc1.bias", named["fc1.bias"])], "lr": 0.125}
        with tempfile.TemporaryDirectory() as folder:
            OffloadMuon([dict(first), dict(second)]).save(folder, "t")
            for one in (first, second):
                one["lr"] = 0.75
            other = OffloadMuon([dict(second), dict(first)])
            resumed = other.resume(folder)
            self.assertEqual([(g["lr"], g["weight_decay"])
                              for g in other.param_groups],
                             [(0.125, 0.1), (0.5, 0.25)])
            self.assertEqual(resumed.notes, [])
            both = OffloadMuon([{"params": first["params"] + second["params"],
                                 "lr": 0.875}])
            self.assertIn("param group 0", both.resume(folder).notes[0])
            self.assertEqual(both.param_groups[0]["lr"], 0.875)

    def test_tensors_as_hyper_parameters(self):
        model = seeded.Model()
        optimizer = make(model, adam_betas=(torch.tensor(0.5), 0.75))
        optimizer.param_groups[0]["lr"] = torch.tensor(0.25)
        with tempfile.TemporaryDirectory() as folder:
            optimizer.save(folder, "t")
            other = make(seeded.Model())
            other.resume(folder)
        self.assertEqual(float(other.param_groups[0]["lr"]), 0.25)
        self.assertEqual([float(b) for b in other.param_groups[1]["betas"]],
                         [0.5, 0.75])

    def test_clipping_is_ours_after_a_run_of_deepspeeds(self):
        with tempfile.TemporaryDirectory() as folder:
            path = REPOSITORY / "tests/data/deepspeed/s2-ws2-bf16-none-base/ckpt"
            entries = muonstore.open(path).select(state="master")
            params = [(e["parameter"], torch.nn.Parameter(
                torch.zeros(e["shape"]))) for e in entries]
            optimizer = OffloadMuon(
                params, max_norm=1.0, use_muon={
                    e["parameter"]: e["optimizer"] == "muon" for e in entries})
            for root in (path, folder):
                resumed = optimizer.resume(root)
                self.assertNotIn("clipping", " ".join(resumed.notes))
                for _, param in params:
                    param.grad = torch.full_like(param, 1e-5)
                optimizer.step()
                self.assertLess(optimizer.report.norm, 0.01)
                self.assertEqual(optimizer.report.clip_factor, 1.0)
                if root is path:
                    optimizer.save(folder, "t")


if __name__ == "__main__":
    unittest.main()
