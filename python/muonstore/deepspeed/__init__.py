"""Resumes a live DeepSpeed engine from any checkpoint, and saves it.

    from muonstore.deepspeed import resume, save
    engine, *_ = deepspeed.initialize(model=model, config=config, ...)
    resumed = resume(engine, "runs/7")
    ...
    save(engine, "runs/7")

Needs torch; DeepSpeed is the caller's, nothing of it is imported here.
"""
from muonstore.deepspeed._resume import Resumed, resume
from muonstore.deepspeed._save import SaveHandle, save

__all__ = ["Resumed", "SaveHandle", "resume", "save"]
