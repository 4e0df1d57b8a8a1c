# SPDX-License-Identifier: Apache-2.0
"""torch-writes-shards.py CHECKPOINT FILE FOLDER LAYOUT: PyTorch loads the shards of CHECKPOINT, which have the tensors of
FILE, into a model that it has cut in another way, and writes its own shards of that to FOLDER.

LAYOUT: rows (FSDP2 over three ranks), grid (FSDP2 over two ranks, tensor parallelism over two), files (rows, in two
files of a rank) or consolidated (rows in FOLDER/sharded, and what PyTorch joins of them in FOLDER)."""
import os
import shutil
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from safetensors.torch import load_file
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh


def make_model(tensors, mesh):
    """Modules with the names of the tensors, of which those of the layers in turn are cut by rows and by columns."""
    model = torch.nn.Module()
    layers = sorted({name.rpartition(".")[0] for name in tensors})
    for name, tensor in tensors.items():
        path, _, leaf = name.rpartition(".")
        if not hasattr(model, path):
            model.add_module(path, torch.nn.Module())
        dim = min(layers.index(path) % 2, tensor.ndim - 1)
        empty = torch.zeros_like(tensor)
        value = distribute_tensor(empty, mesh, [Shard(dim)]) if mesh else empty
        getattr(model, path).register_parameter(leaf, torch.nn.Parameter(value))
    return model


def write(rank, ranks, store, checkpoint, file, folder, layout):
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    tensors = load_file(file)
    if layout == "grid":
        mesh = init_device_mesh("cpu", (2, ranks // 2), mesh_dim_names=("data", "tensor"))
        model = fully_shard(make_model(tensors, mesh["tensor"]), mesh=mesh["data"])
    else:
        model = fully_shard(make_model(tensors, None), mesh=init_device_mesh("cpu", (ranks,)))
    state = model.state_dict()
    dcp.load(state, storage_reader=HuggingFaceStorageReader(checkpoint))
    numbers = {name: 1 + i % 2 for i, name in enumerate(sorted(state))} if layout == "files" else None
    dcp.save(state, storage_writer=HuggingFaceStorageWriter(
        folder, fqn_to_index_mapping=numbers, save_distributed=True, enable_consolidation=layout == "consolidated"))
    dist.destroy_process_group()
    os._exit(0)  # without Python's own exit, where gloo's threads have been seen to abort


if __name__ == "__main__":
    checkpoint, file, folder, layout = sys.argv[1:]
    ranks = 4 if layout == "grid" else 3
    with tempfile.TemporaryDirectory() as temporary:
        shards = os.path.join(temporary, "shards")
        os.makedirs(shards)
        for name in os.listdir(checkpoint):
            if "-model-" in name:
                shutil.copy(os.path.join(checkpoint, name), shards)
        mp.spawn(write, args=(ranks, os.path.join(temporary, "store"), shards, file, folder, layout), nprocs=ranks)
