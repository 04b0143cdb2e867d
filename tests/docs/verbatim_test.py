#!/usr/bin/env python3
"""Code that a page shows is the file that the build compiles.

    verbatim_test.py ROOT PAGE.md            exit code 1 where they differ
    verbatim_test.py ROOT PAGE.md --update   write the file's text instead

A block whose fence follows "<!-- verbatim: PATH -->" must hold the file PATH.
"""
import os
import re
import sys

BLOCK = re.compile(r"<!-- verbatim: (?P<path>\S+) -->\n"
                   r"```(?P<language>\w*)\n(?P<text>.*?)^```$",
                   re.MULTILINE | re.DOTALL)


def read(path):
    with open(path) as f:
        return f.read()


def main():
    root, page = sys.argv[1:3]
    text = read(page)

    def real(block):
        return (f"<!-- verbatim: {block['path']} -->\n```{block['language']}\n"
                f"{read(os.path.join(root, block['path']))}```")

    if "--update" in sys.argv[3:]:
        updated = BLOCK.sub(real, text)
        with open(page, "w") as f:
            f.write(updated)
        return 0
    blocks = list(BLOCK.finditer(text))
    stale = [block["path"] for block in blocks if block.group() != real(block)]
    for path in stale:
        print(f"{page}: the block of {path} is not the file: run "
              "verbatim_test.py with --update")
    if not blocks:
        print(f"{page} has no verbatim block")
    return 1 if stale or not blocks else 0


if __name__ == "__main__":
    sys.exit(main())
