"""OffloadMuon on a plain module, beside torch.optim.Muon and AdamW."""
import sys
import tempfile
import unittest

try:
    import torch
except ImportError as error:
    print(f"skipped: {error}; scripts/setup_interop installs torch")
    sys.exit(77)

import muonstore
import numpy as np
import seeded
from muonstore import OffloadMuon

STEPS = 100
# docs/numerics-adam.md: 6e-7 from float64 for Muon's standard form, 3e-6 for
# Adam; for the form that is chosen by shape four times numerics.md's 8e-6.
LIMIT, LIMIT_BY_SHAPE = 1e-5, 4e-5


def make(model, **options):
    return OffloadMuon(model.named_parameters(),
                       **{**seeded.OURS, "num_threads": 1, **options})


def train(model, optimizer, steps, scale=1.0):
    for step in steps:
        optimizer.zero_grad()
        model(seeded.gradients(step, scale)).backward()
        optimizer.step()
    return seeded.weights(model)


def reference(steps, model=None, **options):
    model = model or seeded.Model()
    run = seeded.Reference(model, **options)
    for step in steps:
        run.step(seeded.gradients(step))
    return seeded.weights(model), run


class SameTest(unittest.TestCase):
    def assert_same(self, ours, theirs):
        self.assertEqual(set(ours), set(theirs))
        for name, value in theirs.items():
            self.assertTrue(torch.equal(ours[name], value), name)

    def assert_near(self, ours, theirs, limit):
        far = seeded.distances(ours, theirs, seeded.weights(seeded.Model()))
        self.assertLess(max(far.values()), limit, far)


class TrainingTest(SameTest):
    def test_equals_torch_over_100_steps_with_a_schedule(self):
        for form, limit in (("standard", LIMIT), ("auto", LIMIT_BY_SHAPE)):
            with self.subTest(form):
                model = seeded.Model()
                optimizer = make(model, form=form)
                plan = torch.optim.lr_scheduler.LambdaLR(optimizer,
                                                         seeded.decay)
                theirs = seeded.Model()
                run = seeded.Reference(theirs)
                plans = [torch.optim.lr_scheduler.LambdaLR(o, seeded.decay)
                         for o in run.optimizers]
                for step in range(STEPS):
                    train(model, optimizer, [step])
                    run.step(seeded.gradients(step))
                    for each in [plan, *plans]:
                        each.step()
                self.assert_near(seeded.weights(model), seeded.weights(theirs),
                                 limit)
                self.assertEqual(optimizer.report.num_orthogonalized, 5)
                self.assertIn("num_orthogonalized=5", repr(optimizer.report))
                optimizer.close()

    def test_is_as_far_from_torch_in_bfloat16_as_its_rounding(self):
        # A process of its own: the reference is patched elsewhere.
        import ranks
        theirs = ranks.alone(lambda: reference(range(STEPS), float32=False)[0])
        model = seeded.Model()
        ours = train(model, make(model), range(STEPS))
        muon = {name: theirs[name] for name in seeded.MUON}
        self.assert_near(ours, muon, 2e-2)

    def test_match_rms_is_torchs(self):
        model, options = seeded.Model(), {"adjust_lr_fn": "match_rms_adamw"}
        ours = train(model, make(model, form="standard", **options), range(10))
        theirs = seeded.Model()
        run = seeded.Reference(theirs)
        run.muon.param_groups[0].update(options)
        for step in range(10):
            run.step(seeded.gradients(step))
        self.assert_near(ours, seeded.weights(theirs), LIMIT)

    def test_packed_rows_are_matrices_of_their_own(self):
        model = seeded.Model()
        optimizer = make(model, form="standard",
                         layouts={"qkv.weight": "packed_rows[4,4,4]"})
        torch_model = seeded.Model()
        run = seeded.Reference(torch_model)
        whole = run.flat.pop("qkv.weight")
        run.muon.param_groups[0]["params"] = list(run.flat.values())
        rows = [torch.nn.Parameter(whole[i:i + 4].detach().clone())
                for i in (0, 4, 8)]
        by_rows = torch.optim.Muon(rows, **seeded.MUON_OPTIONS)
        for step in range(10):
            train(model, optimizer, [step])
            run.step(seeded.gradients(step))
            grad = seeded.gradients(step)["qkv"]["weight"]
            for i, row in zip((0, 4, 8), rows):
                row.grad = grad[i:i + 4]
            by_rows.step()
        theirs = {**seeded.weights(torch_model),
                  "qkv.weight": torch.cat([row.detach() for row in rows])}
        self.assert_near(seeded.weights(model), theirs, LIMIT)

    def test_weights_in_bfloat16_are_the_rounded_masters(self):
        model = seeded.Model(torch.bfloat16)
        optimizer = make(model)
        ours = train(model, optimizer, range(20))
        state = optimizer.state_dict()["state"]
        names = [name for group in optimizer.param_groups
                 for name in group["param_names"]]
        for index, name in enumerate(names):
            master = state[index]["master"]
            self.assertTrue(torch.equal(master.bfloat16(), ours[name]), name)
            self.assertFalse(torch.equal(master.bfloat16().float(), master))

    def test_what_somebody_else_writes_to_weights_counts(self):
        model = seeded.Model()
        optimizer = make(model)
        train(model, optimizer, range(2))
        with torch.no_grad():
            model.fc1.weight[3] = 7.0
        before = seeded.weights(model)
        after = train(model, optimizer, [2])
        moved = (after["fc1.weight"] - before["fc1.weight"]).abs().max()
        self.assertLess(float(moved), 0.1)
        self.assertGreater(float(after["fc1.weight"][3].min()), 6.8)

    def test_of_no_gradient_at_all_nothing_comes(self):
        model = seeded.Model()
        optimizer = make(model)
        before = seeded.weights(model)
        optimizer.zero_grad()
        optimizer.step()
        self.assertIsNone(optimizer.report)
        self.assert_same(seeded.weights(model), before)

    def test_a_missing_gradient_is_zeros(self):
        def run(grad):
            model = seeded.Model()
            optimizer = make(model)
            train(model, optimizer, range(2))
            model(seeded.gradients(2)).backward()
            model.fc2.weight.grad = grad
            optimizer.step()
            return seeded.weights(model)
        self.assert_same(run(None), run(torch.zeros(7, 10)))

    def test_clipping_is_by_the_global_norm(self):
        model = seeded.Model()
        optimizer = make(model, max_norm=0.5)
        ours = train(model, optimizer, range(3))
        theirs = seeded.Model()
        unclipped = make(theirs)
        for step in range(3):
            unclipped.zero_grad()
            theirs(seeded.gradients(step)).backward()
            torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
            unclipped.step()
        self.assert_near(ours, seeded.weights(theirs), LIMIT)
        self.assertLess(optimizer.report.clip_factor, 1)

    def test_frozen_parameters_stay(self):
        model = seeded.Model()
        model.fc2.weight.requires_grad_(False)
        before = seeded.weights(model)
        after = train(model, make(model), range(3))
        self.assertTrue(torch.equal(after["fc2.weight"],
                                    before["fc2.weight"]))
        self.assertFalse(torch.equal(after["fc1.weight"],
                                     before["fc1.weight"]))


