# SPDX-License-Identifier: Apache-2.0
"""Training speed of PyTorch on this machine's CPU, images a second: the peer of `dtrain-bench step`.

usage: torch-step.py MODEL(resnet18|resnet20) IMAGE_SIZE BATCH_SIZE THREADS STEPS
Prints one JSON object with the median step of both memory formats that PyTorch has; SGD with momentum and weight decay,
float32, data in memory: the same work as the step that it is compared with."""
import json
import statistics
import sys
import time

import torch
from torch import nn


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


def measure(name, size, batch, steps, memory_format):
    model, classes = resnet(name)
    model = model.to(memory_format=memory_format)
    x = torch.randn(batch, 3, size, size).contiguous(memory_format=memory_format)
    y = torch.randint(0, classes, (batch,))
    sgd = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    times = []
    for _ in range(steps + 2):
        begin = time.perf_counter()
        sgd.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        sgd.step()
        times.append(time.perf_counter() - begin)
    return batch / statistics.median(times[2:])


name, size, batch, threads, steps = sys.argv[1], *map(int, sys.argv[2:6])
torch.set_num_threads(threads)
print(json.dumps({
    'torch': torch.__version__,
    'contiguous': measure(name, size, batch, steps, torch.contiguous_format),
    'channels_last': measure(name, size, batch, steps, torch.channels_last)}))
