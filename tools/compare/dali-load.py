#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""dali-load.py FOLDER PIPELINE THREADS EPOCHS: images per second of DALI's CPU pipeline on class folders of JPEGs, as JSON.

PIPELINE: train-u8, train-f32 or eval-u8, as in ffcv-load.py. One epoch comes first and is not among those that are printed."""
import json
import resource
import sys
import time

from nvidia.dali import fn, pipeline_def, types

path, pipeline, threads, epochs = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])


@pipeline_def
def pictures():
    encoded, label = fn.readers.file(file_root=path, random_shuffle=True, seed=0, name='reader')
    if pipeline == 'eval-u8':
        image = fn.decoders.image(encoded, device='cpu', output_type=types.RGB)
        return fn.crop(fn.resize(image, resize_shorter=256), crop=(224, 224)), label
    image = fn.decoders.image_random_crop(encoded, device='cpu', output_type=types.RGB, random_area=[0.08, 1],
                                          random_aspect_ratio=[3 / 4, 4 / 3])
    image = fn.resize(image, size=(224, 224))
    mirror = fn.random.coin_flip(probability=0.5)
    if pipeline == 'train-u8':
        return fn.flip(image, horizontal=mirror), label
    return fn.crop_mirror_normalize(image, mirror=mirror, mean=[123.675, 116.28, 103.53], std=[58.395, 57.12, 57.375],
                                    dtype=types.FLOAT, output_layout='CHW'), label


opened = time.time()
loader = pictures(batch_size=256, num_threads=threads, device_id=None, prefetch_queue_depth=3)
loader.build()
batches = loader.epoch_size('reader') // 256
first_batch = None
speeds = []
for epoch in range(epochs + 1):
    started = time.time()
    for batch in range(batches):
        image, label = loader.run()
        image.as_array(), label.as_array()
        if first_batch is None:
            first_batch = time.time() - opened
    if epoch > 0:
        speeds.append(batches * 256 / (time.time() - started))
print(json.dumps({
    'images_per_second': sorted(speeds)[len(speeds) // 2],
    'first_batch_ms': first_batch * 1e3,
    'peak_rss_mb': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024e-6,
}))
