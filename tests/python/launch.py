"""Starts a program as a user of torch.distributed does; gives what it prints."""
import os
import socket
import subprocess
import sys


def torchrun(num_ranks, program, *words, **environment):
    return _run(["-m", "torch.distributed.run", "--standalone",
                 f"--nproc-per-node={num_ranks}", str(program), *words],
                environment)


def alone(program, *words, **environment):
    """Without the launcher, which takes as long as a rank to start."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    return _run([str(program), *words],
                {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1",
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
                 **environment})


def _run(command, environment):
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, timeout=900,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment})
    if done.returncode:
        raise AssertionError(f"{command}: {done.stdout}\n{done.stderr}")
    return done.stdout
