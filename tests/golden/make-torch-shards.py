#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes torch-shards/, shards of four ranks of PyTorch, and torch-shards.safetensors, what its reader makes of them.

Usage: make-torch-shards.py ../train/checkpoint/golden        (PyTorch 2.11 or later with gloo and safetensors; CPU; some seconds)

Ranks have rows of FSDP2 (fully_shard), fewer rows than there are ranks, columns, another dimension, rows and columns
(2 x 2), and rows that are in two copies; and tensors that each rank has whole. Element i of a tensor is i + 0.25.
"""
import os
import shutil
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import save_file
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

RANKS = 4
F32, F64, F16, BF16, I64 = torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64


def values(*shape, dtype=F32):
    count = torch.Size(shape).numel()
    return (torch.arange(count, dtype=F64) + 0.25).reshape(shape).to(dtype)


class Model(torch.nn.Module):
    """Its parameters are cut by fully_shard."""

    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(5, 10)
        self.norm = torch.nn.Linear(3, 2)  # two rows for four ranks
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.copy_(values(*parameter.shape))


def write(rank, folder, store):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    line = init_device_mesh("cpu", (RANKS,))
    grid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    tensors = fully_shard(Model(), mesh=line).state_dict()
    tensors |= {
        "columns": distribute_tensor(values(3, 7, dtype=BF16), line, [Shard(1)]),
        "conv": distribute_tensor(values(3, 2, 5, 4, dtype=F16), line, [Shard(2)]),
        "box": distribute_tensor(values(6, 7), grid, [Shard(0), Shard(1)]),
        "double": distribute_tensor(values(5, 3, dtype=F64), grid, [Shard(1), Shard(0)]),
        "copies": distribute_tensor(values(6, 7), grid, [Replicate(), Shard(0)]),
        "same": distribute_tensor(values(4), line, [Replicate()]),
        "plain": values(3, 2),
        "scalar": values().clone(),
        "batches": torch.tensor(7),
        "empty": values(0, 4),
    }
    dcp.save(tensors, storage_writer=HuggingFaceStorageWriter(os.path.join(folder, "torch-shards"), save_distributed=True))
    whole = {name: torch.zeros(tensor.shape, dtype=tensor.dtype) for name, tensor in tensors.items()}
    dcp.load(whole, storage_reader=HuggingFaceStorageReader(os.path.join(folder, "torch-shards")))
    if rank == 0:
        save_file(whole, os.path.join(folder, "torch-shards.safetensors"))
    dist.destroy_process_group()


if __name__ == "__main__":
    shutil.rmtree(os.path.join(sys.argv[1], "torch-shards"), ignore_errors=True)
    with tempfile.TemporaryDirectory() as temporary:
        mp.spawn(write, args=(os.path.abspath(sys.argv[1]), os.path.join(temporary, "store")), nprocs=RANKS)
