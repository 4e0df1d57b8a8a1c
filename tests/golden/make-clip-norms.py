#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes clip-norms.txt: what PyTorch computes with torch.nn.utils.clip_grad_norm_ and SGD.

Usage: make-clip-norms.py >clip-norms.txt        (any PyTorch; CPU; a second)

Sizes, groups, starts and gradients are formulas that the test which reads the numbers (tests/train/optim/clip.c) computes
again. A case is a few steps of SGD with three param groups, whose gradients are clipped before each step. Of a case with
a scale the gradients are in memory times the scale, and torch.amp.GradScaler unscales them before they are clipped; a
divisor is that of a mean over ranks. Everything is computed in 32 bits.
"""
import math

import torch

SIZES = [3, 17, 5, 40, 2053]
GROUPS = [0, 2, 1, 0, 2]
RATES = [(1, 5e-4), (8, 5e-4 / 8), (0.5, 0)]
STEPS = 4
CASES = [
    # name, largest norm, divisor, scale, momentum, nesterov, type of the norm
    ("most-of-it-goes", 0.5, 1, 1, 0.9, False, 2),
    ("some-steps", 33, 1, 1, 0.9, True, 2),
    ("none", 1e9, 1, 1, 0.9, False, 2),
    ("a-mean-of-three", 4, 3, 1, 0.85, True, 2),
    ("scaled", 2, 2, 1024, 0.9, False, 2),
    ("magnitudes", 500, 2, 1, 0.9, False, 1),
    ("largest", 0.3, 1, 1, 0.9, True, math.inf),
    ("largest,scaled", 0.3, 2, 1024, 0.9, False, math.inf),
]
NORMS = [2, 1, math.inf]
SHOWN = 8  # elements of each parameter at the most, from its beginning


def start(param, i):
    return 0.05 * (i % 40 + 1) * (param + 1) - 0.4


def gradient(param, i, step):
    return math.sin((i + 100 * param) * 0.7 + step) * (step + 0.25)


def tensor(f, size):
    return torch.tensor([f(i) for i in range(size)], dtype=torch.float32)


def run(largest, divisor, scale, momentum, nesterov, norm_type):
    params = [torch.nn.Parameter(tensor(lambda i, k=k: start(k, i), n)) for k, n in enumerate(SIZES)]
    groups = [
        {"params": [p for p, of in zip(params, GROUPS) if of == g], "lr": 0.1 * rate, "weight_decay": decay}
        for g, (rate, decay) in enumerate(RATES)
    ]
    sgd = torch.optim.SGD(groups, lr=0.1, momentum=momentum, nesterov=nesterov)
    scaler = torch.amp.GradScaler("cpu", init_scale=scale, enabled=scale > 1)
    norms = []
    for step in range(STEPS):
        for k, p in enumerate(params):
            p.grad = tensor(lambda i, k=k: gradient(k, i, step), SIZES[k]) / divisor * scale
        if scale > 1:
            scaler.scale(torch.zeros(1))  # makes the scaler's state
            scaler.unscale_(sgd)
        norms.append(torch.nn.utils.clip_grad_norm_(params, largest, norm_type).item())
        scaler.step(sgd)
        scaler.update()
    return norms, [x for p in params for x in p.detach()[:SHOWN].tolist()]


def special(gradients, norm_type):
    """Norm and gradients after clipping to 1, of gradients that are not finite or of norm 0."""
    p = torch.nn.Parameter(torch.zeros(len(gradients)))
    p.grad = torch.tensor(gradients)
    norm = torch.nn.utils.clip_grad_norm_([p], 1.0, norm_type).item()
    return norm, p.grad.tolist()


def row(name, *numbers):
    print(name, *(f"{x:.9g}" for x in numbers))


def main():
    print(f"# Made by make-clip-norms.py with PyTorch {torch.__version__.split('+')[0]}.")
    for name, *options in CASES:
        norms, weights = run(*options)
        row(f"case {name}", *options, *norms, *weights)
    inf, nan = math.inf, math.nan
    lists = ([3.0, 4.0, 0.0, 0.0], [1.0, -inf, 2.0, 0.0], [1.0, nan, 2.0, 0.0], [0.0, 0.0, 0.0, 0.0],
             [1e-7, 0.0, 0.0, 0.0], [inf, nan, 1.0, 2.0])
    for gradients, norm_type in ((g, t) for t in NORMS for g in lists):
        norm, clipped = special(gradients, norm_type)
        row("special", norm_type, *gradients, norm, *clipped)


main()
