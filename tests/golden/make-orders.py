#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints orders.txt: what NumPy's and PyTorch's own permutations are, to be compared with the loader's.

usage: make-orders.py > orders.txt    (needs numpy and torch)
"""
import numpy
import torch
from torch.utils.data.distributed import DistributedSampler

CASES = ((1, 0, 0), (2, 7, 0), (3, 0, 1), (10, 0, 0), (10, 0, 1), (16, 5, 2), (17, 5, 2), (1000, 12345, 3), (12345, 1, 0),
         (65536, 2**31, 1), (65537, 2**32 - 1, 1), (5, 2**32 + 9, 0), (200000, 42, 99))
BIG_SEEDS = ((6, 2**64 - 1, 0), (9, 2**64 - 1, 6), (9, 2**63, 2**63))  # NumPy only


def fold(values):
    """The whole sequence in 64 bits; the test computes the same."""
    total = 0
    for value in values:
        total = (total * 6364136223846793005 + int(value) + 1) % 2**64
    return total


def row(name, n, seed, epoch, values):
    head = [int(v) for v in values[:4]] + [0] * (4 - min(4, n))
    print(name, n, seed, epoch, fold(values), *head)


def torch_permutation(n, seed):
    generator = torch.Generator()
    generator.manual_seed(seed)
    return torch.randperm(n, generator=generator).tolist()


print(f"# Made by make-orders.py with NumPy {numpy.__version__} and PyTorch {torch.__version__.split('+')[0]}.")
for n, seed, epoch in CASES + BIG_SEEDS:
    row("numpy", n, seed, epoch, numpy.random.default_rng(seed + epoch).permutation(numpy.arange(n)))
for n, seed, epoch in CASES:
    row("torch", n, seed, epoch, torch_permutation(n, seed + epoch))
for n, seed, epoch, world in ((10, 0, 0, 3), (1000, 5, 2, 7), (1001, 5, 2, 8), (3, 1, 0, 8), (64, 9, 1, 4)):
    for rank in range(world):
        sampler = DistributedSampler(range(n), num_replicas=world, rank=rank, shuffle=True, seed=seed, drop_last=False)
        sampler.set_epoch(epoch)
        values = list(sampler)
        print("shard", n, seed, epoch, world, rank, len(values), fold(values))
