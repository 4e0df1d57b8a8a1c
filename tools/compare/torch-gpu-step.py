# SPDX-License-Identifier: Apache-2.0
"""Training speed of PyTorch, as one would set it up for speed: the peer of `dtrain-bench step` on a GPU.

Channels last, autocast for half precision, fused SGD, or AdamW for gpt2, cuDNN's benchmark mode; eager, or compiled in one
of torch.compile's modes; `+cudnn` after the mode: attention by cuDNN.
Pictures are bytes in the device's memory and are normalized there, in each step, and tokens are there, too: the same work
as the step that it is compared with. The host does not wait for a step before it launches the next. Prints one JSON
object."""
import argparse
import contextlib
import json
import time

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from torch_transformers import VITS, GPT2, ViT, is_gpt2

# torch.compile's name of each mode. reduce-overhead: whole graphs are captured and replayed. max-autotune: the same, and
# products are the fastest of many kernels.
MODES = {'eager': None, 'compile': 'default', 'reduce-overhead': 'reduce-overhead', 'max-autotune': 'max-autotune'}
HALVES = {'bf16': torch.bfloat16, 'fp16': torch.float16}


class Basic(nn.Module):
    expansion = 1

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width))
        self.shortcut = shortcut(inputs, width, stride)

    def forward(self, x):
        return torch.relu_(self.body(x) + self.shortcut(x))


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, inputs, width, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width))
        self.shortcut = shortcut(inputs, 4 * width, stride)

    def forward(self, x):
        return torch.relu_(self.body(x) + self.shortcut(x))


def shortcut(inputs, outputs, stride):
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


def resnet(name, classes):
    if name == 'resnet20':
        block, widths, depths = Basic, (16, 32, 64), (3, 3, 3)
        layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)]
    else:
        block, depths = (Basic, (2, 2, 2, 2)) if name == 'resnet18' else (Bottleneck, (3, 4, 6, 3))
        widths = (64, 128, 256, 512)
        layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = widths[0]
    for stage, (width, depth) in enumerate(zip(widths, depths)):
        for number in range(depth):
            layers.append(block(channels, width, 2 if stage and not number else 1))
            channels = width * block.expansion
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


def make(options):
    if is_gpt2(options.model):
        return GPT2(options.model)
    if options.model in VITS:
        return ViT(options.model, options.image_size, options.classes)
    if options.model in ('resnet18', 'resnet20', 'resnet50'):
        return resnet(options.model, options.classes)
    raise SystemExit(f'no model {options.model}')


class Step:
    def __init__(self, options):
        self.device = torch.device(options.device)
        self.half = HALVES.get(options.precision)
        self.model = make(options).to(self.device, memory_format=torch.channels_last)
        self.reads_text = is_gpt2(options.model)
        mode, _, self.attention = options.mode.partition('+')
        self.forward = self.loss if mode == 'eager' else torch.compile(self.loss, mode=MODES[mode])
        if self.reads_text:
            self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        else:
            self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9, fused=True)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=options.precision == 'fp16')
        self.make_data(options)

    def make_data(self, options):
        if self.reads_text:
            size = (options.batch_size, options.context_length + 1)
            tokens = torch.randint(0, self.model.vocabulary, size, device=self.device)
            self.input, self.labels = tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()
            return
        size = (options.batch_size, options.image_size, options.image_size, 3)
        self.input = torch.randint(0, 256, size, dtype=torch.uint8, device=self.device)
        self.labels = torch.randint(0, options.classes, size[:1], device=self.device)
        self.mean = torch.tensor([123.675, 116.28, 103.53], device=self.device).view(1, 3, 1, 1)
        self.std = torch.tensor([58.395, 57.12, 57.375], device=self.device).view(1, 3, 1, 1)

    def loss(self, x, labels):
        if not self.reads_text:
            x = (x.permute(0, 3, 1, 2) - self.mean) / self.std
        precision = torch.autocast(self.device.type, self.half) if self.half else contextlib.nullcontext()
        with precision:
            return nn.functional.cross_entropy(self.model(x), labels, label_smoothing=0 if self.reads_text else 0.1)

    def run(self):
        self.optimizer.zero_grad(set_to_none=True)
        with self.kernels():
            self.scaler.scale(self.forward(self.input, self.labels)).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()

    def kernels(self):
        """The attention that PyTorch prefers by itself, or cuDNN's."""
        if not self.attention:
            return contextlib.nullcontext()
        return sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.MATH], set_priority=True)

    def wait(self):
        if self.device.type == 'cuda':
            torch.cuda.synchronize(self.device)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--model', default='resnet50')
    parser.add_argument('--image-size', type=int, default=224)
    parser.add_argument('--context-length', type=int, default=1024)
    parser.add_argument('--batch-size', type=int, default=256)
    parser.add_argument('--classes', type=int, default=1000)
    parser.add_argument('--precision', choices=('f32', 'tf32', 'bf16', 'fp16'), default='bf16')
    parser.add_argument('--mode', choices=[mode + attention for attention in ('', '+cudnn') for mode in MODES], default='eager')
    parser.add_argument('--steps', type=int, default=50)
    parser.add_argument('--warm-up', type=int, default=10)
    parser.add_argument('--device', default='cuda')
    return parser.parse_args()


def main():
    options = parse()
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.precision != 'f32'
    step = Step(options)
    for _ in range(options.warm_up):
        step.run()
    step.wait()
    began = time.perf_counter()
    for _ in range(options.steps):
        step.run()
    step.wait()
    seconds = (time.perf_counter() - began) / options.steps
    name = torch.cuda.get_device_name(step.device) if step.device.type == 'cuda' else 'cpu'
    units = {'tokens_per_second': options.batch_size * options.context_length / seconds} if step.reads_text else {
        'images_per_second': options.batch_size / seconds}
    print(json.dumps({'torch': torch.__version__, 'device': name, 'mode': options.mode, 'precision': options.precision,
                      'step_ms': seconds * 1e3, **units}))


main()
