#!/usr/bin/env python3
"""Runs the commands in a page's ```console blocks and compares the output.

    console_test.py BIN_DIR PAGE.md            exit code 1 where they differ
    console_test.py BIN_DIR PAGE.md --update   write the real output instead

Commands are lines that start with "$ ", run with BIN_DIR in the path in a
folder that holds the cases of tests/data/deepspeed and is thrown away at the
end; standard error counts, too. Ages ("3 min") may differ.
"""
import difflib
import os
import re
import subprocess
import sys
import tempfile

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                    "..", "data", "deepspeed")
BLOCK = re.compile(r"(?<=^```console\n).*?(?=^```$)", re.MULTILINE | re.DOTALL)
AGE = re.compile(r" +\d+ (s|min|h|days?)\b")


def timeless(text):
    """Without ages, and without the column widths that follow from them."""
    return re.sub(" +", " ", AGE.sub(" AGE", text))


def run(command, bin_dir, folder):
    environment = dict(os.environ, PATH=f"{bin_dir}:{os.environ['PATH']}")
    done = subprocess.run(["bash", "-c", command], cwd=folder, text=True,
                          env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    return done.stdout


def replay(block, bin_dir, folder):
    """The block with the real output of its commands."""
    out = []
    for part in re.split(r"^(?=\$ )", block, flags=re.MULTILINE):
        if part.startswith("$ "):
            command = re.match(r"\$ ((?:.*\\\n)*.*)\n", part).group(1)
            out.append(f"$ {command}\n{run(command, bin_dir, folder)}")
    return "".join(out)


def main():
    bin_dir, page = os.path.abspath(sys.argv[1]), sys.argv[2]
    with open(page) as f:
        text = f.read()
    with tempfile.TemporaryDirectory() as folder:
        for case in os.listdir(DATA):
            os.symlink(os.path.join(DATA, case), os.path.join(folder, case))
        real = BLOCK.sub(
            lambda block: replay(block.group(), bin_dir, folder), text)
    if "--update" in sys.argv[3:]:
        with open(page, "w") as f:
            f.write(real)
        return 0
    if not BLOCK.search(text):
        print(f"{page} has no console block")
        return 1
    diff = list(difflib.unified_diff(
        timeless(text).splitlines(), timeless(real).splitlines(),
        page, "real output", lineterm=""))
    print("\n".join(diff))
    return 1 if diff else 0


if __name__ == "__main__":
    sys.exit(main())
