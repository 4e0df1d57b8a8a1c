#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes optimizers.txt: what the optimizers of PyTorch and timm make of parameters in 100 steps.

Usage: make-optimizers.py >optimizers.txt        (any PyTorch and timm; CPU; some seconds)

Sizes, groups, starts and gradients are formulas that the test which reads the numbers (tests/train/optim/optimizers.c)
computes again. Everything is computed in 64 bits.
"""
import importlib.util
import pathlib
import sys
import types

import torch

SHAPES = [(3,), (17,), (5,), (8, 5), (8, 5), (2, 345, 29)]
SIZES = [3, 17, 5, 40, 40, 20010]
GROUPS = [0, 1, 3, 0, 1, 2]  # the parameter of group 3 gets no gradient
RATES = [(1, 1), (0.5, 0), (2, 0.25)]  # factors of the learning rate and of the weight decay
LR, STEPS, SHOWN = 2**-7, 100, 4  # SHOWN: elements of each parameter, from its beginning
ADAM = dict(betas=(0.9, 0.999), eps=1e-8)


def timm(name):
    """A class of timm.optim, without the rest of timm, which needs torchvision."""
    folder = pathlib.Path(importlib.util.find_spec("timm").submodule_search_locations[0]) / "optim"
    package = sys.modules.setdefault("timm_optim", types.ModuleType("timm_optim"))
    package.__path__ = [str(folder)]
    return getattr(importlib.import_module("timm_optim." + name.lower()), name)


def orthogonalize(matrix, coefficients, steps, epsilon):
    """PyTorch's function in the type of the matrix, which it rounds to bfloat16."""
    a, b, c = coefficients
    x = matrix.T if matrix.size(0) > matrix.size(1) else matrix
    x = x / x.norm().clamp(min=epsilon)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.T if matrix.size(0) > matrix.size(1) else x


class Muon:
    """torch.optim.Muon for parameters of two or more dimensions, which it gets as matrices, and AdamW for the rest."""

    def __init__(self, groups, adamw_lr_scale, betas, **options):
        torch.optim._muon._zeropower_via_newtonschulz = orthogonalize
        self.matrices, matrices, rest = [], [], []
        for group in groups:
            params = group["params"]
            pairs = [(p, torch.nn.Parameter(p.detach().view(SHAPES[p.index][0], -1))) for p in params
                     if len(SHAPES[p.index]) > 1]
            self.matrices += pairs
            matrices.append(dict(group, params=[m for _, m in pairs]))
            rest.append(dict(group, params=[p for p in params if len(SHAPES[p.index]) == 1],
                             lr=group["lr"] * adamw_lr_scale))
        matrices, rest = ([g for g in of if g["params"]] for of in (matrices, rest))
        self.optimizers = torch.optim.Muon(matrices, **options), torch.optim.AdamW(rest, betas=betas, eps=1e-8)

    def step(self):
        for p, matrix in self.matrices:
            matrix.grad = p.grad.view(matrix.shape)
        for optimizer in self.optimizers:
            optimizer.step()


