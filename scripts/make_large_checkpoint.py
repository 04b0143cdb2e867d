#!/usr/bin/env python3
"""Makes a large DeepSpeed Muon checkpoint of zeros that takes little disk.

    make_large_checkpoint.py OUT [--stage 3] [--ranks 1024] [--tensors 100000]
    make_large_checkpoint.py OUT --fill --ranks 4 --tensors 60 --width 1024

The files are what DeepSpeed 0.19.8 writes for a bf16 run without offload: the
same names, nesting, keys, globals and storages, with true CRCs. Payloads are
holes, or, with --fill (stage 3 only), counted up, so that no two 32-bit words
are equal. At stage 3 the model_states of all ranks but 0 are hard links to that of
rank 0, which they equal apart from the name of their root folder.
"""
import argparse
import os
import sys
from collections import OrderedDict

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "tests", "testutil"))
from torch_zip import (Counting, FragmentAddress, LossScaler, Size, Storage,
                       Tensor, ZeroStage, Zeros, save, with_attributes)

STEP = 5
VERSION = "0.19.8"


# ------------------------------------------------------------------- the model
def numel(shape):
    count = 1
    for size in shape:
        count *= size
    return count


def make_model(num_tensors, width):
    """name -> shape of a transformer, in module order; as many as asked for."""
    model = {"embed_tokens.weight": (8 * width, width)}
    last = [("norm_f.weight", (width,)), ("lm_head.weight", (8 * width, width))]
    layer = 0
    while len(model) < num_tensors - len(last):
        block = f"layers.{layer}."
        for name, shape in [("ln1.weight", (width,)),
                            ("attn.qkv.weight", (3 * width, width)),
                            ("attn.out_proj.weight", (width, width)),
                            ("ln2.weight", (width,)),
                            ("fc1.weight", (4 * width, width)),
                            ("fc2.weight", (width, 4 * width))]:
            if len(model) < num_tensors - len(last):
                model[block + name] = shape
        layer += 1
    model.update(last)
    return model


def is_muon(name, shape):
    return len(shape) >= 2 and "embed" not in name and "lm_head" not in name


def make_groups(model):
    """The Muon group, sorted by shape descending, and the Adam group."""
    muon = {n: s for n, s in model.items() if is_muon(n, s)}
    adam = {n: s for n, s in model.items() if not is_muon(n, s)}
    return [dict(sorted(muon.items(), key=lambda x: x[1], reverse=True)), adam]


# ---------------------------------------------------------------- common parts
def floats(count):
    return Storage("FloatStorage", Zeros(4 * count))


def bfloats(count):
    return Storage("BFloat16Storage", Zeros(2 * count))


def flat(storage, **options):
    return Tensor(storage, 0, (storage.num_elements,), **options)


def ds_config(stage):
    zero = {"stage": stage}
    if stage == 3:
        zero.update(reduce_scatter=False, stage3_param_persistence_threshold=0)
    return {"train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 1, "steps_per_print": 1 << 30,
            "gradient_clipping": 1.0,
            "optimizer": {"type": "Muon", "params": {
                "lr": 0.01, "muon_lr": 0.02, "adam_lr": 0.003,
                "momentum": 0.95, "weight_decay": 0.01, "betas": [0.9, 0.95],
                "eps": 1e-08}},
            "zero_optimization": zero, "bf16": {"enabled": True}}


def param_groups():
    return [{"use_muon": True, "name": "muon-params", "lr": 0.02,
             "momentum": 0.95, "weight_decay": 0.01, "ns_method": "gram",
             "params": [0]},
            {"use_muon": False, "name": "adam-params", "lr": 0.003,
             "betas": [0.9, 0.95], "eps": 1e-08, "weight_decay": 0.01,
             "bias_correction": True, "step": 0, "params": [1]}]


def optimizer_state(momentum_elements, adam_elements):
    return {"state": {
        0: {"momentum_buffer": flat(bfloats(momentum_elements))},
        1: {"step": STEP, "exp_avg": flat(floats(adam_elements)),
            "exp_avg_sq": flat(floats(adam_elements))}},
            "param_groups": param_groups()}


def loss_scaler():
    return with_attributes(LossScaler, cur_scale=1.0, dynamic=False)


def optim_states(stage, optimizer):
    return {"optimizer_state_dict": optimizer, "ds_config": ds_config(stage),
            "ds_version": VERSION}


def model_states(stage, num_ranks, module, groups):
    module = OrderedDict(module)
    module._metadata = OrderedDict({"": {"version": 1}})
    return {"module": module, "buffer_names": [], "optimizer": None,
            "param_shapes": [OrderedDict((n, Size(s)) for n, s in g.items())
                             for g in groups],
            "frozen_param_shapes": OrderedDict(), "shared_params": {},
            "frozen_param_fragments": OrderedDict(), "lr_scheduler": None,
            "data_sampler": None, "random_ltd": None, "skipped_steps": 0,
            "global_steps": STEP, "global_samples": STEP * num_ranks,
            "dp_world_size": num_ranks, "mp_world_size": 1,
            "checkpoint_parallel_dimensions": {"pp_degree": 1, "tp_degree": 1},
            "ds_config": ds_config(stage), "ds_version": VERSION}


def optim_path(folder, rank):
    return f"{folder}/bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"


