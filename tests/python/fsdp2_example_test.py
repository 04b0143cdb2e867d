"""examples/fsdp2_offload.py, as a user runs it."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import torch  # noqa: F401
except ImportError as error:
    print(f"skipped: {error}; scripts/setup_interop installs torch")
    sys.exit(77)

import muonstore

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "fsdp2_offload.py"


def torchrun(num_ranks, *options):
    """Losses by step."""
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone",
         "--nproc-per-node", str(num_ranks), str(EXAMPLE), *options],
        capture_output=True, text=True)
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)
    pairs = [line.split() for line in done.stdout.splitlines()]
    return {int(p[0]): float(p[1]) for p in pairs
            if len(p) == 2 and p[0].isdigit()}


class ExampleTest(unittest.TestCase):
    def test_trains_and_goes_on_with_other_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            first = torchrun(2, "--root", f"{folder}/a", "--steps", "15")
            rest = torchrun(4, "--root", f"{folder}/a", "--steps", "25",
                            "--resume")
            through = torchrun(1, "--root", f"{folder}/b", "--steps", "25")
            self.assertEqual(muonstore.open(f"{folder}/a").tag, "step25")
        self.assertEqual(sorted(rest), list(range(16, 26)))
        self.assertLess(through[25], 0.5 * through[1])
        # Ranks add their shares of a batch up in other orders.
        for step, loss in {**first, **rest}.items():
            self.assertAlmostEqual(loss, through[step], delta=2e-3, msg=step)


if __name__ == "__main__":
    unittest.main()
