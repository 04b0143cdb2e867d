"""muonstore.convert: the tool's options, progress, and how it is stopped."""
import json
import os
import pathlib
import signal
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import muonstore

from data import make_large, root, tool

ZERO2 = "s2-ws2-bf16-none-base"


class ConvertTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_is_the_tool(self):
        by_tool, by_us = self.folder / "tool", self.folder / "us"
        want = json.loads(tool(
            "ckpt-convert", root(ZERO2), str(by_tool), "--stage", "3",
            "--world-size", "4", "--zero-init", "no", "--offload", "cpu",
            "--verify", "--json"))
        got = muonstore.convert(root(ZERO2), by_us, stage=3, world_size=4,
                                zero_init=False, offload="cpu", verify=True)
        for report in (want, got):
            self.assertEqual(report["target"].pop("path")[-6:], "/step5")
        self.assertEqual(got, want)
        files = sorted(p.relative_to(by_us) for p in by_us.rglob("*"))
        self.assertEqual(files, sorted(p.relative_to(by_tool)
                                       for p in by_tool.rglob("*")))
        for name in files:
            if (by_us / name).is_file():
                self.assertEqual((by_us / name).read_bytes(),
                                 (by_tool / name).read_bytes(), name)

    def test_a_loss_is_refused_by_kind(self):
        source = root("s1-ws2-bf16-none-elastic")
        with self.assertRaises(muonstore.UnsupportedError) as caught:
            muonstore.convert(source, self.folder / "out", stage=2)
        self.assertIn("`allow_loss` missing", str(caught.exception))
        self.assertFalse((self.folder / "out").exists())
        report = muonstore.convert(source, self.folder / "out", stage=2,
                                   allow_loss=["missing"])
        self.assertEqual(report["losses"][0]["kind"], "missing")

    def test_options_that_make_no_sense(self):
        for options in ({"stage": 7}, {"colour": "red"}, {"offload": "nvme"},
                        {"allow_loss": ["everything"]}, {"zstd": 3}):
            with self.assertRaises(muonstore.InvalidArgumentError):
                muonstore.convert(root(ZERO2), self.folder / "out", **options)

    def test_texts_have_pythons_yes_and_no(self):
        with self.assertRaises(muonstore.InvalidArgumentError) as caught:
            muonstore.convert(root(ZERO2), self.folder / "out", stage=3)
        for text in (str(caught.exception), caught.exception.message):
            self.assertIn("Say `zero_init=True` (", text)
            self.assertIn("or `zero_init=False`; ", text)

    def test_bars_without_tqdm_say_what_to_install(self):
        with mock.patch.dict(sys.modules, {"tqdm": None, "tqdm.auto": None}), \
                self.assertRaisesRegex(muonstore.UnavailableError,
                                       "install the package tqdm") as caught:
            muonstore.convert(root(ZERO2), self.folder / "out", progress=True)
        self.assertIsInstance(caught.exception.__cause__, ImportError)

    def test_progress(self):
        seen = []
        muonstore.convert(root(ZERO2), self.folder / "out",
                          progress=lambda *told: seen.append(told))
        what, done, total = seen[-1]
        self.assertEqual((what, done), ("writing", total))
        self.assertGreater(total, 0)


class StopTest(unittest.TestCase):
    """Of a conversion that would take many seconds."""

    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.source = make_large(cls.scratch.name + "/source", "--ranks", "2",
                                "--tensors", "40", "--width", "256")

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def convert(self, **options):
        return muonstore.convert(self.source, self.scratch.name + "/out",
                                 to="native", zstd=19, jobs=1, **options)

    def require_nothing_left(self):
        out = pathlib.Path(self.scratch.name + "/out")
        self.assertEqual([str(p) for p in out.rglob("*")], [])

    def test_ctrl_c(self):
        # Once something is written.
        def progress(_, done, __):
            if done:
                os.kill(os.getpid(), signal.SIGINT)

        with self.assertRaises(KeyboardInterrupt):
            self.convert(progress=progress)
        self.require_nothing_left()

    def test_what_the_callback_raises_goes_on(self):
        def progress(_, done, __):
            if done:
                raise ZeroDivisionError("enough")

        with self.assertRaisesRegex(ZeroDivisionError, "enough"):
            self.convert(progress=progress)
        self.require_nothing_left()

    def test_the_callback_hears_of_the_end_before_the_target_appears(self):
        def progress(_, done, total):
            if done == total:
                raise ZeroDivisionError("at the end")

        for _ in range(5):
            with self.assertRaisesRegex(ZeroDivisionError, "at the end"):
                self.convert(progress=progress)
            self.require_nothing_left()

    def test_other_threads_run_meanwhile(self):
        count, stop = [0], threading.Event()

        def work():
            while not stop.is_set():
                count[0] += 1
                time.sleep(0)

        def progress(_, done, __):
            if done and count[0] > 1000:
                raise StopIteration

        other = threading.Thread(target=work)
        other.start()
        try:
            with self.assertRaises(StopIteration):
                self.convert(progress=progress)
        finally:
            stop.set()
            other.join()
        self.require_nothing_left()


if __name__ == "__main__":
    unittest.main()
