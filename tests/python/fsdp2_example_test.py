"""examples/fsdp2_offload.py, as a user runs it."""
import pathlib
import sys
import tempfile
import unittest

try:
    import torch  # noqa: F401
except ImportError as error:
    print(f"skipped: {error}; scripts/setup_interop installs torch")
    sys.exit(77)

import launch
import muonstore

EXAMPLE = pathlib.Path(__file__).parents[2] / "examples" / "fsdp2_offload.py"


def losses_of(printed):
    """By step."""
    pairs = [line.split() for line in printed.splitlines()]
    return {int(p[0]): float(p[1]) for p in pairs
            if len(p) == 2 and p[0].isdigit()}


def torchrun(num_ranks, *options):
    return losses_of(launch.torchrun(num_ranks, EXAMPLE, *options))


def alone(*options):
    return losses_of(launch.alone(EXAMPLE, *options))


class ExampleTest(unittest.TestCase):
    def test_trains_and_goes_on_with_other_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            first = torchrun(2, "--root", f"{folder}/a", "--steps", "6")
            rest = torchrun(4, "--root", f"{folder}/a", "--steps", "10",
                            "--resume")
            through = alone("--root", f"{folder}/b", "--steps", "10")
            self.assertEqual(muonstore.open(f"{folder}/a").tag, "step10")
        self.assertEqual(sorted(first), list(range(1, 7)))
        self.assertEqual(sorted(rest), list(range(7, 11)))
        self.assertLess(through[10], 0.8 * through[1])
        # Ranks add their shares of a batch up in other orders.
        for step, loss in {**first, **rest}.items():
            self.assertAlmostEqual(loss, through[step], delta=2e-3, msg=step)


if __name__ == "__main__":
    unittest.main()
