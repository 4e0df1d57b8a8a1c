#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes torch-trace.json: what PyTorch computes for a few small networks and ten steps of SGD.

Usage: make-torch-trace.py > torch-trace.json        (any PyTorch with torch.nn; CPU; about a minute)

Weights, pictures and labels are formulas of the parameter's name and the element's number, which the test that reads the
trace (tests/train/nn/torch.c) computes again: the file holds results only. Everything is computed in double, and the losses of the networks once more with
autocast to bfloat16.
"""
import json
import math
import sys

import torch
from torch import nn
from torch.nn import functional

CASES = [
    # name, batch, side, classes, lr, momentum, nesterov, weight decay; of airbench94 also the factor of the biases' rate,
    # the steps between two of lookahead, and the steps in which the first bias is trained
    ("mlp", 4, 8, 10, 0.002, 0.9, True, 5e-4),
    ("resnet20", 4, 16, 10, 0.002, 0.9, True, 5e-4),
    ("resnet18", 2, 64, 10, 0.0005, 0.9, False, 1e-2),
    ("resnet50", 2, 33, 10, 0.0002, 0.8, True, 0.0),
    ("small", 4, 11, 10, 0.02, 0.85, True, 1e-3),
    ("resnet9", 2, 16, 10, 0.002, 0.9, False, 5e-4),
    ("airbench94", 3, 18, 10, 0.02, 0.85, True, 2e-3, 4.0, 2, 3),
]
MIXED_CASES = [
    # rows, classes, label smoothing
    (5, 10, 0.0),
    (4, 7, 0.1),
    (3, 2, 1.0),
]
# loss, rows, classes, label smoothing, threshold
TARGET_CASES = [("soft", 5, 10, 0.1, 0), ("bce", 5, 10, 0.0, 0), ("bce", 4, 7, 0.1, 0),
                ("bce", 5, 6, 0.1, 0.2), ("mse", 4, 3, 0.0, 0)]
SMOOTHING = 0.1
STEPS = 10
ELEMENTS = 3


class Basic(nn.Module):
    """Two 3x3 convolutions; a 1x1 convolution on the way past them where the shape changes."""

    expansion = 1

    def __init__(self, before, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = None
        if stride != 1 or before != width:
            self.downsample = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x):
        y = functional.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return functional.relu(y + (self.downsample(x) if self.downsample else x))


class Bottleneck(nn.Module):
    """1x1, 3x3 with the stride, 1x1 to four times the width."""

    expansion = 4

    def __init__(self, before, width, stride):
        super().__init__()
        after = 4 * width
        self.conv1 = nn.Conv2d(before, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, after, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(after)
        self.downsample = None
        if stride != 1 or before != after:
            self.downsample = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x):
        y = functional.relu(self.bn1(self.conv1(x)))
        y = functional.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return functional.relu(y + (self.downsample(x) if self.downsample else x))


class ResNet(nn.Module):
    def __init__(self, block, width, counts, classes, imagenet):
        super().__init__()
        self.imagenet = imagenet
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False) if imagenet else nn.Conv2d(3, width, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        before = width
        self.stages = len(counts)
        for stage, count in enumerate(counts):
            blocks = []
            for i in range(count):
                blocks.append(block(before, width << stage, 2 if stage > 0 and i == 0 else 1))
                before = (width << stage) * block.expansion
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(before, classes)

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)))
        if self.imagenet:
            x = functional.max_pool2d(x, 3, 2, 1)
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(x.mean((2, 3)))


class Mlp(nn.Module):
    def __init__(self, side, classes):
        super().__init__()
        self.fc1 = nn.Linear(3 * side * side, 512)
        self.fc2 = nn.Linear(512, 512)
        self.fc3 = nn.Linear(512, classes)

    def forward(self, x):
        x = functional.relu(self.fc1(x.flatten(1)))
        return self.fc3(functional.relu(self.fc2(x)))


class Fixed(nn.Module):
    """A convolution whose weights are not trained, with a bias that is."""

    def __init__(self, before, width, kernel):
        super().__init__()
        self.register_buffer("weight", torch.zeros(width, before, kernel, kernel))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return functional.conv2d(x, self.weight, self.bias)


class Norm(nn.BatchNorm2d):
    """Batch norm with weights that stay 1."""

    def __init__(self, width):
        super().__init__(width, eps=1e-12, momentum=0.4)
        del self.weight
        self.register_buffer("weight", torch.ones(width))


class Small(nn.Module):
    """small_net() of tests/train/support/small_net.h."""

    def __init__(self, classes):
        super().__init__()
        self.first = Fixed(3, 6, 2)
        self.conv1 = nn.Conv2d(6, 16, 3, padding=1, bias=False)
        self.norm1 = Norm(16)
        self.conv2 = nn.Conv2d(16, 17, 3, padding=1, bias=False)
        self.norm2 = Norm(17)
        self.head = nn.Linear(17, classes, bias=False)

    def forward(self, x):
        y = functional.gelu(self.first(x))
        y = functional.gelu(self.norm1(functional.max_pool2d(self.conv1(y), 2)))
        y = functional.gelu(self.norm2(self.conv2(y)))
        return self.head(y.amax((2, 3))) * 0.5


def conv_bn(before, after, kernel, stride, padding):
    convolution = nn.Conv2d(before, after, kernel, stride, padding, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(after), nn.ReLU())


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.module = nn.Sequential(conv_bn(channels, channels, 3, 1, 1), conv_bn(channels, channels, 3, 1, 1))

    def forward(self, x):
        return x + self.module(x)


class Scale(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x * self.factor


def resnet9(classes):
    """That of FFCV's CIFAR-10 example."""
    return nn.Sequential(conv_bn(3, 64, 3, 1, 1), conv_bn(64, 128, 5, 2, 2), Residual(128), conv_bn(128, 256, 3, 1, 1),
                         nn.MaxPool2d(2), Residual(256), conv_bn(256, 128, 3, 1, 0), nn.AdaptiveMaxPool2d(1),
                         nn.Flatten(), nn.Linear(128, classes, bias=False), Scale(0.2))


