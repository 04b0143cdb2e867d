#!/usr/bin/env python3
"""Compiles the kernels of DeepSpeed that the tests' runs use."""
from deepspeed.accelerator import get_accelerator

for name in ("CPUAdamBuilder", "FusedAdamBuilder", "ShareMemCommBuilder"):
    get_accelerator().create_op_builder(name).load(verbose=True)
