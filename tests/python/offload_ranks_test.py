"""OffloadMuon under DDP and FSDP2: real ranks, CPU and gloo.

Gradients are the same to the bit on every rank, so that all ways of cutting
state must give the very weights of one rank alone, which are compared with
torch's.
"""
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

STEPS = 100
LIMIT = 4e-5  # As offload_plain_test's.
WAYS = (("ddp", 2), ("fsdp", 2), ("fsdp", 4))


def wrap(kind, model):
    if kind == "ddp":
        return torch.nn.parallel.DistributedDataParallel(model)
    if kind == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for part in model.children():
            fully_shard(part, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def whole(model):
    """Weights as one process has them, by bare name."""
    result = {}
    for name, param in model.named_parameters():
        value = param.detach()
        value = value.full_tensor() if hasattr(value, "full_tensor") else value
        result[name.removeprefix("module.")] = value.clone()
    return result


def make(kind, dtype=torch.float32, **options):
    model = wrap(kind, seeded.Model(dtype))
    optimizer = OffloadMuon(model.named_parameters(), num_threads=1,
                            timeout_s=60, **{**seeded.OURS, **options})
    return model, optimizer


def step_once(model, optimizer, step):
    optimizer.zero_grad()
    model(seeded.gradients(step)).backward()
    optimizer.step()


def train(kind, steps, **options):
    model, optimizer = make(kind, **options)
    for step in steps:
        step_once(model, optimizer, step)
    result = whole(model)
    optimizer.close()
    return result


def train_on_nodes(kind, steps, ranks_of_node):
    """As if that many ranks shared a node, and reached others by gloo."""
    from muonstore.optimizer import _ranks
    node = dist.get_rank() // ranks_of_node
    _ranks._node = lambda: ("node", str(node))
    return train(kind, steps)


def reference(steps):
    model = seeded.Model()
    run = seeded.Reference(model)
    for step in steps:
        run.step(seeded.gradients(step))
    return seeded.weights(model)


def save_after(kind, root, steps, **options):
    model, optimizer = make(kind, **options)
    for step in steps:
        step_once(model, optimizer, step)
    handle = optimizer.save(root, "here", asynchronous=True,
                            client_state={"seen": len(steps)})
    step_once(model, optimizer, 99)
    handle.wait()
    optimizer.close()


def resume_and_train(kind, root, steps, **options):
    model, optimizer = make(kind, **options)
    resumed = optimizer.resume(root)
    assert resumed.client_state == {"seen": resumed.step}, resumed
    for step in steps:
        step_once(model, optimizer, step)
    result = whole(model)
    optimizer.close()
    return result


def state_dict_round_trip(kind, steps):
    model, optimizer = make(kind)
    for step in steps:
        step_once(model, optimizer, step)
    saved = optimizer.state_dict()
    weights = model.state_dict()
    other, into = make(kind, lr=0.9)
    other.load_state_dict(weights)
    into.load_state_dict(saved)
    for step in range(10, 13):
        step_once(other, into, step)
        step_once(model, optimizer, step)
    pair = whole(model), whole(other)
    into.close()
    optimizer.close()
    return pair


def overflow_on_one_rank(kind, bad_rank):
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    model, optimizer = make(kind, grad_scaler=scaler)
    scales = []
    for step in range(4):
        optimizer.zero_grad()
        scaler.scale(model(seeded.gradients(step))).backward()
        if step == 1 and dist.get_rank() == bad_rank:
            grad = model.fc1.weight.grad
            grad.to_local()[0, 0] = float("nan")
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    result = whole(model)
    optimizer.close()
    return result, scales


def failing_rank(kind):
    """One rank cannot go on: all must hear of it, and train on."""
    model, optimizer = make(kind)
    step_once(model, optimizer, 0)
    before = whole(model)
    if dist.get_rank() == 1:
        optimizer.param_groups[0]["adjust_lr_fn"] = "nonsense"
    try:
        step_once(model, optimizer, 1)
    except muonstore.Error as error:
        words = str(error)
    optimizer.param_groups[0]["adjust_lr_fn"] = None
    same = all(torch.equal(a, b) for a, b in
               zip(before.values(), whole(model).values()))
    step_once(model, optimizer, 1)
    result = whole(model)
    optimizer.close()
    return words, same, result


class RanksTest(unittest.TestCase):
    def assert_same(self, ours, theirs):
        self.assertEqual(set(ours), set(theirs))
        for name, value in theirs.items():
            self.assertTrue(torch.equal(ours[name], value), name)

    def test_100_steps_are_those_of_one_rank_and_torchs(self):
        expected = ranks.alone(train, "plain", range(STEPS))
        theirs = ranks.alone(reference, range(STEPS))
        far = seeded.distances(expected, theirs,
                               seeded.weights(seeded.Model()))
        self.assertLess(max(far.values()), LIMIT, far)
        for kind, size in WAYS:
            with self.subTest(kind=kind, size=size):
                for found in ranks.run(size, train, kind, range(STEPS)):
                    self.assert_same(found, expected)

    def test_nodes_are_joined_by_the_process_group(self):
        expected = ranks.alone(train, "plain", range(3))
        for kind, size, ranks_of_node in (("fsdp", 2, 1), ("ddp", 4, 2)):
            with self.subTest(kind=kind):
                for found in ranks.run(size, train_on_nodes, kind, range(3),
                                       ranks_of_node):
                    self.assert_same(found, expected)

    def test_a_checkpoint_of_2_ranks_resumes_on_4_to_the_bit(self):
        expected = ranks.alone(train, "plain", range(10))
        for kind, onto in (("fsdp", "fsdp"), ("ddp", "fsdp"), ("fsdp", "ddp")):
            with self.subTest(kind=kind, onto=onto), \
                    tempfile.TemporaryDirectory() as folder:
                root = os.path.join(folder, "run")
                ranks.run(2, save_after, kind, root, range(6))
                for found in ranks.run(4, resume_and_train, onto, root,
                                       range(6, 10)):
                    self.assert_same(found, expected)

    def test_one_rank_resumes_what_four_saved_in_bfloat16(self):
        options = {"dtype": torch.bfloat16}
        with tempfile.TemporaryDirectory() as folder:
            root = os.path.join(folder, "run")
            ranks.run(4, lambda: save_after("fsdp", root, range(5), **options))
            found = ranks.alone(
                lambda: resume_and_train("plain", root, range(5, 8), **options))
            expected = ranks.alone(
                lambda: train("plain", range(8), **options))
        self.assert_same(found, expected)

    def test_state_dicts_go_round(self):
        for kind, size in WAYS[:2]:
            with self.subTest(kind=kind):
                for ours, other in ranks.run(size, state_dict_round_trip, kind,
                                             range(4)):
                    self.assert_same(other, ours)

    def test_hooks_of_shards_give_the_same_bits(self):
        expected = ranks.alone(train, "plain", range(5))
        for found in ranks.run(
                2, lambda: train("fsdp", range(5), fold_in_backward=True)):
            self.assert_same(found, expected)

    def test_hooks_with_ddp_are_refused(self):
        def refused():
            try:
                make("ddp", fold_in_backward=True)
            except muonstore.UnsupportedError as error:
                return str(error)
        for words in ranks.run(2, refused):
            self.assertIn("DDP", words)

    def test_an_overflow_on_one_rank_is_all_ranks(self):
        expected = ranks.alone(train, "plain", [0, 2, 3])
        for found, scales in ranks.run(2, overflow_on_one_rank, "fsdp", 1):
            self.assertEqual(scales, [1024, 512, 512, 512])
            self.assert_same(found, expected)

    def test_an_error_on_one_rank_changes_nothing_on_any(self):
        expected = ranks.alone(train, "plain", [0, 1])
        results = ranks.run(2, failing_rank, "ddp")
        self.assertIn("adjustment of the learning rate", results[1][0])
        self.assertIn("rank 1", results[0][0])
        for _, same, result in results:
            self.assertTrue(same)
            self.assert_same(result, expected)

    def test_other_cuts_are_refused_by_name(self):
        def refused():
            from torch.distributed.device_mesh import init_device_mesh
            from torch.distributed.tensor import Shard, distribute_tensor
            mesh = init_device_mesh("cpu", (2,))
            param = torch.nn.Parameter(distribute_tensor(
                torch.ones(4, 4), mesh, [Shard(1)]))
            try:
                OffloadMuon([("w", param)])
            except muonstore.UnsupportedError as error:
                return str(error)
        for words in ranks.run(2, refused):
            self.assertIn("Shard(dim=0)", words)


if __name__ == "__main__":
    unittest.main()
