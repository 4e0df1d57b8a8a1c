#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ffcv-load.py FILE PIPELINE THREADS EPOCHS: images per second of FFCV's loader, as JSON.

PIPELINE: train-u8, train-f32 or eval-u8, what beton-bench load makes of the same options. The epoch in which FFCV compiles
itself comes first and is not among those that are printed."""
import json
import resource
import sys
import time

import numpy as np
from ffcv.fields.decoders import CenterCropRGBImageDecoder, IntDecoder, RandomResizedCropRGBImageDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.transforms import NormalizeImage, RandomHorizontalFlip, Squeeze, ToTensor, ToTorchImage

path, pipeline, threads, epochs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
mean = np.array([123.675, 116.28, 103.53])
std = np.array([58.395, 57.12, 57.375])
crop = [RandomResizedCropRGBImageDecoder((224, 224)), RandomHorizontalFlip()]
pixels = {
    'train-u8': crop + [ToTensor()],
    'train-f32': crop + [NormalizeImage(mean, std, np.float32), ToTensor(), ToTorchImage(channels_last=False)],
    'eval-u8': [CenterCropRGBImageDecoder((224, 224), 224 / 256), ToTensor()],
}[pipeline]

opened = time.time()
loader = Loader(path, batch_size=256, num_workers=threads, order=OrderOption.RANDOM, os_cache=True, drop_last=False,
                seed=0, pipelines={'image': pixels, 'label': [IntDecoder(), ToTensor(), Squeeze()]})
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
print(json.dumps({
    'images_per_second': sorted(speeds)[len(speeds) // 2],
    'first_batch_ms': first_batch * 1e3,
    'peak_rss_mb': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024e-6,
}))
