#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch-load.py FOLDER PIPELINE WORKERS EPOCHS: images per second of PyTorch's DataLoader with torchvision, on class folders
of JPEGs, as JSON.

PIPELINE: train-u8, train-f32 or eval-u8, as in ffcv-load.py. One epoch comes first and is not among those that are printed.
Memory is the peak of this process and, for each worker, the peak of the largest: shared pages are counted again."""
import json
import resource
import sys
import time

import torch
from torchvision import datasets, transforms

path, pipeline, workers, epochs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
normalize = transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
crop = [transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()]
steps = {
    'train-u8': crop + [transforms.PILToTensor()],
    'train-f32': crop + [transforms.ToTensor(), normalize],
    'eval-u8': [transforms.Resize(256), transforms.CenterCrop(224), transforms.PILToTensor()],
}[pipeline]

opened = time.time()
dataset = datasets.ImageFolder(path, transforms.Compose(steps))
loader = torch.utils.data.DataLoader(dataset, batch_size=256, shuffle=True, num_workers=workers, persistent_workers=True)
first_batch = None
speeds = []
for epoch in range(epochs + 1):
    started = time.time()
    images = 0
    for image, label in loader:
        if first_batch is None:
            first_batch = time.time() - opened
        images += len(label)
    if epoch > 0:
        speeds.append(images / (time.time() - started))
del loader
print(json.dumps({
    'images_per_second': sorted(speeds)[len(speeds) // 2],
    'first_batch_ms': first_batch * 1e3,
    'peak_rss_mb': (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
                    + workers * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss) * 1024e-6,
}))