class Group(nn.Module):
    """Two convolutions and a max pool; batch norm without weights that are trained."""

    def __init__(self, before, after):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, padding=1, bias=False)
        self.norm1 = Norm(after)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm2 = Norm(after)

    def forward(self, x):
        x = functional.gelu(self.norm1(functional.max_pool2d(self.conv1(x), 2)))
        return functional.gelu(self.norm2(self.conv2(x)))


def airbench94(classes):
    return nn.Sequential(Fixed(3, 24, 2), nn.GELU(), Group(24, 64), Group(64, 256), Group(256, 256),
                         nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(256, classes, bias=False), Scale(1 / 9))


def make_model(name, side, classes):
    if name == "resnet9":
        return resnet9(classes)
    if name == "airbench94":
        return airbench94(classes)
    if name == "small":
        return Small(classes)
    if name == "mlp":
        return Mlp(side, classes)
    if name == "resnet20":
        return ResNet(Basic, 16, [3, 3, 3], classes, False)
    if name == "resnet18":
        return ResNet(Basic, 64, [2, 2, 2, 2], classes, True)
    return ResNet(Bottleneck, 64, [3, 4, 6, 3], classes, True)


def wave(count, salt):
    """Numbers between -1 and 1 that repeat nowhere: a linear congruential generator, each number rounded to float."""
    state, out = (12345 + 2654435761 * salt) % 2**32, []
    for _ in range(count):
        state = (state * 1664525 + 1013904223) % 2**32
        out.append((state >> 8) * 2.0**-23 - 1.0)
    return torch.tensor(out, dtype=torch.float32).double()


def salt_of(name):
    """Sum of the name's bytes, each times its place counted from 1."""
    return sum((i + 1) * c for i, c in enumerate(name.encode()))


