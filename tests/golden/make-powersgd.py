#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes powersgd.json: what PyTorch's powerSGD_hook makes of the gradients of two ranks in a few steps.

Usage: make-powersgd.py > powersgd.json        (any PyTorch with Gloo; CPU; a few seconds)

Gradients are formulas of rank, step and element, which the test that reads the trace (tests/train/parallel/powersgd.c) computes
again. A linear layer has a matrix of them, and its bias the sums of the rows. Everything is computed in double, over
DistributedDataParallel. Of each gradient, which is a mean, and of each rank's error the file has the norm and some
elements; a matrix without errors was not compressed. "q" are the first factors as PyTorch drew them, before they are
made orthonormal: of the first compressed step, or of each one without a warm start.
"""
import json
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd

RANKS = 2
START = 2
STEPS = 12
ELEMENTS = 3
SHAPES = [(16, 12), (6, 40), (24, 20), (3, 3)]  # no two of them with as many columns
CASES = [
    # rank, least rate, error feedback, warm start
    (1, 2.0, True, True),
    (2, 2.0, True, True),
    (4, 1.0, True, True),
    (2, 2.0, False, True),
    (2, 2.0, True, False),
    (5, 0.4, True, True),
]
MASK = (1 << 64) - 1


def number(rank, step, matrix, i):
    z = ((rank * 31 + step) * 17 + matrix) * 1000003 + i & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return ((z >> 32 & 15) - 7) / 8


def gradient(rank, step, matrix):
    rows, columns = SHAPES[matrix]
    values = [number(rank, step, matrix, i) for i in range(rows * columns)]
    return torch.tensor(values, dtype=torch.float64).view(rows, columns)


def rounded(values):
    return [float(f"{float(x):.9g}") for x in values]


def describe(tensor):
    flat = tensor.detach().reshape(-1)
    return rounded([flat.norm()] + [flat[k * 7919 % flat.numel()] for k in range(ELEMENTS)])


class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(columns, rows, dtype=torch.float64) for rows, columns in SHAPES)

    def forward(self, gradients):
        parts = zip(self.layers, gradients)
        return sum((layer.weight * g).sum() + (layer.bias * g.sum(1)).sum() for layer, g in parts)


class Recorder:
    """What the hook makes orthonormal, and where a bucket has which parameter."""

    def __init__(self):
        self.matrices, self.parameters = [], []
        self.plain = powersgd._orthogonalize
        powersgd._orthogonalize = self.orthogonalize

    def orthogonalize(self, matrices, epsilon=0):
        self.matrices.append(matrices.detach().clone())
        self.plain(matrices, epsilon)

    def hook(self, state, bucket):
        self.parameters = list(bucket.parameters())
        return powersgd.powerSGD_hook(state, bucket)

    def error_of(self, state, parameter):
        at = 0
        for other in self.parameters:
            if other is parameter:
                return state.error_dict[0][at:at + parameter.numel()]
            at += other.numel()
        raise KeyError


def gather(tensor):
    parts = [torch.empty_like(tensor) for _ in range(RANKS)]
    dist.all_gather(parts, tensor.contiguous())
    return parts


def run_step(ddp, model, state, recorder, step, fresh):
    recorder.matrices.clear()
    ddp.zero_grad()
    ddp([gradient(dist.get_rank(), step, k) for k in range(len(SHAPES))]).backward()
    out = {"weights": [describe(layer.weight.grad) for layer in model.layers],
           "biases": [describe(layer.bias.grad) for layer in model.layers]}
    columns = {shape[1]: k for k, shape in enumerate(SHAPES)}
    # The hook makes the factors Q orthonormal, then as many P. It sees a bias as a matrix of one column, too.
    factors = [q[0] for q in recorder.matrices[:len(recorder.matrices) // 2] if q.shape[1] > 1]
    factors = {columns[q.shape[0]]: q for q in factors}
    if state.use_error_feedback and step >= START:
        out["errors"] = [[describe(e) for e in gather(recorder.error_of(state, layer.weight))] if k in factors else None
                         for k, layer in enumerate(model.layers)]
    if fresh:
        out["q"] = [rounded(factors[k].reshape(-1)) if k in factors else None for k in range(len(SHAPES))]
    return out


def run_case(recorder, rank, least, feedback, warm):
    torch.manual_seed(1)
    model = Layers()
    ddp = nn.parallel.DistributedDataParallel(model)
    state = powersgd.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=START,
                                   min_compression_rate=least, use_error_feedback=feedback, warm_start=warm)
    ddp.register_comm_hook(state, recorder.hook)
    steps = [run_step(ddp, model, state, recorder, step, step == START or (step > START and not warm))
             for step in range(STEPS)]
    return {"rank": rank, "min_rate": least, "error_feedback": feedback, "warm_start": warm, "steps": steps}


def run_rank(rank, out):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29581")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    recorder = Recorder()
    cases = [run_case(recorder, *case) for case in CASES]
    if rank == 0:
        json.dump({"torch": torch.__version__, "start": START, "shapes": SHAPES, "cases": cases}, out)
        out.write("\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.start_processes(run_rank, (sys.stdout,), RANKS, start_method="fork")
