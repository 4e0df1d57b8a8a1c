# SPDX-License-Identifier: Apache-2.0
"""Training speed of PyTorch on this machine's CPU, images or tokens a second: the peer of `dtrain-bench step`.

usage: torch-step.py MODEL(resnet18|resnet20|vit-s16|gpt2) SIZE BATCH_SIZE THREADS STEPS [f32|bf16 [eager|compile]]
SIZE is a picture's side in pixels, or a sequence's length in tokens. Prints one JSON object with the median step, for
ResNets of both memory formats that PyTorch has, and the most resident memory of the process; data in memory, SGD with
momentum and weight decay, for gpt2 AdamW: the same work as the step that it is compared with. bf16 is autocast."""
import json
import resource
import statistics
import sys
import time

import torch
from torch import nn

from torch_transformers import GPT2, ViT


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return torch.relu_(self.body(x) + self.shortcut(x))


def resnet(name):
    if name == 'resnet18':
        layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
        plan, channels, classes = [(64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)], 64, 1000
    else:
        layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
        plan, channels, classes = [(16, 1)] * 3 + [(32, 2)] + [(32, 1)] * 2 + [(64, 2)] + [(64, 1)] * 2, 16, 10
    for outputs, stride in plan:
        layers.append(Block(channels, outputs, stride))
        channels = outputs
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes)), classes


def make(name, size, batch):
    """Model, input, target, and images or tokens of a step."""
    if name == 'gpt2':
        tokens = torch.randint(0, 50257, (batch, size + 1))
        return GPT2(name), tokens[:, :-1].contiguous(), tokens[:, 1:].flatten(), batch * size
    model, classes = (ViT(name, size, 1000), 1000) if name == 'vit-s16' else resnet(name)
    return model, torch.randn(batch, 3, size, size), torch.randint(0, classes, (batch,)), batch


def measure(memory_format):
    model, x, y, units = make(name, size, batch)
    if x.dim() == 4:
        model, x = model.to(memory_format=memory_format), x.contiguous(memory_format=memory_format)
    if name == 'gpt2':
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)

    def loss():
        with torch.autocast('cpu', torch.bfloat16, enabled=precision == 'bf16'):
            return nn.functional.cross_entropy(model(x), y)

    if how == 'compile':
        loss = torch.compile(loss)
    times = []
    for _ in range(steps + 3):
        begin = time.perf_counter()
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        times.append(time.perf_counter() - begin)
    return units / statistics.median(times[3:])


name, size, batch, threads, steps = sys.argv[1], *map(int, sys.argv[2:6])
precision, how = (sys.argv[6:] + ['f32', 'eager'][len(sys.argv) - 6:])[:2]
torch.set_num_threads(threads)
result = {'torch': torch.__version__, 'contiguous': measure(torch.contiguous_format)}
if name.startswith('resnet'):
    result['channels_last'] = measure(torch.channels_last)
result['peak_resident_bytes'] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps(result))