def fill(name, parameter):
    """Variance 2 / fan-in for matrices and convolutions, around 1 for batch norm's weights, near 0 for the rest."""
    values = wave(parameter.numel(), salt_of(name))
    if parameter.dim() > 1:
        values = values * math.sqrt(6.0 / (parameter.numel() // parameter.shape[0]))
    elif name.endswith("weight"):
        values = 1 + 0.2 * values
    else:
        values = 0.1 * values
    with torch.no_grad():
        parameter.copy_(values.float().double().reshape(parameter.shape))


def places(count):
    """Which elements of a tensor are kept."""
    return [k * 7919 % count for k in range(ELEMENTS)]


def lookahead(model, slow, weight):
    """slow goes that share of the way to the model, and the model to where slow is then."""
    with torch.no_grad():
        for key, value in model.state_dict().items():
            if value.is_floating_point():
                value.copy_(slow[key].lerp_(value, weight))


def trace(name, batch, side, classes, lr, momentum, nesterov, decay, bias_scale=1.0, every=0, bias_steps=0,
          dtype=torch.float64):
    model = make_model(name, side, classes).to(dtype).train()
    for key, tensor in list(model.named_parameters()) + list(model.named_buffers()):
        if isinstance(tensor, nn.Parameter) or tensor.dim() > 1:
            fill(key, tensor)
    pictures = wave(batch * 3 * side * side, 0).reshape(batch, 3, side, side).to(dtype)
    labels = torch.arange(batch) % classes
    biases = [p for key, p in model.named_parameters() if every and "norm" in key]
    groups = [dict(params=[p for key, p in model.named_parameters() if not every or "norm" not in key])]
    if biases:
        groups.append(dict(params=biases, lr=lr * bias_scale, weight_decay=decay / bias_scale))
    optimizer = torch.optim.SGD(groups, lr, momentum, nesterov=nesterov, weight_decay=decay)
    slow = {key: value.clone() for key, value in model.state_dict().items()}
    out = dict(model=name, batch=batch, side=side, classes=classes, lr=lr,
               momentum=momentum, nesterov=nesterov, weight_decay=decay, losses=[], gradients={}, buffers={})
    if every:
        out.update(bias_lr_scale=bias_scale, lookahead=every, first_bias_steps=bias_steps)
    for step in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        if every:
            model[0].bias.requires_grad = step < bias_steps
        # Autocast rounds to bfloat16 what is in float.
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.float32):
            logits = model(pictures)
        loss = functional.cross_entropy(logits.to(dtype), labels, label_smoothing=SMOOTHING)
        loss.backward()
        out["losses"].append(loss.item())
        if step == 0:
            out["logits"] = logits.flatten().tolist()
            for key, parameter in model.named_parameters():
                flat = parameter.grad.flatten()
                out["gradients"][key] = [flat.norm().item()] + [flat[k].item() for k in places(flat.numel())]
            for key, buffer in model.named_buffers():
                if not key.endswith("num_batches_tracked"):
                    flat = buffer.flatten()
                    out["buffers"][key] = [flat.norm().item()] + [flat[k].item() for k in places(flat.numel())]
        optimizer.step()
        if every and (step + 1) % every == 0:
            lookahead(model, slow, 1 - 0.95**5 * ((step + 1) / STEPS) ** 3)
    return out


def trace_both(case):
    return dict(trace(*case), bf16_losses=trace(*case, dtype=torch.float32)["losses"])


def mixed_loss(rows, classes, smoothing):
    """The cross entropy of targets that are mixed of two labels each, and the gradient of its mean."""
    logits = (5 * wave(rows * classes, 1)).reshape(rows, classes).requires_grad_()
    labels, others = torch.arange(rows) % classes, (torch.arange(rows) * 3 + 1) % classes
    share = (torch.arange(rows, dtype=torch.float64) / (rows - 1)).reshape(-1, 1)
    target = share * functional.one_hot(labels, classes) + (1 - share) * functional.one_hot(others, classes)
    losses = functional.cross_entropy(logits, target, reduction="none", label_smoothing=smoothing)
    losses.mean().backward()
    return dict(rows=rows, classes=classes, smoothing=smoothing, losses=losses.tolist(),
                gradient=logits.grad.flatten().tolist())


def target_loss(kind, rows, classes, smoothing, threshold):
    """A loss of such targets, and the gradient of its mean; smoothing and threshold as timm's BinaryCrossEntropy."""
    x = (5 * wave(rows * classes, 1)).reshape(rows, classes).requires_grad_()
    labels, others = torch.arange(rows) % classes, (torch.arange(rows) * 3 + 1) % classes
    share = (torch.arange(rows, dtype=torch.float64) / (rows - 1)).reshape(-1, 1)
    target = share * functional.one_hot(labels, classes) + (1 - share) * functional.one_hot(others, classes)
    if kind == "soft":
        losses = functional.cross_entropy(x, target, reduction="none", label_smoothing=smoothing)
    elif kind == "mse":
        losses = functional.mse_loss(x, target, reduction="none").mean(1)
    else:
        target = (1 - smoothing) * target + smoothing / classes
        if threshold:
            target = target.gt(threshold).to(target.dtype)
        losses = functional.binary_cross_entropy_with_logits(x, target, reduction="none").mean(1)
    losses.mean().backward()
    return dict(loss=kind, rows=rows, classes=classes, smoothing=smoothing, threshold=threshold,
                losses=losses.tolist(), gradient=x.grad.flatten().tolist())


def rounded(value):
    """Ten digits: a thousand times better than float."""
    if isinstance(value, float):
        return float(f"{value:.10g}")
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return [rounded(v) for v in value] if isinstance(value, list) else value


json.dump({"made_by": "PyTorch " + torch.__version__, "cases": [rounded(trace_both(case)) for case in CASES],
           "mixed": [rounded(mixed_loss(*case)) for case in MIXED_CASES],
           "targets": [rounded(target_loss(*case)) for case in TARGET_CASES]}, sys.stdout, separators=(",", ":"))
print()
