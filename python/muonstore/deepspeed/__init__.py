"""Resumes a live DeepSpeed engine from any checkpoint.

    from muonstore.deepspeed import resume
    engine, *_ = deepspeed.initialize(model=model, config=config, ...)
    resumed = resume(engine, "runs/7")

Needs torch; DeepSpeed is the caller's, nothing of it is imported here.
"""
from muonstore.deepspeed._resume import Resumed, resume

__all__ = ["Resumed", "resume"]
