# SPDX-License-Identifier: Apache-2.0
"""CIFAR-10 to 94 % with PyTorch: the peer of `dtrain-ffcv --recipe airbench94`.

Usage: torch-cifar.py prepare TRAIN.tar VAL.tar FOLDER     the pictures as airbench94.py reads them: FOLDER/cifar10/*.pt
       torch-cifar.py train FOLDER [OPTION]...             the same recipe on them; prints one JSON object
The archives are what `beton-extract --layout=samples` writes. Needs torch, and Pillow to prepare.

Time is counted as airbench94 does: pictures lie in the device's memory before it begins; whitening, training and the
evaluation of six views at the end count, evaluations after each epoch (--every-epoch) do not."""
import argparse
import json
import math
import os
import sys
import tarfile
import time

import torch
from torch import nn
from torch.nn import functional

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
LR, MOMENTUM, DECAY, BIAS_SCALE, SMOOTHING = 1.5, 0.85, 0.0153 / 11.5, 64.0, 0.2
HALVES = {'fp16': torch.float16, 'bf16': torch.bfloat16}


def read_archive(path):
    import numpy
    from PIL import Image
    pictures, labels = {}, {}
    with tarfile.open(path) as archive:
        for member in archive:
            number, ending = os.path.splitext(os.path.basename(member.name))
            if ending == '.cls':
                labels[number] = int(archive.extractfile(member).read())
            elif ending in ('.jpg', '.png'):
                picture = Image.open(archive.extractfile(member)).convert('RGB')
                pictures[number] = torch.from_numpy(numpy.array(picture))
    numbers = sorted(pictures)
    return torch.stack([pictures[n] for n in numbers]), torch.tensor([labels[n] for n in numbers])


def prepare(train, val, folder):
    os.makedirs(os.path.join(folder, 'cifar10'), exist_ok=True)
    for name, path in (('train', train), ('test', val)):
        images, labels = read_archive(path)
        torch.save({'images': images, 'labels': labels, 'classes': [str(i) for i in range(10)]},
                   os.path.join(folder, 'cifar10', name + '.pt'))


