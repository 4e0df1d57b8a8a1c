# SPDX-License-Identifier: Apache-2.0
"""One rank of PyTorch's FSDP2, or of its DDP, on the CPU over Gloo: the peer of `dtrain-ffcv --strategy`.

usage, by torchrun: torch-fsdp.py CONFIG.JSON STRATEGY LENGTH BATCH STEPS
STRATEGY: ddp; zero2 (fully_shard that keeps what it gathered until backward is done, which is as near as FSDP2 comes);
zero3 (fully_shard); zero3-bf16 (the same, with parameters in bf16 and reductions in f32); hsdp (fully_shard over pairs of
neighbouring ranks, copies among them). Each layer is a unit, as one would write it. AdamW in f32, one thread. Rank 0 prints one JSON object:
the median time of the later half of the steps, and the largest peak of any rank's resident memory, and the same before
the model was made. The data are random tokens."""
import json
import os
import resource
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy

from torch_transformers import GPT2

config, strategy, length, batch, steps = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6])
torch.set_num_threads(1)
dist.init_process_group('gloo')


def peak_bytes():
    peak = torch.tensor([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024], dtype=torch.int64)
    dist.all_reduce(peak, dist.ReduceOp.MAX)
    return peak.item()


before = peak_bytes()
torch.manual_seed(dist.get_rank())
model = GPT2(config)
if strategy == 'ddp':
    trained = torch.nn.parallel.DistributedDataParallel(model)
else:
    world = dist.get_world_size()
    sizes, names = ((world // 2, 2), ('copies', 'shard')) if strategy == 'hsdp' else ((world,), ('shard',))
    ways = {'mesh': init_device_mesh('cpu', sizes, mesh_dim_names=names), 'reshard_after_forward': strategy != 'zero2'}
    if strategy == 'zero3-bf16':
        ways['mp_policy'] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in model.layers:
        fully_shard(layer, **ways)
    trained = fully_shard(model, **ways)
optimizer = torch.optim.AdamW(trained.parameters(), lr=1e-4, foreach=True)
times = []
for _ in range(steps):
    x = torch.randint(model.vocabulary, (batch, length))
    y = torch.randint(model.vocabulary, (batch * length,))
    dist.barrier()
    began = time.monotonic()
    optimizer.zero_grad()
    cross_entropy(trained(x).float(), y).backward()
    optimizer.step()
    times.append(time.monotonic() - began)
result = {'step_ms': 1e3 * statistics.median(times[steps // 2:]), 'peak_bytes': peak_bytes(), 'before_bytes': before}
if dist.get_rank() == 0:
    print(json.dumps(result), flush=True)
dist.barrier()
# Gloo's threads may abort the process at its end.
os._exit(0)
