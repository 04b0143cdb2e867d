"""Where the tests' checkpoints are, and what they hold."""
import os
import pathlib
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
DATA = REPOSITORY / "tests" / "data" / "deepspeed"
sys.path[:0] = [str(REPOSITORY / "tests" / "data" / "generators")]


def root(name):
    return str(DATA / name / "ckpt")


def golden(name):
    """What the run held when it saved: "fp32/<parameter>", ..."""
    import golden as reader
    return reader.load(str(DATA / name))


def make_large(folder, *options):
    """A checkpoint whose conversion takes seconds."""
    subprocess.run([sys.executable,
                    REPOSITORY / "scripts" / "make_large_checkpoint.py",
                    folder, "--fill", *options], check=True)
    return folder


def tool(name, *words):
    """What a tool prints."""
    program = os.path.join(os.environ["MUONSTORE_TOOLS"], name)
    return subprocess.run([program, *words], check=True, capture_output=True,
                          text=True).stdout