class FoldingTest(SameTest):
    def test_hooks_give_the_same_bits_and_free_gradients(self):
        def run(folds):
            model = seeded.Model()
            optimizer = make(model, fold_in_backward=folds)
            for step in range(6):
                optimizer.zero_grad()
                for micro in (2 * step, 2 * step + 1):
                    model(seeded.gradients(micro)).backward()
                if folds:
                    self.assertTrue(all(p.grad is None
                                        for p in model.parameters()))
                optimizer.step()
            return seeded.weights(model)
        self.assert_same(run(True), run(False))

    def test_zero_grad_forgets_what_was_folded(self):
        def run(extra):
            model = seeded.Model()
            optimizer = make(model, fold_in_backward=True)
            if extra:
                model(seeded.gradients(50)).backward()
                optimizer.zero_grad()
            return train(model, optimizer, range(3))
        self.assert_same(run(True), run(False))

    def test_a_parameter_that_is_not_in_every_micro_batch(self):
        def run(folds):
            model = seeded.Model()
            optimizer = make(model, fold_in_backward=folds)
            optimizer.zero_grad()
            model(seeded.gradients(0)).backward()
            model.fc1(seeded.gradients(1)["fc1"]).backward()
            optimizer.step()
            return seeded.weights(model)
        self.assert_same(run(True), run(False))


class ScalerTest(SameTest):
    def run_scaled(self, folds, bad_step):
        model = seeded.Model()
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        optimizer = make(model, fold_in_backward=folds, grad_scaler=scaler
                         if folds else None)
        scales = []
        for step in range(5):
            optimizer.zero_grad()
            grads = seeded.gradients(step)
            if step == bad_step:
                grads["norm"]["weight"][3] = float("inf")
            before = seeded.weights(model)
            scaler.scale(model(grads)).backward()
            scaler.step(optimizer)
            scaler.update()
            scales.append(scaler.get_scale())
            if step == bad_step:
                self.assertTrue(optimizer.report.overflow)
                self.assert_same(seeded.weights(model), before)
        return seeded.weights(model), scales

    def test_an_overflow_skips_the_step_and_halves_the_scale(self):
        model = seeded.Model()
        expected = train(model, make(model), [0, 1, 3, 4])
        for folds in (False, True):
            with self.subTest(folds=folds):
                found, scales = self.run_scaled(folds, bad_step=2)
                self.assertEqual(scales, [1024, 1024, 512, 512, 512])
                self.assert_same(found, expected)

    def test_unscaled_gradients_are_not_unscaled_again(self):
        model = seeded.Model()
        expected = train(model, make(model), range(3))
        model = seeded.Model()
        optimizer = make(model)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        for step in range(3):
            optimizer.zero_grad()
            scaler.scale(model(seeded.gradients(step))).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
        self.assert_same(seeded.weights(model), expected)


