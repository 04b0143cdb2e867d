#!/usr/bin/env python3
"""Checks what list and summary said about a generated checkpoint.

    check_output.py STAGE LIST.json SUMMARY.json
"""
import json
import sys


def check(what, found, expected):
    if found != expected:
        sys.exit(f"{what}: {found!r} instead of {expected!r}")


def main():
    stage = int(sys.argv[1])
    with open(sys.argv[2]) as f:
        tags = json.load(f)["tags"]
    with open(sys.argv[3]) as f:
        summary = json.load(f)

    check("number of tags", len(tags), 1)
    for key, expected in [("stage", stage), ("num_ranks", 1024), ("step", 5),
                          ("complete", True), ("missing", []),
                          ("is_latest", True)]:
        check(f"list: {key}", tags[0][key], expected)

    for key, expected in [("stage", stage), ("num_ranks", 1024), ("step", 5),
                          ("num_files", 2048 if stage == 3 else 1025),
                          ("precision", "bf16"),
                          ("order", "sorted by shape"),
                          ("findings", [])]:
        check(f"summary: {key}", summary[key], expected)
    check("parameters of the groups",
          [group["num_parameters"] for group in summary["groups"]],
          [66664, 33336])
    masters = [s for s in summary["state"] if s["state"] == "master"]
    check("masters", masters[0]["num_tensors"], 100000)
    check("size in list and summary", tags[0]["size_bytes"],
          summary["size_bytes"])


if __name__ == "__main__":
    main()
