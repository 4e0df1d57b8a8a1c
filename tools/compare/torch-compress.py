#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch-compress.py HOOK STEPS: the model mlp of dtrain under PyTorch's DistributedDataParallel with one of its hooks, over Gloo,
on noise in place of pictures; prints the median time of a step in ms, without the first ten."""
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel


def main():
    hook, steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo")
    model = torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(3072, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512), torch.nn.ReLU(),
        torch.nn.Linear(512, 10))
    # Over Gloo PowerSGD's hook hung with several buckets.
    model = DistributedDataParallel(model, bucket_cap_mb=64 if hook.startswith("powersgd") else 25)
    if hook.startswith("powersgd"):
        rank = int(hook.removeprefix("powersgd") or 1)
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=rank, start_powerSGD_iter=10)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    elif hook != "none":
        model.register_comm_hook(None, getattr(default_hooks, hook + "_compress_hook"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loss_of = torch.nn.CrossEntropyLoss()
    times = []
    for _ in range(steps):
        x, y = torch.randn(64, 3, 32, 32), torch.randint(10, (64,))
        began = time.perf_counter()
        loss = loss_of(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - began)
    print(f"{statistics.median(times[10:]) * 1e3:.1f}")
    dist.destroy_process_group()


main()
