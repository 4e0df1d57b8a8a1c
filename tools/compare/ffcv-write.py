# SPDX-License-Identifier: Apache-2.0
"""Writes a folder of class folders with FFCV's writer. For tools/compare/write.

Usage: ffcv-write.py FOLDER OUT.beton MODE MAX_RESOLUTION WORKERS   (MAX_RESOLUTION 0: none)
Prints the seconds that the writer took, without Python's start and imports."""
import os
import sys
import time

from ffcv.fields import IntField, RGBImageField
from ffcv.writer import DatasetWriter
from PIL import Image

folder, out, mode, limit, workers = sys.argv[1:6]
classes = sorted(os.listdir(folder))
files = [(os.path.join(folder, c, f), i) for i, c in enumerate(classes) for f in sorted(os.listdir(os.path.join(folder, c)))]


class Pictures:
    def __len__(self):
        return len(files)

    def __getitem__(self, index):
        path, label = files[index]
        return Image.open(path).convert('RGB'), label


started = time.monotonic()
writer = DatasetWriter(out, {'image': RGBImageField(write_mode=mode, max_resolution=int(limit) or None), 'label': IntField()},
                       num_workers=int(workers))
writer.from_indexed_dataset(Pictures())
print('seconds', time.monotonic() - started)
