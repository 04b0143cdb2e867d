"""What is left of OffloadMuon: memory, references, processes."""
import copy
import gc
import os
import pickle
import subprocess
import sys
import tempfile
import textwrap
import threading
import unittest
import weakref

try:
    import torch
except ImportError as error:
    print(f"skipped: {error}; scripts/setup_interop installs torch")
    sys.exit(77)

import muonstore
import seeded
from muonstore import OffloadMuon

# benchmarks/offload_muon_leaks.py takes 10,000, of a whole training loop.
WARM_UP, STEPS, ROUNDS = 2000, 1000, 3


def resident_kib():
    with open("/proc/self/status", encoding="ascii") as file:
        line = next(line for line in file if line.startswith("VmRSS"))
    return int(line.split()[1])


def tiny():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    return model, OffloadMuon(model.named_parameters(), num_threads=1)


def step_once(model, optimizer):
    optimizer.zero_grad()
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()


def run_python(text, **options):
    return subprocess.run(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(text)],
        capture_output=True, text=True, cwd=os.path.dirname(__file__),
        **options)


class LeakTest(unittest.TestCase):
    def test_steps_take_no_memory(self):
        model, optimizer = tiny()
        for _ in range(WARM_UP):
            step_once(model, optimizer)
        gc.collect()
        objects, kib, growths = len(gc.get_objects()), resident_kib(), []
        for _ in range(ROUNDS):
            for _ in range(STEPS):
                step_once(model, optimizer)
            gc.collect()
            growths.append(resident_kib() - kib)
            kib += growths[-1]
        self.assertLess(len(gc.get_objects()) - objects, 50)
        # A leak of 100 bytes a step grows in every round; what the allocator
        # takes for itself now and then does not.
        self.assertLess(min(growths), STEPS * 100 / 1024, growths)

    def test_no_reference_cycle(self):
        for folds in (False, True):
            model = seeded.Model()
            optimizer = OffloadMuon(model.named_parameters(),
                                    fold_in_backward=folds)
            optimizer.zero_grad()
            model(seeded.gradients(0)).backward()
            optimizer.step()
            optimizer.state_dict()
            gone = weakref.ref(optimizer)
            gc.disable()
            try:
                del optimizer
                self.assertIsNone(gone())
            finally:
                gc.enable()
            # Hooks of the dropped one leave gradients alone.
            model(seeded.gradients(0)).backward()
            self.assertIsNotNone(model.fc1.weight.grad)


class ProcessTest(unittest.TestCase):
    def test_the_interpreter_ends_with_an_optimizer_alive(self):
        for ending in ("", "sys.exit(3)", "raise ValueError('mine')"):
            with self.subTest(ending):
                done = run_python(f"""
                    import sys, torch, seeded, tempfile
                    from muonstore import OffloadMuon
                    model = seeded.Model()
                    optimizer = OffloadMuon(model.named_parameters())
                    model(seeded.gradients(0)).backward()
                    optimizer.step()
                    folder = tempfile.mkdtemp()
                    handle = optimizer.save(folder + "/r", "t",
                                            asynchronous=True)
                    {ending}
                    """)
                self.assertEqual(done.returncode,
                                 {"": 0, "sys.exit(3)": 3}.get(ending, 1),
                                 done.stderr)
                self.assertNotIn("Exception ignored", done.stderr)
                self.assertNotIn("leaked", done.stderr)

    def test_a_forked_process_is_refused_and_ends(self):
        model, optimizer = tiny()
        step_once(model, optimizer)
        read, write = os.pipe()
        pid = os.fork()
        if pid == 0:
            words = "nothing"
            try:
                step_once(model, optimizer)
            except muonstore.UnavailableError as error:
                words = str(error)
            del optimizer
            gc.collect()
            os.write(write, words.encode())
            os._exit(0)
        os.close(write)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        self.assertIn(b"forked", os.read(read, 4096))
        os.close(read)
        step_once(model, optimizer)

    def test_workers_of_a_data_loader(self):
        for method in ("fork", "spawn"):
            with self.subTest(method):
                self.train_with_workers(method)

    def train_with_workers(self, method):
        done = run_python(f"""
            import torch, seeded
            from muonstore import OffloadMuon
            from torch.utils.data import DataLoader
            if __name__ == "__main__":
                model = seeded.Model()
                optimizer = OffloadMuon(model.named_parameters())
                for (step,) in DataLoader([[i] for i in range(4)],
                                          num_workers=2,
                                          multiprocessing_context="{method}"):
                    optimizer.zero_grad()
                    model(seeded.gradients(int(step))).backward()
                    optimizer.step()
                print(optimizer.report.num_orthogonalized)
            """)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "5"),
                         done.stderr)

    def test_is_not_sent_to_other_processes(self):
        _, optimizer = tiny()
        for send in (pickle.dumps, copy.deepcopy):
            with self.assertRaisesRegex(muonstore.UnsupportedError,
                                        "state_dict"):
                send(optimizer)

    def interrupted_save(self, options):
        """Ctrl-C once the first file is there."""
        with tempfile.TemporaryDirectory() as folder:
            done = run_python(f"""
                import os, pathlib, signal, threading, torch
                from muonstore import OffloadMuon
                root = pathlib.Path({folder!r}) / "run"
                def interrupt():
                    while not any(p.is_file() for p in root.rglob("*")):
                        pass
                    os.kill(os.getpid(), signal.SIGINT)
                model = torch.nn.Linear(1000, 1000)
                optimizer = OffloadMuon(model.named_parameters())
                threading.Thread(target=interrupt).start()
                try:
                    optimizer.save(root, "t", zstd_level=9, {options}).wait()
                    while True:
                        pass
                except KeyboardInterrupt:
                    print("interrupted")
                """, timeout=120)
            self.assertEqual((done.returncode, done.stdout.strip()),
                             (0, "interrupted"), done.stderr)
            root = os.path.join(folder, "run")
            self.assertEqual(set(os.listdir(root)) - {"latest", "t"}, set())
            self.assertTrue(muonstore.verify(root, "t")["whole"])

    def test_ctrl_c_in_a_save_leaves_it_whole(self):
        for options in ("asynchronous=False", "asynchronous=True"):
            with self.subTest(options):
                self.interrupted_save(options)

    def test_close_beside_another_threads_call(self):
        """It is refused, or the other thread's calls are: no crash."""
        model, optimizer = tiny()
        step_once(model, optimizer)
        stopped = []

        def work(folder):
            try:
                while True:
                    optimizer.save(folder, "t", overwrite=True)
            except muonstore.UnavailableError as error:
                stopped.append(str(error))

        with tempfile.TemporaryDirectory() as folder:
            thread = threading.Thread(target=work, args=(folder,))
            thread.start()
            while thread.is_alive():
                try:
                    optimizer.close()
                except muonstore.UnavailableError as error:
                    self.assertIn("stays open", str(error))
            thread.join()
        self.assertEqual(len(stopped), 1)

    def test_the_package_without_torch_has_no_optimizer_only_when_asked(self):
        done = run_python("""
            import sys
            sys.modules["torch"] = None
            import muonstore
            try:
                muonstore.OffloadMuon
            except ImportError:
                print("needs torch")
            """)
        self.assertEqual(done.stdout.strip(), "needs torch", done.stderr)


if __name__ == "__main__":
    unittest.main()
