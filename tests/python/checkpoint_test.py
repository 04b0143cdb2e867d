"""muonstore.open, diff and verify against golden values and the tools."""
import hashlib
import json
import math
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
from unittest import mock

import ml_dtypes
import muonstore
import numpy as np

from data import golden, root, tool

QKV = "blocks.0.attn.qkv.weight"
KINDS = {"fp32": "master", "momentum_buffer": "momentum", "exp_avg": "exp_avg",
         "exp_avg_sq": "exp_avg_sq"}
CASES = ["s2-ws2-bf16-none-base", "s3-ws2-bf16-none-subgroup",
         "s1-ws2-bf16-none-gacc32", "s3-ws4-bf16-cpu-base",
         "s2-ws2-bf16-none-rr", "s3-ws2-bf16-nvme-swapall"]


class ReadTest(unittest.TestCase):
    def test_every_value_is_the_golden_one(self):
        for case in CASES:
            values, ckpt = golden(case), muonstore.open(root(case))
            num_compared = 0
            for key, want in values.items():
                kind, _, name = key.partition("/")
                if kind not in KINDS:
                    continue
                got = ckpt.read(name, KINDS[kind])
                self.assertEqual(got.shape, want.shape, key)
                np.testing.assert_array_equal(got.astype(np.float32), want,
                                              f"{case} {key}")
                num_compared += 1
            self.assertGreater(num_compared, 60, case)

    def test_rows(self):
        ckpt = muonstore.open(root(CASES[0]))
        whole = ckpt.read(QKV)
        for rows in (slice(3, 5), slice(None, 2), slice(-4, None), range(7, 30),
                     slice(5, 5)):
            index = rows if isinstance(rows, slice) else list(rows)
            np.testing.assert_array_equal(ckpt.read(QKV, rows=rows),
                                          whole[index])
        for row in (0, 71, -1):
            np.testing.assert_array_equal(ckpt.read(QKV, rows=row)[0],
                                          whole[row])

    def test_rows_that_are_not_there(self):
        ckpt = muonstore.open(root(CASES[0]))
        for rows in (slice(0, 73), 72, slice(0, 10, 2), range(0, 100),
                     "0:8", 1.5):
            with self.assertRaises(muonstore.InvalidArgumentError):
                ckpt.read(QKV, rows=rows)

    def test_bf16(self):
        ckpt = muonstore.open(root(CASES[0]))
        named = ckpt.read(QKV, "momentum")
        self.assertEqual(named.dtype, ml_dtypes.bfloat16)
        with mock.patch.dict(sys.modules, {"ml_dtypes": None}):
            raw = ckpt.read(QKV, "momentum")
        self.assertEqual(raw.dtype, np.uint16)
        np.testing.assert_array_equal(raw, named.view(np.uint16))

    def test_other_names_of_a_kind(self):
        ckpt = muonstore.open(root(CASES[0]))
        np.testing.assert_array_equal(ckpt.read(QKV, "fp32"), ckpt.read(QKV))

    def test_many_threads(self):
        ckpt = muonstore.open(root("s3-ws4-bf16-cpu-base"))
        want, wrong = ckpt.read(QKV), []

        def work():
            for _ in range(50):
                if not np.array_equal(ckpt.read(QKV), want):
                    wrong.append(1)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


    def test_forked_and_spawned_processes(self):
        with tempfile.TemporaryDirectory() as folder:
            muonstore.convert(root(CASES[0]), folder, to="native")
            for path in (root(CASES[0]), folder):
                ckpt = muonstore.open(path)
                want = momentum_of(ckpt)
                for method in ("fork", "spawn"):
                    context = multiprocessing.get_context(method)
                    with context.Pool(2) as pool:
                        got = pool.map(momentum_of, [ckpt] * 4)
                        # Inherited by the fork, not sent to it.
                        if method == "fork":
                            got.append(in_fork(lambda: momentum_of(ckpt)))
                    self.assertEqual(set(got), {want}, method)


def momentum_of(ckpt):
    return hashlib.sha256(ckpt.read(QKV, "momentum").tobytes()).digest()


