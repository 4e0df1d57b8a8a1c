# SPDX-License-Identifier: Apache-2.0
"""A small vision transformer on CIFAR-10 with PyTorch: the peer of dtrain-ffcv --model vit-mini4.

Usage: torch-vit.py FOLDER [--model NAME] [--steps N] [--every N] [--batch-size N] [--seed N] [--threads N]
FOLDER is what `torch-cifar.py prepare` writes. Initial values are timm's. AdamW with rate 1e-3 and decay 0.05 of matrices,
warm-up of a tenth of the run, cosine to 0, gradients clipped at 1, pictures flipped at random. Prints one line of JSON for
each evaluation of the whole test set. The same of dtrain-ffcv is in docs/benchmarks.md."""
import argparse
import json
import math
import os
import time

import torch
from torch import nn
from torch.nn import functional

from torch_transformers import ViT

MEAN, STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)


def load(folder, name):
    data = torch.load(os.path.join(folder, 'cifar10', name + '.pt'))
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in (MEAN, STD))
    return (data['images'].permute(0, 3, 1, 2).float() - mean) / std, data['labels']


def batches(count, size):
    """Batches of an endless order, new in each epoch, without the last incomplete one."""
    while True:
        order = torch.randperm(count)
        yield from order[:count - count % size].split(size)


def set_initial_values(model):
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.trunc_normal_(module.weight, std=0.02)
            nn.init.zeros_(module.bias)
    nn.init.trunc_normal_(model.positions, std=0.02)
    nn.init.normal_(model.token, std=1e-6)


def rate(step, steps):
    warm_up = steps // 10
    return (step + 1) / warm_up if step < warm_up else 0.5 + 0.5 * math.cos(math.pi * (step - warm_up) / (steps - warm_up))


def evaluate(model, x, labels):
    model.eval()
    loss = right = 0
    with torch.no_grad():
        for part, target in zip(x.split(500), labels.split(500)):
            logits = model(part)
            loss += functional.cross_entropy(logits, target, reduction='sum').item()
            right += (logits.argmax(1) == target).sum().item()
    model.train()
    return loss / len(x), right / len(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('folder')
    parser.add_argument('--model', default='vit-mini4')
    for name, value in (('steps', 2000), ('every', 400), ('batch-size', 128), ('seed', 0), ('threads', 2)):
        parser.add_argument('--' + name, type=int, default=value)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    (x, labels), val = (load(options.folder, name) for name in ('train', 'test'))
    model = ViT(options.model, 32, 10)
    set_initial_values(model)
    inner = [p for name, p in model.named_parameters() if p.dim() > 1 and name not in ('token', 'positions')]
    outer = [p for name, p in model.named_parameters() if p.dim() == 1 or name in ('token', 'positions')]
    optimizer = torch.optim.AdamW([dict(params=inner), dict(params=outer, weight_decay=0.0)], weight_decay=0.05)
    began = time.perf_counter()
    for step, rows in zip(range(options.steps), batches(len(x), options.batch_size)):
        for group in optimizer.param_groups:
            group['lr'] = 1e-3 * rate(step, options.steps)
        picture, target = x[rows], labels[rows]
        flipped = torch.rand(len(rows)) < 0.5
        picture[flipped] = picture[flipped].flip(-1)
        optimizer.zero_grad()
        functional.cross_entropy(model(picture), target).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % options.every == 0 or step + 1 == options.steps:
            loss, top1 = evaluate(model, *val)
            print(json.dumps({'torch': torch.__version__, 'seed': options.seed, 'step': step + 1, 'val_loss': loss,
                              'top1': top1, 'seconds': time.perf_counter() - began}), flush=True)


main()