# --------------------------------------------------------------------- stage 3
def count_up(optimizer, words):
    """Puts payloads counted from `words` in place of the zeros of a rank's file;
    returns where the next rank goes on."""
    buffers = list(optimizer["fp32_flat_groups"])
    for state in optimizer["optimizer_state_dict"]["state"].values():
        buffers += [v for v in state.values() if isinstance(v, Tensor)]
    for tensor in buffers:
        size = len(tensor.storage.payload)
        tensor.storage.payload = Counting(size, words)
        words += -(-size // 4)
    return words


def write_stage3(folder, model, groups, num_ranks, fill):
    ids = {name: i for i, name in enumerate(model)}
    pieces = [sum(-(-numel(s) // num_ranks) for s in g.values())
              for g in groups]
    ds_ids = [f"{ids[next(iter(g))]}_{ids[next(reversed(g))]}" for g in groups]
    words = 0
    for rank in range(num_ranks):
        optimizer = {
            "zero_stage": ZeroStage(3), "loss_scaler": loss_scaler(),
            "dynamic_loss_scale": False, "overflow": False,
            "partition_count": num_ranks,
            "optimizer_state_dict": optimizer_state(*pieces),
            "fp32_flat_groups": [
                flat(floats(count), requires_grad=True,
                     attributes={"ds_id": ds_id})
                for count, ds_id in zip(pieces, ds_ids)]}
        if fill:
            words = count_up(optimizer, words)
        save(optim_path(folder, rank), optim_states(3, optimizer))

    module = {name: flat(bfloats(0)) for name in model}
    first = f"{folder}/zero_pp_rank_0_mp_rank_00_model_states.pt"
    save(first, model_states(3, num_ranks, module, groups))
    for rank in range(1, num_ranks):
        os.link(first, first.replace("rank_0", f"rank_{rank}", 1))


# --------------------------------------------------------------------- stage 2
class FlatGroup:
    """A param group, laid out over the ranks."""

    def __init__(self, shapes, num_ranks):
        self.shapes = shapes
        self.spans = OrderedDict()  # name -> (begin, end) in the flat buffer
        end = 0
        for name, shape in shapes.items():
            self.spans[name] = (end, end + numel(shape))
            end += numel(shape)
        self.num_elements = end
        self.partition = -(-end // (2 * num_ranks)) * 2
        self.total = self.partition * num_ranks
        self.by_rank = [[] for _ in range(num_ranks)]
        for name, (begin, end) in self.spans.items():
            for rank in range(begin // self.partition,
                              (end - 1) // self.partition + 1):
                self.by_rank[rank].append(name)

    def padding(self, rank):
        behind = (rank + 1) * self.partition - self.num_elements
        return min(max(behind, 0), self.partition)

    def slices(self, rank):
        low = rank * self.partition
        mapping = OrderedDict()
        for name in self.by_rank[rank]:
            begin, end = self.spans[name]
            start, stop = max(begin, low), min(end, low + self.partition)
            mapping[name] = with_attributes(FragmentAddress,
                                            numel=stop - start,
                                            start=start - low)
        return mapping

    def whole_elements(self, rank):
        """Full sizes of all parameters that touch this rank's partition."""
        return sum(numel(self.shapes[name]) for name in self.by_rank[rank])

    def master(self, rank):
        storage = floats(self.partition)
        return Tensor(storage, 0, (self.partition - self.padding(rank),),
                      requires_grad=True)


def write_stage2(folder, model, groups, num_ranks):
    layouts = [FlatGroup(g, num_ranks) for g in groups]
    paddings = [[0] * len(g) for g in groups]
    for rank in range(num_ranks):
        save(optim_path(folder, rank), optim_states(2, {
            "loss_scaler": loss_scaler(), "dynamic_loss_scale": False,
            "overflow": False, "clip_grad": 1.0,
            "base_optimizer_state": optimizer_state(
                layouts[0].whole_elements(rank), layouts[1].partition),
            "single_partition_of_fp32_groups": [
                layout.master(rank) for layout in layouts],
            "zero_stage": ZeroStage(2),
            "group_paddings": [layout.padding(rank) for layout in layouts],
            "param_alignment_paddings": paddings,
            "partition_count": [num_ranks] * len(layouts),
            "ds_version": VERSION,
            "param_slice_mappings": [layout.slices(rank)
                                     for layout in layouts]}))

    storages = [bfloats(layout.total) for layout in layouts]
    module = {}
    for name, shape in model.items():
        group = 0 if name in layouts[0].spans else 1
        begin = layouts[group].spans[name][0]
        module[name] = Tensor(storages[group], begin, shape)
    save(f"{folder}/mp_rank_00_model_states.pt",
         model_states(2, num_ranks, module, groups))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out", help="checkpoint root to make")
    parser.add_argument("--stage", type=int, choices=[2, 3], default=3)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--tensors", type=int, default=100000)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--fill", action="store_true",
                        help="real payloads instead of holes (stage 3)")
    args = parser.parse_args()
    if args.tensors < 5 or args.ranks < 1 or args.width < 1:
        parser.error("at least 5 tensors, 1 rank and width 1")
    if args.fill and args.stage != 3:
        parser.error("--fill needs --stage 3")

    tag = f"global_step{STEP}"
    folder = os.path.join(args.out, tag)
    os.makedirs(folder)
    model = make_model(args.tensors, args.width)
    groups = make_groups(model)
    if args.stage == 3:
        write_stage3(folder, model, groups, args.ranks, args.fill)
    else:
        write_stage2(folder, model, groups, args.ranks)
    with open(os.path.join(args.out, "latest"), "w") as f:
        f.write(tag)


if __name__ == "__main__":
    main()
