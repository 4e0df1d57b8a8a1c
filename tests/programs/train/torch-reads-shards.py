# SPDX-License-Identifier: Apache-2.0
"""torch-reads-shards.py CHECKPOINT FILE: PyTorch reads the shards of the set "model" as FILE has them."""
import os
import shutil
import sys
import tempfile

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.checkpoint import HuggingFaceStorageReader
from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files

checkpoint, file = sys.argv[1:]
right = load_file(file)
with tempfile.TemporaryDirectory() as folder:
    shards, joined = os.path.join(folder, "shards"), os.path.join(folder, "joined")
    os.makedirs(shards)
    os.makedirs(joined)
    for name in os.listdir(checkpoint):
        if "-model-" in name and name.endswith(".safetensors"):
            shutil.copy(os.path.join(checkpoint, name), shards)
    assert len(os.listdir(shards)) >= 3, os.listdir(shards)
    got = {name: torch.zeros_like(tensor) for name, tensor in right.items()}
    dcp.load(got, storage_reader=HuggingFaceStorageReader(shards))
    consolidate_safetensors_files(shards, joined, {name: 1 for name in right})
    whole = load_file(os.path.join(joined, os.listdir(joined)[0]))
    for name, tensor in right.items():
        assert torch.equal(got[name], tensor), f"the reader has another {name}"
        assert torch.equal(whole[name], tensor), f"the consolidated file has another {name}"
print(f"{len(right)} tensors")
