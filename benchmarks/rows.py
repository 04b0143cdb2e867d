"""What the benchmark scripts share: rows, tables, and where things lie."""
import dataclasses
import json
import os
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BENCHMARKS = f"{ROOT}/build/release/benchmarks"
PEER_PYTHON = f"{ROOT}/build/interop/venv/bin/python"
NEEDS_PEERS = "needs scripts/setup_interop"


@dataclasses.dataclass
class Row:
    """One figure, and what it is compared with.

    seconds: None where it could not be measured; then `note` says why.
    reference: what the reference seconds are of; the ratio is theirs to ours,
      so that more is better.
    goal: the least ratio that is good enough; None: there is no goal.
    """
    what: str
    seconds: float | None
    reference: str = ""
    reference_seconds: float | None = None
    goal: float | None = None
    note: str = ""

    @property
    def ratio(self):
        if self.seconds and self.reference_seconds:
            return self.reference_seconds / self.seconds
        return None

    @property
    def verdict(self):
        """met, MISSED, or nothing where there is no goal or no figure."""
        if self.goal is None or self.ratio is None:
            return ""
        return "met" if self.ratio >= self.goal else "MISSED"


def has_peers():
    return os.path.exists(PEER_PYTHON)


def run(*command, env=None):
    """What it prints."""
    return subprocess.run([str(word) for word in command], check=True, env=env,
                          stdout=subprocess.PIPE, text=True).stdout


def state_bytes(path):
    """Of the optimizer files of a DeepSpeed checkpoint; holes count, too."""
    return sum(os.path.getsize(os.path.join(folder, name))
               for folder, _, names in os.walk(path) for name in names
               if "optim_states" in name)


def _cells(row):
    ratio = f"{row.ratio:.2f}" if row.ratio else ""
    goal = f"{row.goal:.2f}" if row.goal else ""
    seconds = "-" if row.seconds is None else f"{row.seconds:.3f}"
    return [row.what, seconds, ratio, row.reference if ratio else "", goal,
            row.verdict, row.note]


HEADINGS = ["work", "seconds", "ratio", "of", "goal", "", ""]


def print_table(rows):
    table = [HEADINGS] + [_cells(row) for row in rows]
    widths = [max(len(cells[i]) for cells in table)
              for i in range(len(HEADINGS))]
    for cells in table:
        padded = [cell.rjust(width) if i in (1, 2, 4) else cell.ljust(width)
                  for i, (cell, width) in enumerate(zip(cells, widths))]
        print("  ".join(padded).rstrip(), flush=True)


def markdown(rows):
    lines = ["| " + " | ".join(HEADINGS) + " |",
             "|---|--:|--:|---|--:|---|---|"]
    lines += ["| " + " | ".join(_cells(row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def as_json(rows):
    return [dict(dataclasses.asdict(row), ratio=row.ratio, verdict=row.verdict)
            for row in rows]


def from_json(text):
    names = [field.name for field in dataclasses.fields(Row)]
    return [Row(**{name: row[name] for name in names})
            for row in json.loads(text)]


def report(rows, json_path=None):
    """Prints the table; also writes the figures where a path is given."""
    print_table(rows)
    if json_path:
        with open(json_path, "w") as f:
            json.dump(as_json(rows), f, indent=1)
            f.write("\n")
