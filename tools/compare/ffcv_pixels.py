#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ffcv_pixels.py DUMP WIDTH HEIGHT NAME [FILE]: FFCV's pixels beside those that load-pixels wrote to DUMP.

FFCV's own functions decode each picture and resize the crop that we drew: they are what its decoders call, and its draws
come from a state that nobody can set. With FILE, the .beton file, centre crops come from FFCV's loader as a whole."""
import sys

import numpy as np
from ffcv.libffcv import imdecode, resize_crop
from peer_pixels import Difference, read


def decoded(picture):
    if picture.raw:
        return picture.stored.reshape(picture.height, picture.width, 3)
    out = np.empty((picture.height, picture.width, 3), np.uint8)
    size = (picture.height, picture.width)
    imdecode(picture.stored, out, *size, *size, 0, 0, 1, 1, False, False)
    return out


def from_functions(pictures, width, height):
    for picture in pictures:
        x, y, w, h = picture.box
        out = np.empty((height, width, 3), np.uint8)
        resize_crop(decoded(picture), y, y + h, x, x + w, out)
        yield out


def from_loader(path, count, width, height):
    from ffcv.fields.decoders import CenterCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.reader import Reader
    from ffcv.transforms import ToTensor
    names = Reader(path).handlers
    pipelines = {name: None for name in names}
    field = next(name for name, handler in names.items() if type(handler).__name__ == 'RGBImageField')
    pipelines[field] = [CenterCropRGBImageDecoder((height, width), 224 / 256), ToTensor()]
    for batch in Loader(path, batch_size=16, num_workers=1, order=OrderOption.SEQUENTIAL, drop_last=False,
                        indices=range(count), pipelines=pipelines):
        yield from batch[0].numpy()


if __name__ == '__main__':
    dump, width, height, name = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    pictures = list(read(dump, width, height))
    whole = len(sys.argv) > 5
    peers = from_loader(sys.argv[5], len(pictures), width, height) if whole else from_functions(pictures, width, height)
    total = Difference('FFCV%s, %s' % ("'s loader" if whole else '', name))
    for peer, picture in zip(peers, pictures):
        total.add(peer, picture.pixels)
    total.show()
