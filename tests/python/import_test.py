#!/usr/bin/env python3
"""The package beside torch, whichever is imported first.

    import_test.py                           exit code 77 without torch

torch exports functions of a oneDNN of its own; to provoke the worst, it is
loaded with RTLD_GLOBAL here. The dynamic linker's own account says that none of
ours is bound to them, and products give the same bits.
"""
import importlib.util
import os
import re
import subprocess
import sys

ENVIRONMENT = {**os.environ, "TORCH_USE_RTLD_GLOBAL": "1"}
BINDING = re.compile(r"binding file (?P<user>\S+) \[\d+\] to (?P<giver>\S+) "
                     r"\[\d+\]: \w+ symbol `(?P<symbol>[^']*)'")


def foreign_bindings(code):
    """Symbols of oneDNN that the module or the library took from elsewhere, and
    how many they took in all."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True,
                          text=True, check=False,
                          env={**ENVIRONMENT, "LD_DEBUG": "bindings"})
    if done.returncode:
        sys.exit(f"{code}: {done.stderr[-2000:]}")
    foreign, count = [], 0
    for line in done.stderr.splitlines():
        found = BINDING.search(line)
        if not found or "dnnl" not in found["symbol"]:
            continue
        user = os.path.basename(found["user"])
        if user.startswith(("_core.", "libdnnl")):
            count += 1
            if not os.path.basename(found["giver"]).startswith("libdnnl"):
                foreign.append(f"{found['symbol']} from {found['giver']}")
    return foreign, count


def product(imports):
    """Bits of a matrix product of ours."""
    code = (f"import {imports}; import numpy as np; "
            "m = np.random.default_rng(1).standard_normal((96, 160)); "
            "u = muonstore.orthogonalize(m, precision='bf16'); "
            "import sys; sys.stdout.write(u.tobytes().hex())")
    return subprocess.run([sys.executable, "-c", code], capture_output=True,
                          text=True, check=True, env=ENVIRONMENT).stdout


def main():
    if importlib.util.find_spec("torch") is None:
        print("skipped: scripts/setup_interop installs torch")
        return 77
    failed = False
    for code in ("import torch, muonstore", "import muonstore, torch",
                 "import torch, muonstore.deepspeed"):
        foreign, count = foreign_bindings(code)
        print(f"{code}: {count} symbols of oneDNN, {len(foreign)} foreign")
        for text in foreign[:5]:
            print(f"  FAILED: {text}")
        failed |= bool(foreign) or count == 0
    bits = {product(imports) for imports in
            ("muonstore", "torch, muonstore", "muonstore, torch")}
    print("the same bits" if len(bits) == 1 else "FAILED: other bits")
    return int(failed or len(bits) != 1)


if __name__ == "__main__":
    sys.exit(main())