class Group(nn.Module):
    def __init__(self, before, after):
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(after, after, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(after, eps=1e-12, momentum=0.4)
        self.norm2 = nn.BatchNorm2d(after, eps=1e-12, momentum=0.4)
        for conv in (self.conv1, self.conv2):
            nn.init.dirac_(conv.weight.data[:conv.in_channels])
        for norm in (self.norm1, self.norm2):
            norm.weight.requires_grad = False

    def forward(self, x):
        x = functional.gelu(self.norm1(functional.max_pool2d(self.conv1(x), 2)))
        return functional.gelu(self.norm2(self.conv2(x)))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.whiten = nn.Conv2d(3, 24, 2)
        self.whiten.weight.requires_grad = False
        nn.init.zeros_(self.whiten.bias)
        self.groups = nn.Sequential(Group(24, 64), Group(64, 256), Group(256, 256))
        self.head = nn.Linear(256, 10, bias=False)

    def forward(self, x):
        return self.head(self.groups(functional.gelu(self.whiten(x))).amax((2, 3))) / 9


def whiten(layer, x):
    """Eigenvectors of the patches' second moments, over the roots of their values, largest value first; then negated."""
    patches = functional.unfold(x.float(), 2).transpose(1, 2).reshape(-1, 12)
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    filters = (vectors / torch.sqrt(values + 5e-4)).T.flip(0).reshape(12, 3, 2, 2)
    layer.weight.data.copy_(torch.cat((filters, -filters)))


class Training:
    def __init__(self, folder, options):
        self.options, self.device = options, torch.device(options.device)
        self.half = HALVES.get(options.precision)
        self.train, self.val = (self.load(folder, name) for name in ('train', 'test'))
        self.network = Network().to(self.device, memory_format=torch.channels_last)
        self.steps_per_epoch = len(self.train[0]) // options.batch_size
        self.total = options.steps or math.ceil(options.epochs * self.steps_per_epoch)
        self.warm_up = int(0.23 * self.total)
        norms = [p for name, p in self.network.named_parameters() if 'norm' in name and p.requires_grad]
        others = [p for name, p in self.network.named_parameters() if 'norm' not in name and p.requires_grad]
        fused = self.device.type == 'cuda'
        self.sgd = torch.optim.SGD([dict(params=others, weight_decay=DECAY, scale=1.0),
                                    dict(params=norms, weight_decay=DECAY / BIAS_SCALE, scale=BIAS_SCALE)],
                                   LR, MOMENTUM, nesterov=True, fused=fused or None)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=options.precision == 'fp16')
        self.step, self.seconds = 0, 0.0

    def load(self, folder, name):
        data = torch.load(os.path.join(folder, 'cifar10', name + '.pt'))
        x = data['images'].to(self.device).permute(0, 3, 1, 2).float() / 255
        mean, std = (torch.tensor(v, device=self.device).view(1, 3, 1, 1) for v in (MEAN, STD))
        x = ((x - mean) / std).to(self.half or torch.float32, memory_format=torch.channels_last)
        return x, data['labels'].to(self.device)

    def wait(self):
        if self.device.type == 'cuda':
            torch.cuda.synchronize(self.device)

    def rate(self, step):
        if step < self.warm_up:
            return 0.2 + 0.8 * step / self.warm_up
        return 1 - 0.93 * (step - self.warm_up) / (self.total - self.warm_up)

    def logits(self, x):
        with torch.autocast(self.device.type, self.half, enabled=self.half is not None):
            return self.network(x).float()

    def views(self, x):
        """Both sides of each picture, and of it moved by a pixel to the lower right and to the upper left."""
        def mirror(part):
            return (self.logits(part) + self.logits(part.flip(-1))) / 2
        padded = functional.pad(x, (1, 1, 1, 1), 'reflect')
        moved = (mirror(padded[:, :, :-2, :-2]) + mirror(padded[:, :, 2:, 2:])) / 2
        return (mirror(x) + moved) / 2

    def evaluate(self, see):
        self.network.eval()
        x, labels = self.val
        with torch.no_grad():
            right = sum((see(x[i:i + 2000]).argmax(1) == labels[i:i + 2000]).sum() for i in range(0, len(x), 2000))
        self.network.train()
        return right.item() / len(x)

    def order(self, epoch, flipped):
        """The epoch's pictures in a new order, moved at random, one side of each in every other epoch."""
        x, labels = self.train
        padded = functional.pad(x, (2, 2, 2, 2), 'reflect')
        moves = torch.randint(0, 5, (2, len(x)), device=self.device)
        moved = torch.empty_like(x)
        for dy in range(5):
            for dx in range(5):
                here = (moves[0] == dy) & (moves[1] == dx)
                moved[here] = padded[here, :, dy:dy + 32, dx:dx + 32]
        turned = (flipped ^ (epoch % 2 == 1)).view(-1, 1, 1, 1)
        moved = torch.where(turned, moved.flip(-1), moved)
        order = torch.randperm(len(x), device=self.device)
        size = self.options.batch_size
        for i in range(self.steps_per_epoch):
            rows = order[i * size:(i + 1) * size]
            yield moved[rows], labels[rows]

    def look_ahead(self, weight):
        with torch.no_grad():
            for slow, value in zip(self.slow, self.state):
                value.copy_(slow.lerp_(value, weight))

    def train_step(self, x, labels):
        for group in self.sgd.param_groups:
            group['lr'] = LR * group['scale'] * self.rate(self.step)
        self.sgd.zero_grad(set_to_none=True)
        with torch.autocast(self.device.type, self.half, enabled=self.half is not None):
            loss = functional.cross_entropy(self.network(x), labels, label_smoothing=SMOOTHING)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.sgd)
        self.scaler.update()
        self.step += 1
        if self.step % 5 == 0:
            self.look_ahead(1 - 0.95**5 * (self.step / self.total)**3)
        if self.step == self.total:
            self.look_ahead(0.0)
        return loss

    def run(self):
        self.wait()
        began = time.perf_counter()
        whiten(self.network.whiten, self.train[0][:5000])
        self.state = [v for v in self.network.state_dict().values() if v.is_floating_point()]
        self.slow = [v.clone() for v in self.state]
        flipped = torch.rand(len(self.train[0]), device=self.device) < 0.5
        epoch = 0
        while self.step < self.total:
            self.network.whiten.bias.requires_grad = epoch < 3
            for x, labels in self.order(epoch, flipped):
                loss = self.train_step(x, labels)
                if self.step == self.total:
                    break
            epoch += 1
            self.wait()
            self.seconds += time.perf_counter() - began
            if self.options.every_epoch:
                print(json.dumps({'epoch': epoch, 'step': self.step, 'loss': loss.item(), 'seconds': self.seconds,
                                  'plain': self.evaluate(self.logits), 'top1': self.evaluate(self.views)}), flush=True)
            began = time.perf_counter()
        accuracy = self.evaluate(self.views)
        return accuracy, self.seconds + time.perf_counter() - began


def parse(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument('folder')
    parser.add_argument('--device', default='cuda')
    parser.add_argument('--precision', choices=('f32', 'fp16', 'bf16'), default='fp16')
    parser.add_argument('--epochs', type=float, default=9.9)
    parser.add_argument('--steps', type=int, default=0)
    parser.add_argument('--batch-size', type=int, default=1024)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--every-epoch', action='store_true')
    return parser.parse_args(arguments)


def main():
    if len(sys.argv) == 5 and sys.argv[1] == 'prepare':
        return prepare(*sys.argv[2:])
    if len(sys.argv) < 3 or sys.argv[1] != 'train':
        sys.exit(__doc__)
    options = parse(sys.argv[2:])
    torch.manual_seed(options.seed)
    torch.backends.cudnn.benchmark = True
    training = Training(options.folder, options)
    accuracy, seconds = training.run()
    name = torch.cuda.get_device_name(training.device) if training.device.type == 'cuda' else 'cpu'
    print(json.dumps({'top1': accuracy, 'seconds': seconds, 'torch': torch.__version__, 'device': name}))


main()