class TierTest(SameTest):
    def test_nvme_gives_the_same_bits(self):
        model = seeded.Model()
        expected = train(model, make(model), range(5))
        with tempfile.TemporaryDirectory(dir=".") as folder:
            model = seeded.Model()
            optimizer = make(model, nvme_dir=folder, resident_below_bytes=0)
            self.assert_same(train(model, optimizer, range(5)), expected)
            self.assertGreater(optimizer.report.swap_read_bytes, 0)
            self.assertGreater(optimizer.state_bytes[1], 0)
            optimizer.close()


class RefusalTest(unittest.TestCase):
    def assert_refused(self, kind, words, call):
        with self.assertRaises(kind) as caught:
            call()
        self.assertIn(words, str(caught.exception))

    def test_by_name(self):
        model = seeded.Model()
        bad = muonstore.InvalidArgumentError
        self.assert_refused(bad, "named_parameters",
                            lambda: OffloadMuon(model.parameters()))
        self.assert_refused(bad, "no parameters", lambda: OffloadMuon([]))
        self.assert_refused(
            bad, "comes twice", lambda: OffloadMuon(
                [("a", model.fc1.weight), ("b", model.fc1.weight)]))
        self.assert_refused(bad, "fc1.bias", lambda: make(
            model, use_muon=lambda name, param: True))
        self.assert_refused(bad, "fc9", lambda: make(
            model, layouts={"fc1.weight": "fc9"}))
        self.assert_refused(
            muonstore.NotFoundError, "fc9.weight",
            lambda: make(model, layouts={"fc9.weight": "whole"}))
        self.assert_refused(muonstore.NotFoundError, "fc9.weight",
                            lambda: make(model, use_muon={"fc9.weight": True}))
        self.assert_refused(bad, "Adam", lambda: make(
            model, layouts={"fc1.bias": "whole"}))
        self.assert_refused(bad, "'no'", lambda: make(
            model, use_muon={"fc1.weight": "no"}))
        self.assert_refused(bad, "f64",
                            lambda: make(seeded.Model(torch.float64)))

    def test_later_param_groups(self):
        optimizer = make(seeded.Model())
        extra = torch.nn.Parameter(torch.zeros(3))
        self.assert_refused(
            muonstore.UnsupportedError, "make a new one",
            lambda: optimizer.add_param_group({"params": [extra]}))

    def test_after_close(self):
        model = seeded.Model()
        optimizer = make(model)
        optimizer.close()
        optimizer.close()
        self.assert_refused(muonstore.UnavailableError, "closed",
                            lambda: train(model, optimizer, [0]))


class GroupsTest(SameTest):
    def test_names_of_wrapped_modules_are_the_modules(self):
        model = seeded.Model()
        optimizer = OffloadMuon(
            [("module._orig_mod." + name, p)
             for name, p in model.named_parameters()])
        names = [n for g in optimizer.param_groups for n in g["param_names"]]
        self.assertEqual(set(names), {name for name, _ in seeded.SHAPES})

    def test_groups_have_their_own_values_and_may_lack_names(self):
        model = seeded.Model()
        named = dict(model.named_parameters())
        optimizer = OffloadMuon([
            {"params": [named["fc1.weight"]], "use_muon": True, "lr": 0.5},
            {"params": [named["lm_head.weight"]], "use_muon": False,
             "lr": 0.25},
            {"params": [("fc2.weight", named["fc2.weight"]),
                        ("norm.weight", named["norm.weight"])],
             "lr": 0.125, "adam_lr": 0.0625}])
        self.assertEqual([(g["use_muon"], g["lr"])
                          for g in optimizer.param_groups],
                         [(True, 0.5), (False, 0.25), (True, 0.125),
                          (False, 0.0625)])

    def test_the_rule_can_be_overruled_by_name(self):
        model = seeded.Model()
        optimizer = make(model, use_muon={"embed.weight": True,
                                          "fc2.weight": False})
        muon = optimizer.param_groups[0]["param_names"]
        self.assertEqual(set(muon), set(seeded.MUON) - {"fc2.weight"}
                         | {"embed.weight"})


class OrthogonalizeTest(unittest.TestCase):
    def test_takes_bf16_of_torch(self):
        momentum = torch.randn(6, 9).bfloat16()
        np.testing.assert_array_equal(
            muonstore.orthogonalize(momentum),
            muonstore.orthogonalize(momentum.float().numpy()))


if __name__ == "__main__":
    unittest.main()
