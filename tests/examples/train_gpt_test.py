#!/usr/bin/env python3
"""What train_gpt promises beside its curves.

    train_gpt_test.py TRAIN_GPT
"""
import csv
import os
import signal
import subprocess
import sys
import tempfile
import unittest

TRAIN_GPT = os.path.abspath(sys.argv.pop(1))
# A model whose steps take milliseconds.
SMALL = ["--layers", "1", "--dim", "16", "--heads", "2", "--context", "8"]


def run(*flags, model=SMALL):
    return subprocess.run([TRAIN_GPT, *model, *flags], capture_output=True,
                          text=True, timeout=120)


class TrainGpt(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def curve(self, *flags):
        path = f"{self.folder}/curve.csv"
        done = run("--steps", "4", "--csv", path, *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path) as f:
            rows = list(csv.DictReader(f))
        self.assertEqual([row["step"] for row in rows], ["1", "2", "3", "4"])
        # A line a step, and one at the end; the store's first says where.
        lines = 5 if "--baseline" in flags else 6
        self.assertEqual(len(done.stdout.splitlines()), lines, done.stdout)
        return [(float(row["loss"]), float(row["norm"])) for row in rows]

    def assert_usage_error(self, words, *flags):
        done = run(*flags, model=[])
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn(words, done.stderr)

    def test_a_seed_is_a_curve(self):
        for mode in (["--baseline"], ["--ranks", "2", "--stage", "3"]):
            first = self.curve(*mode)
            self.assertEqual(first, self.curve(*mode))
            self.assertNotEqual(first, self.curve(*mode, "--seed", "2"))

    def test_every_option_reaches_both_optimizers(self):
        """Each changes the curve, and the store's follows the baseline's."""
        plain = self.curve("--baseline")
        for option in (["--no-nesterov"], ["--scale", "match_rms"],
                       ["--qkv", "whole"], ["--qkv", "heads"],
                       ["--lr", "0.1"], ["--adam-lr", "0.1"],
                       ["--momentum", "0.2"], ["--weight-decay", "3"],
                       ["--max-norm", "0.01"]):
            with self.subTest(option=option):
                baseline = self.curve("--baseline", *option)
                self.assertNotEqual(baseline, plain)
                stored = self.curve("--ranks", "2", "--newton-schulz",
                                    "standard", *option)
                for (a, norm_a), (b, norm_b) in zip(baseline, stored):
                    self.assertLess(abs(a - b), 1e-4 * a)
                    self.assertLess(abs(norm_a - norm_b), 1e-3 * norm_a)

    def test_both_momentum_conventions_take_the_same_steps(self):
        lerp = self.curve("--ranks", "1", "--newton-schulz", "standard")
        accumulate = self.curve("--ranks", "1", "--newton-schulz", "standard",
                                "--momentum-convention", "accumulate")
        self.assertNotEqual(lerp, accumulate)
        for (a, _), (b, _) in zip(lerp, accumulate):
            self.assertLess(abs(a - b), 1e-4 * a)

    def test_every_tier_gives_the_same_curve(self):
        """To the bit, and leaves nothing on the disk."""
        disk = f"{self.folder}/disk"
        os.mkdir(disk)
        on_disk = ["--nvme-dir", disk]
        for ranks in ("1", "2"):
            mode = ["--ranks", ranks, "--stage", "3"]
            memory = self.curve(*mode)
            for tier in (["--tier", "host"], ["--tier", "shared"],
                         ["--tier", "nvme", *on_disk],
                         ["--memory-budget", "60KB", *on_disk]):
                with self.subTest(ranks=ranks, tier=tier):
                    self.assertEqual(memory, self.curve(*mode, *tier))
        self.assertEqual(os.listdir(disk), [])

    def test_a_memory_budget_is_kept_or_refused(self):
        budget = ["--ranks", "2", "--steps", "1", "--nvme-dir", self.folder,
                  "--memory-budget"]
        self.assertIn("nvme 0.0 MiB\n", run(*budget, "1GB").stdout)
        on_disk = run(*budget, "60KB").stdout.splitlines()[0]
        self.assertIn("exp_avg, exp_avg_sq", on_disk)
        self.assertNotIn("nvme 0.0 MiB", on_disk)
        refused = run(*budget, "1KB")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("more than --memory-budget", refused.stderr)

    def steps(self, *flags):
        """step -> (loss, norm), and what was printed."""
        path = f"{self.folder}/steps.csv"
        done = run("--csv", path, *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path) as f:
            return {int(row["step"]): (row["loss"], row["norm"])
                    for row in csv.DictReader(f)}, done.stdout

    def test_a_resumed_run_goes_on_as_one_that_was_not_interrupted(self):
        whole, _ = self.steps("--ranks", "2", "--steps", "8")
        for mode in ([], ["--async"]):
            with self.subTest(mode=mode):
                root = f"{self.folder}/root{len(mode)}"
                first, printed = self.steps(
                    "--ranks", "2", "--steps", "6", "--save-every", "2",
                    "--save-dir", root, *mode)
                self.assertEqual(printed.count("saved "), 3)
                self.assertEqual(first, {s: whole[s] for s in range(1, 7)})
                self.assertEqual(sorted(os.listdir(root)),
                                 ["latest", "step2", "step4", "step6"])
                for stage in ("1", "2", "3"):
                    rest, printed = self.steps(
                        "--ranks", "2", "--steps", "8", "--stage", stage,
                        "--resume", root)
                    self.assertIn("step6 after step 6", printed)
                    self.assertEqual(rest, whole)  # The file goes on.

    def test_a_resumed_curve_goes_on_behind_the_checkpoint(self):
        """Rows of steps after it, and one that was cut, are written anew."""
        root, path = f"{self.folder}/root", f"{self.folder}/curve.csv"
        whole, _ = self.steps("--steps", "6")
        done = run("--steps", "5", "--save-every", "3", "--save-dir", root,
                   "--csv", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path, "a") as f:
            f.write("6,0.5")
        done = run("--steps", "6", "--resume", root, "--csv", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path) as f:
            rows = list(csv.DictReader(f))
        self.assertEqual([row["step"] for row in rows], list("123456"))
        self.assertEqual({int(row["step"]): (row["loss"], row["norm"])
                          for row in rows}, whole)
        # A file of another kind is not written over.
        with open(path, "w") as f:
            f.write("mine\n")
        done = run("--steps", "6", "--resume", root, "--csv", path)
        self.assertEqual(done.returncode, 1)
        self.assertIn("is no curve to go on with", done.stderr)
        with open(path) as f:
            self.assertEqual(f.read(), "mine\n")

    def test_a_row_that_was_cut_is_dropped_whatever_its_step(self):
        root, path = f"{self.folder}/root", f"{self.folder}/curve.csv"
        done = run("--steps", "4", "--save-every", "4", "--save-dir", root,
                   "--csv", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path) as f:
            text = f.read()
        with open(path, "w") as f:
            f.write(text[:-5])
        done = run("--steps", "6", "--resume", root, "--csv", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(path) as f:
            rows = list(csv.DictReader(f))
        self.assertEqual([row["step"] for row in rows], list("12356"))

    def test_only_a_regular_file_has_a_curve_to_go_on_with(self):
        """Reading a pipe or a device would never end."""
        root = f"{self.folder}/root"
        done = run("--steps", "3", "--save-every", "3", "--save-dir", root)
        self.assertEqual(done.returncode, 0, done.stderr)
        done = run("--steps", "4", "--resume", root, "--csv", "/dev/stdout")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("step,loss,norm,seconds\n", done.stdout)
        self.assertRegex(done.stdout, r"(?m)^4,[0-9.]+,")
        done = run("--steps", "4", "--resume", root, "--csv", "/dev/full")
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot write /dev/full", done.stderr)

    def test_checkpoints_of_another_run_are_not_replaced(self):
        root, other = f"{self.folder}/root", f"{self.folder}/other"
        save = ["--save-every", "2", "--save-dir"]
        for folder in (root, other, f"{root}/below"):  # That holds none.
            done = run("--steps", "2", *save, folder)
            self.assertEqual(done.returncode, 0, done.stderr)
        with open(f"{root}/step2/manifest.json", "rb") as f:
            manifest = f.read()
        for resume in ([], ["--resume", other]):
            refused = run("--steps", "4", "--seed", "2", *save, root, *resume)
            self.assertEqual(refused.returncode, 1)
            self.assertIn("newest step2, which this run would replace",
                          refused.stderr)
            self.assertIn(f"--resume {root}, or name another", refused.stderr)
            self.assertEqual(refused.stdout, "")
        with open(f"{root}/step2/manifest.json", "rb") as f:
            self.assertEqual(f.read(), manifest)
        done = run("--steps", "4", "--resume", f"{root}/.", *save, root)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("step4", os.listdir(root))

    def test_keep_prunes_old_checkpoints(self):
        root = f"{self.folder}/root"
        done = run("--steps", "5", "--save-every", "1", "--save-dir", root,
                   "--keep", "2", "--async")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(os.listdir(root)),
                         ["latest", "step4", "step5"])

    def test_the_other_momentum_convention_is_refused_on_resume(self):
        root = f"{self.folder}/root"
        done = run("--steps", "2", "--save-every", "2", "--save-dir", root,
                   "--momentum-convention", "accumulate")
        self.assertEqual(done.returncode, 0, done.stderr)
        done = run("--steps", "3", "--resume", root, "--ranks", "2")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--momentum-convention accumulate", done.stderr)
        done = run("--steps", "3", "--resume", root,
                   "--momentum-convention", "accumulate")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_help_says_words_and_defaults(self):
        text = run("--help").stdout
        for line in ("--grad-dtype f32|bf16=f32", "--qkv whole|packed|heads=packed",
                     "--lr FLOAT=0.01", "--tier default|host|shared|nvme=default",
                     "--momentum-convention lerp|accumulate=lerp"):
            self.assertIn(line, " ".join(text.split()))

    def test_text_of_a_file(self):
        path = f"{self.folder}/text"
        with open(path, "w") as f:
            f.write("muon " * 100)
        self.assertNotEqual(self.curve("--baseline", "--text", path),
                            self.curve("--baseline"))

    def test_short_text(self):
        path = f"{self.folder}/text"
        with open(path, "w") as f:
            f.write("short")
        done = run("--baseline", "--text", path)
        self.assertEqual(done.returncode, 1)
        self.assertIn("shorter than one sample", done.stderr)

    def test_usage(self):
        self.assert_usage_error("cannot be shared equally by 5", "--ranks", "5")
        self.assert_usage_error("--baseline-split", "--baseline", "--ranks",
                                "2")
        self.assert_usage_error("requires --baseline", "--baseline-split", "2")
        self.assert_usage_error("multiple of --heads", "--dim", "97")
        self.assert_usage_error("--stage", "--stage", "4")
        self.assert_usage_error("takes f32|bf16", "--grad-dtype", "f64")
        self.assert_usage_error("need --nvme-dir", "--tier", "nvme")
        self.assert_usage_error("need --nvme-dir", "--memory-budget", "1MB")
        self.assert_usage_error("needs --save-dir", "--save-every", "2")
        for option in (["--keep", "2"], ["--async"],
                       ["--save-dir", self.folder]):
            self.assert_usage_error(f"{option[0]} needs --save-every", *option)
        self.assert_usage_error("--nvme-dir needs --tier nvme", "--nvme-dir",
                                self.folder)
        self.assert_usage_error("--resume", "--resume", "/no/such/root")

    def test_numbers_without_meaning_are_refused_by_name(self):
        for option in ("--lr", "--adam-lr", "--weight-decay", "--max-norm",
                       "--momentum"):
            for value in ("-1", "nan", "inf"):
                self.assert_usage_error(f"{option}: takes a number", option,
                                        value)
        self.assert_usage_error("--momentum: takes a number from 0 to below 1",
                                "--momentum", "1")
        # Once the largest number there is.
        self.assert_usage_error("--seed: takes no negative", "--seed", "-1")
        self.assert_usage_error("--memory-budget: takes no negative",
                                "--memory-budget", "-1", "--nvme-dir",
                                self.folder)

    def test_the_baseline_has_no_options_of_a_store(self):
        for option in (["--stage", "3"], ["--tier", "nvme"], ["--tier", "host"],
                       ["--nvme-dir", self.folder], ["--memory-budget", "1MB"],
                       ["--newton-schulz", "gram"], ["--save-every", "2"],
                       ["--save-dir", self.folder], ["--keep", "1"],
                       ["--async"], ["--resume", self.folder]):
            with self.subTest(option=option):
                done = run(*option, "--baseline")
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertRegex(done.stderr, f"({option[0]}|--baseline) "
                                 f"excludes ({option[0]}|--baseline)")

    def test_a_rank_that_dies_ends_the_run(self):
        launcher = subprocess.Popen(
            [TRAIN_GPT, *SMALL, "--ranks", "2", "--steps", "1000000"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(launcher.kill)
        launcher.stdout.readline()  # The ranks are under way.
        with open(f"/proc/{launcher.pid}/task/{launcher.pid}/children") as f:
            ranks = [int(pid) for pid in f.read().split()]
        self.assertEqual(len(ranks), 2)
        os.kill(ranks[1], signal.SIGKILL)
        _, errors = launcher.communicate(timeout=120)
        self.assertNotEqual(launcher.returncode, 0)
        self.assertIn("a rank ended with code", errors)
        for rank in ranks:
            self.assertFalse(os.path.exists(f"/proc/{rank}"))


if __name__ == "__main__":
    unittest.main()
