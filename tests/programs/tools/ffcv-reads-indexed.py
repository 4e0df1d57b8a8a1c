# SPDX-License-Identifier: Apache-2.0
"""ffcv-reads-indexed.py write FOLDER OUT: FFCV writes JPEGs. ffcv-reads-indexed.py digest FILE: what FFCV reads of a file."""
import hashlib
import os
import sys

import numpy as np
from PIL import Image

from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import CenterCropRGBImageDecoder, IntDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.reader import Reader
from ffcv.transforms import ToTensor
from ffcv.writer import DatasetWriter


class Folder:
    def __init__(self, root):
        self.files = sorted(os.path.join(folder, name) for folder, _, names in os.walk(root) for name in names)

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        return Image.open(self.files[i]).convert('RGB'), i


def write(folder, out):
    DatasetWriter(out, {'image': RGBImageField(write_mode='jpg'), 'label': IntField()}, num_workers=2).from_indexed_dataset(Folder(folder))


def digest(path):
    sha = hashlib.sha256()
    reader = Reader(path)
    sizes = {int(pointer): int(size) for _, pointer, size in reader.alloc_table}
    content = np.memmap(path, dtype=np.uint8, mode='r')
    for image, label in reader.metadata:
        pointer = int(image[3])
        sha.update(content[pointer:pointer + sizes[pointer]].tobytes() + bytes(str((image, label)), 'ascii'))
    for order, os_cache in (OrderOption.RANDOM, True), (OrderOption.QUASI_RANDOM, False):
        loader = Loader(path, batch_size=16, num_workers=2, order=order, os_cache=os_cache, drop_last=False, seed=5,
                        pipelines={'image': [CenterCropRGBImageDecoder((64, 64), 0.5), ToTensor()],
                                   'label': [IntDecoder(), ToTensor()]})
        for pixels, labels in loader:
            sha.update(pixels.numpy().tobytes() + labels.numpy().tobytes())
    print(len(sizes), sha.hexdigest())


{'write': write, 'digest': digest}[sys.argv[1]](*sys.argv[2:])
