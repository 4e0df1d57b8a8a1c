# SPDX-License-Identifier: Apache-2.0
"""What the real FFCV sees in files that beton-write wrote from a picture folder.
usage: ffcv-reads-ours.py FOLDER ORIGINAL.beton JPG.beton RAW.beton LIMIT

FOLDER: class folders; ORIGINAL and RAW were written without a size limit, JPG with --max-resolution LIMIT."""
import io
import os
import sys

import numpy as np
from PIL import Image

from ffcv.fields import IntField, RGBImageField
from ffcv.fields.decoders import CenterCropRGBImageDecoder, IntDecoder
from ffcv.loader import Loader, OrderOption
from ffcv.reader import Reader
from ffcv.transforms import ToTensor

folder, original, jpg, raw, limit = sys.argv[1:5] + [int(sys.argv[5])]
classes = sorted(os.listdir(folder))
files = [(os.path.join(folder, c, f), i) for i, c in enumerate(classes) for f in sorted(os.listdir(os.path.join(folder, c)))]


def read(path):
    """Yields mode, width, height, stored bytes and label of each sample, and checks what FFCV needs of the file."""
    reader = Reader(path)
    assert reader.field_names == ['image', 'label'], reader.field_names
    assert isinstance(reader.handlers['image'], RGBImageField) and isinstance(reader.handlers['label'], IntField)
    assert reader.num_samples == len(files), (reader.num_samples, len(files))
    sizes = {int(ptr): int(size) for _, ptr, size in reader.alloc_table}
    assert len(sizes) == len(files)
    content = np.memmap(path, dtype=np.uint8, mode='r')
    for image, label in reader.metadata:
        mode, width, height, ptr = (int(x) for x in image)
        assert ptr // reader.page_size == (ptr + sizes[ptr] - 1) // reader.page_size
        yield mode, width, height, content[ptr:ptr + sizes[ptr]].tobytes(), int(label)


def rgb(path):
    picture = Image.open(path)
    if picture.mode.startswith('I'):
        # Pillow makes everything above 255 white; the upper 8 of 16 bits are right.
        return np.repeat((np.array(picture) >> 8).astype(np.uint8)[:, :, None], 3, axis=2)
    return np.array(picture.convert('RGB'))


kept = rewritten = decoded = 0
for (path, label), (mode, width, height, stored, found) in zip(files, read(original)):
    assert found == label, (path, found, label)
    source = open(path, 'rb').read()
    picture = Image.open(path)
    if mode == 0 and stored == source:
        kept += 1
    elif mode == 0 and picture.mode != 'CMYK':
        assert np.array_equal(np.array(picture), np.array(Image.open(io.BytesIO(stored)))), path + ': pixels changed'
        rewritten += 1
    else:
        assert picture.format == 'PNG' or picture.mode == 'CMYK', path + ': a JPEG became something else'
    assert (width, height) == Image.open(path).size, path
for (path, label), (mode, width, height, stored, found) in zip(files, read(raw)):
    expected = rgb(path)
    assert (mode, found, height, width) == (1, label) + expected.shape[:2], path
    pixels = np.frombuffer(stored, np.uint8).reshape(height, width, 3)
    # The decoder of FFCV's Pillow and ours may be two releases of the same library.
    assert np.abs(pixels.astype(int) - expected).max() <= 2, path
    decoded += 1
for (path, label), (mode, width, height, stored, found) in zip(files, read(jpg)):
    size = np.array(Image.open(path).size)
    ratio = limit / size.max()
    expected = (ratio * size).astype(int) if ratio < 1 else size
    assert (mode, found, width, height) == (0, label, *expected), (path, mode, found, width, height, expected)
    assert Image.open(io.BytesIO(stored)).size == (width, height)

for path in original, jpg, raw:
    for os_cache in True, False:
        loader = Loader(path, batch_size=16, num_workers=2, order=OrderOption.SEQUENTIAL, os_cache=os_cache, drop_last=False,
                        pipelines={'image': [CenterCropRGBImageDecoder((32, 32), 1), ToTensor()],
                                   'label': [IntDecoder(), ToTensor()]})
        labels = np.concatenate([label.numpy().reshape(-1).copy() for _, label in loader])
        assert labels.tolist() == [label for _, label in files], path
print(f'{len(files)} pictures: {kept} with their own JPEG bytes, {rewritten} with the same pixels, {decoded} with the pixels of Pillow; the loader reads all three files')