CASES = [
    # name, kind, class, its options, weight decay, norm that gradients are clipped to (0: not), our numbers
    ("adam", "adam", torch.optim.Adam, ADAM, 0.125, 0, {}),
    ("adam,amsgrad", "adam", torch.optim.Adam, dict(ADAM, amsgrad=True), 0, 0, {"amsgrad": 1}),
    ("adamw", "adamw", torch.optim.AdamW, ADAM, 0.125, 0, {}),
    ("adamw,other-numbers", "adamw", torch.optim.AdamW, dict(betas=(0.8, 0.95), eps=1e-3), 0.125, 0,
     {"beta1": 0.8, "beta2": 0.95, "epsilon": 1e-3}),
    ("adamw,amsgrad", "adamw", torch.optim.AdamW, dict(ADAM, betas=(0.9, 0.9), amsgrad=True), 0.125, 0,
     {"beta2": 0.9, "amsgrad": 1}),
    ("lion", "lion", timm("Lion"), dict(betas=(0.9, 0.99)), 0.125, 0, {}),
    ("lars", "lars", timm("Lars"), dict(momentum=0.9), 0.125, 0, {}),
    ("lars,nesterov", "lars", timm("Lars"), dict(momentum=0.75, nesterov=True, trust_coeff=0.5), 0.125, 0,
     {"momentum": 0.75, "nesterov": 1, "trust": 0.5}),
    ("adamw,clipped", "adamw", torch.optim.AdamW, dict(ADAM, eps=0.125), 0.125, 2, {"epsilon": 0.125}),
    # timm's clips to 1 itself.
    ("lamb", "lamb", timm("Lamb"), {}, 0.125, 1, {}),
    ("muon", "muon", Muon, dict(adamw_lr_scale=1, betas=(0.9, 0.95)), 0.125, 0, {}),
    ("muon,match_rms_adamw", "muon", Muon,
     dict(adamw_lr_scale=0.5, betas=(0.9, 0.95), momentum=0.75, ns_steps=4, adjust_lr_fn="match_rms_adamw"), 0.125, 0,
     {"momentum": 0.75, "ns_steps": 4, "match_rms_adamw": 1, "adamw_lr_scale": 0.5}),
    ("sgd", "sgd", torch.optim.SGD, {}, 0, 0, {"momentum": 0}),
    ("sgd,weight-decay", "sgd", torch.optim.SGD, {}, 0.125, 0, {"momentum": 0}),
    ("sgd,momentum", "sgd", torch.optim.SGD, dict(momentum=0.9), 0, 0, {"momentum": 0.9}),
    ("sgd,momentum-and-weight-decay", "sgd", torch.optim.SGD, dict(momentum=0.75), 0.125, 0, {"momentum": 0.75}),
    ("sgd,nesterov", "sgd", torch.optim.SGD, dict(momentum=0.9, nesterov=True), 0.125, 0,
     {"momentum": 0.9, "nesterov": 1}),
    ("sgd,nesterov,clipped", "sgd", torch.optim.SGD, dict(momentum=0.9, nesterov=True), 0.125, 2,
     {"momentum": 0.9, "nesterov": 1}),
]


def start(param, size):
    i = torch.arange(size, dtype=torch.int64)
    return ((i * 37 + 11 * param) % 64 - 31.5) / 64


def gradient(param, size, step):
    i = torch.arange(size, dtype=torch.int64)
    wave = (i * 7919 + param * 31 + step * 104729) % 2003 - 1000.5
    return wave * (1 + step % 5) / 2048


def run(optimizer, options, decay, norm):
    params = [torch.nn.Parameter(start(k, n).double()) for k, n in enumerate(SIZES)]
    for k, p in enumerate(params):
        p.index = k
    groups = [{"params": [p for p, of in zip(params, GROUPS) if of == g], "lr": LR * rate, "weight_decay": decay * part}
              for g, (rate, part) in enumerate(RATES)]
    groups[0]["params"].append(params[GROUPS.index(3)])
    optimizer = optimizer(groups, **options)
    for step in range(STEPS):
        for k, p in enumerate(params):
            if GROUPS[k] != 3:
                p.grad = gradient(k, SIZES[k], step).double()
        if norm and not isinstance(optimizer, timm("Lamb")):
            torch.nn.utils.clip_grad_norm_(params, norm)
        optimizer.step()
    return [x for p in params for x in p.detach()[:SHOWN].tolist()]


def main():
    print(f"# Made by make-optimizers.py with PyTorch {torch.__version__.split('+')[0]} and timm.")
    for name, kind, optimizer, options, decay, norm, hypers in CASES:
        given = (word for pair in hypers.items() for word in pair)
        print("case", name, kind, decay, norm, len(hypers), *given,
              *(f"{x:.12g}" for x in run(optimizer, options, decay, norm)))


main()