def in_fork(work):
    """The bytes that `work` gives in a forked process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, work())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as f:
        result = f.read()
    os.waitpid(child, 0)
    return result


class InspectTest(unittest.TestCase):
    def test_the_summary_is_the_tools(self):
        for case in CASES:
            self.assertEqual(
                muonstore.open(root(case)).summary,
                json.loads(tool("ckpt-inspect", "summary", root(case),
                                "--json")))

    def test_the_tensors_are_the_tools(self):
        ckpt = muonstore.open(root(CASES[1]))
        want = json.loads(tool("ckpt-inspect", "tensors", root(CASES[1]),
                               "--json"))["tensors"]
        self.assertEqual(ckpt.tensors, want)
        self.assertEqual(ckpt.select("*.qkv.*", "momentum"),
                         [t for t in want if t["state"] == "momentum"
                          and ".qkv." in t["parameter"]])

    def test_stats_of_a_matrix_are_numpys(self):
        ckpt = muonstore.open(root(CASES[0]))
        for stats in ckpt.stats(top=2):
            matrix = ckpt.read(stats["parameter"], "momentum").astype(float)
            sigma = np.linalg.svd(matrix, compute_uv=False)
            self.assertAlmostEqual(stats["stats"]["frobenius"],
                                   np.linalg.norm(matrix), delta=1e-9)
            np.testing.assert_allclose(stats["stats"]["singular_values"],
                                       sigma[:2], rtol=1e-6)

    def test_stats_of_heads(self):
        ckpt = muonstore.open(root(CASES[0]))
        heads = ckpt.stats(param=QKV, per_head=12)
        self.assertEqual(sorted(h["matrix"] for h in heads), list(range(12)))
        self.assertEqual({(h["rows"], h["cols"]) for h in heads}, {(6, 24)})

    def test_a_matrix_beside_itself_is_identical(self):
        ckpt = muonstore.open(root(CASES[0]))
        stats = ckpt.stats(vs=ckpt, param=QKV)[0]
        self.assertEqual(stats["flags"], ["identical"])
        self.assertAlmostEqual(stats["cosine"], 1, delta=1e-6)

    def test_numbers_are_numbers(self):
        for matrix in muonstore.open(root(CASES[0])).stats("master"):
            for value in matrix["stats"].values():
                self.assertNotIsInstance(value, str)
        for matrix in muonstore.open(root(CASES[0])).stats():
            self.assertTrue(math.isfinite(matrix["ratio_to_master"]))

    def test_numbers_that_make_no_sense(self):
        ckpt = muonstore.open(root(CASES[0]))
        for options in ({"jobs": -1}, {"jobs": "2"}, {"per_head": -3},
                        {"top": -1}):
            with self.assertRaisesRegex(muonstore.InvalidArgumentError,
                                        next(iter(options))):
                ckpt.stats(**options)
        with self.assertRaisesRegex(muonstore.InvalidArgumentError, "jobs"):
            muonstore.diff(ckpt.path, ckpt.path, jobs=-1)

    def test_diff(self):
        a, b = root("s2-ws2-fp32-none-base"), root("s3-ws2-fp32-cpu-base")
        self.assertTrue(muonstore.diff(a, b)["same_state"])
        other = root("s2-ws2-bf16-none-base")
        self.assertFalse(muonstore.diff(a, other)["same_state"])
        self.assertFalse(muonstore.diff(muonstore.open(a), other,
                                        state="momentum")["same_state"])

    def test_verify_finds_a_changed_byte(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = folder + "/ckpt"
            shutil.copytree(root(CASES[0]), copy)
            self.assertTrue(muonstore.verify(copy)["whole"])
            name = copy + "/step5/mp_rank_00_model_states.pt"
            with open(name, "r+b") as f:
                f.seek(-9000, 2)
                byte = f.read(1)
                f.seek(-1, 1)
                f.write(bytes([byte[0] ^ 1]))
            report = muonstore.verify(copy)
            self.assertFalse(report["whole"])
            self.assertEqual(report["findings"][0]["file"], name)
            self.assertTrue(muonstore.open(copy).verify(quick=True)["whole"])

    def test_a_tag_stays_the_one_that_was_opened(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = folder + "/ckpt"
            shutil.copytree(root("s2-ws2-bf16-none-twotags"), copy)
            ckpt = muonstore.open(copy)
            self.assertEqual(ckpt.tag, "step8")
            with open(copy + "/latest", "w") as f:
                f.write("step5")
            self.assertEqual(ckpt.select(QKV), muonstore.open(
                copy, "step8").select(QKV))
            np.testing.assert_array_equal(ckpt.read(QKV), muonstore.open(
                copy, "step8").read(QKV))


class OrthogonalizeTest(unittest.TestCase):
    def test_singular_values_are_near_one_and_vectors_are_kept(self):
        momentum = muonstore.open(root(CASES[0])).read(QKV, "momentum")
        heads = momentum.astype(np.float32).reshape(12, 6, 24)
        result = muonstore.orthogonalize(heads)
        self.assertEqual(result.shape, heads.shape)
        for head, update in zip(heads.astype(float), result.astype(float)):
            u, s, vt = np.linalg.svd(head, full_matrices=False)
            inside = u.T @ update @ vt.T
            kept = s > 1e-3 * s[0]
            off = inside - np.diag(np.diag(inside))
            self.assertLess(np.abs(off).max(), 1e-3)
            self.assertTrue(np.all(np.diag(inside)[kept] > 0.3))
            self.assertTrue(np.all(np.diag(inside) < 1.25))

    def test_the_same_bits_for_any_number_of_threads(self):
        matrix = np.random.default_rng(2).standard_normal((70, 300))
        one = muonstore.orthogonalize(matrix, num_threads=1)
        np.testing.assert_array_equal(
            one, muonstore.orthogonalize(matrix, num_threads=3))

    def test_what_makes_no_sense(self):
        for options in ({"precision": "f8"}, {"coefficients": "mine"},
                        {"num_threads": -1}, {"num_threads": 10**6}):
            with self.assertRaises(muonstore.InvalidArgumentError):
                muonstore.orthogonalize(np.eye(3), **options)
        with self.assertRaisesRegex(muonstore.InvalidArgumentError, "finite"):
            muonstore.orthogonalize([[1, float("nan")]])
        with self.assertRaises(muonstore.InvalidArgumentError):
            muonstore.orthogonalize([1.0, 2.0])

    def test_raw_bits_are_not_orthogonalized(self):
        with self.assertRaisesRegex(muonstore.InvalidArgumentError,
                                    "ml_dtypes"):
            muonstore.orthogonalize(np.eye(3, dtype=np.uint16))


class CarriedTest(unittest.TestCase):
    def test_client_state_is_pythons(self):
        model = muonstore.open(root("s2-ws2-bf16-none-clientstate")).carried()[
            "model_states"]
        self.assertEqual(model["epoch"], 7)
        self.assertEqual(model["best"], math.inf)
        self.assertEqual(model["numpy_scalar"], np.float64(0.125))
        self.assertIsInstance(model["numpy_scalar"], np.float64)
        self.assertEqual(model["numpy_int"], -9)
        self.assertEqual(model["set"], {1, 2})
        self.assertEqual(model["nested"], {
            "lr": 0.5, 3: ("a", b"\x00\xff", {"deep": [True, None, -1.5,
                                                      2 ** 70]}),
            "unicode": "\u00e9\u4e2d\U0001f600"})
        np.testing.assert_array_equal(
            model["tensor"], np.arange(6, dtype=np.float64).reshape(2, 3) / 7)
        np.testing.assert_array_equal(model["slice_view"], [2, 4, 6])
        self.assertEqual(model["empty"].shape, (0, 4))
        self.assertEqual(model["bf16"].dtype, ml_dtypes.bfloat16)
        self.assertEqual(model["lr_scheduler"], {"last_batch_iteration": 4})

    def test_tensors_of_the_checkpoint_are_none(self):
        model = muonstore.open(root(CASES[0])).carried()["model_states"]
        self.assertIn(QKV, model["module"])
        self.assertEqual(set(model["module"].values()), {None})

    def test_classes_are_opaque(self):
        optim = muonstore.open(root("s2-ws2-fp16-none-scaledoubled")).carried(
            1)["optim_states"]["optimizer_state_dict"]
        scaler = optim["loss_scaler"]
        self.assertIsInstance(scaler, muonstore.Opaque)
        self.assertIn("DynamicLossScaler", repr(scaler))
        self.assertEqual(scaler.attributes["cur_scale"], 512)
        self.assertNotIn("deepspeed", sys.modules)

    def test_without_torch_it_says_what_to_install(self):
        ckpt = muonstore.open(root(CASES[0]))
        with mock.patch.dict(sys.modules, {"torch": None}):
            for work in (lambda: ckpt.read(QKV, torch=True),
                         lambda: ckpt.carried(torch=True)):
                with self.assertRaisesRegex(muonstore.UnavailableError,
                                            "install the package torch") as it:
                    work()
                self.assertIsInstance(it.exception.__cause__, ImportError)

    def test_a_rank_that_is_not_there(self):
        with self.assertRaises(muonstore.InvalidArgumentError):
            muonstore.open(root(CASES[0])).carried(2)


class ErrorTest(unittest.TestCase):
    def test_code_text_and_place(self):
        with self.assertRaises(muonstore.NotFoundError) as caught:
            muonstore.open("/no/such/folder")
        error = caught.exception
        self.assertEqual(error.code, "NotFound")
        self.assertEqual(error.file, "/no/such/folder")
        self.assertIsNone(error.tensor)
        self.assertEqual(str(error),
                         "/no/such/folder: no such file or directory")

    def test_every_class_is_an_error(self):
        for name in muonstore.__all__:
            if name.endswith("Error"):
                self.assertTrue(issubclass(getattr(muonstore, name),
                                           muonstore.Error))

    def test_an_error_crosses_processes(self):
        with self.assertRaises(muonstore.Error) as caught:
            muonstore.open(root(CASES[0]), "step6")
        again = pickle.loads(pickle.dumps(caught.exception))
        self.assertIs(type(again), type(caught.exception))
        self.assertEqual(str(again), str(caught.exception))
        self.assertEqual(again.found, caught.exception.found)

    def test_a_name_that_is_not_there_lists_the_nearest(self):
        ckpt = muonstore.open(root(CASES[0]))
        with self.assertRaises(muonstore.NotFoundError) as caught:
            ckpt.read("blocks.0.attn.qkv.weigth")
        self.assertIn(QKV, str(caught.exception))
        with self.assertRaisesRegex(muonstore.NotFoundError, "'momentum'"):
            ckpt.read(QKV, "velocity")
        # One that names several is there, and makes no sense.
        with self.assertRaises(muonstore.InvalidArgumentError):
            ckpt.read("*.qkv.weight")

    def test_texts_name_parameters_and_not_the_tools_options(self):
        with tempfile.TemporaryDirectory() as folder:
            copy = folder + "/a --b"
            shutil.copytree(root("s2-ws2-bf16-none-twotags"), copy)
            os.remove(copy + "/latest")
            with self.assertRaises(muonstore.InvalidArgumentError) as caught:
                muonstore.open(copy)
        self.assertIn("pick a tag with `tag`: ", caught.exception.message)
        self.assertIn("/a --b:", str(caught.exception))
        with self.assertRaises(muonstore.DataLossError) as caught:
            muonstore.open(root("s1-ws2-bf16-none-elastic")).read(QKV)
        self.assertIn("`allow_loss` takes", str(caught.exception))

    def test_a_name_that_is_no_utf_8(self):
        with tempfile.TemporaryDirectory() as folder:
            path = folder + b"/\xff".decode("utf-8", "surrogateescape")
            with self.assertRaisesRegex(muonstore.NotFoundError, r"/\\xff: no"):
                muonstore.open(path)
            shutil.copytree(root(CASES[0]), path)
            self.assertEqual(muonstore.open(path).path, path + "/step5")
            self.assertTrue(muonstore.verify(path)["whole"])


class ImportTest(unittest.TestCase):
    def test_imports_no_torch_and_ends_cleanly(self):
        code = ("import sys, muonstore; muonstore.open(sys.argv[1]).tensors; "
                "assert not {'torch', 'tqdm', 'h5py'} & set(sys.modules)")
        subprocess.run([sys.executable, "-X", "dev", "-W", "error", "-c", code,
                        root(CASES[0])], check=True)


if __name__ == "__main__":
    unittest.main()
