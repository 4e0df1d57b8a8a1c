#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch_pixels.py DUMP WIDTH HEIGHT NAME: torchvision's pixels beside those that load-pixels wrote to DUMP.

Its functions crop and resize at the boxes that we drew: RandomResizedCrop is resized_crop, Resize with two sides is resize.
On Pillow's pictures; and on tensors (decode_jpeg, antialias), of transforms and of transforms.v2."""
import io
import sys

import torch
from peer_pixels import Difference, read
from PIL import Image
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms import functional
from torchvision.transforms.v2 import functional as functional_v2


def pillow(picture):
    if picture.raw:
        return Image.fromarray(picture.stored.reshape(picture.height, picture.width, 3))
    return Image.open(io.BytesIO(picture.stored.tobytes())).convert('RGB')


def tensor(picture):
    stored = torch.from_numpy(picture.stored.copy())
    if picture.raw:
        return stored.reshape(picture.height, picture.width, 3).permute(2, 0, 1)
    return decode_jpeg(stored, ImageReadMode.RGB)


KINDS = {'Pillow': (pillow, functional), 'tensors': (tensor, functional), 'tensors, v2': (tensor, functional_v2)}


def resized(kind, picture, width, height):
    decode, functions = KINDS[kind]
    x, y, w, h = picture.box
    out = functions.resized_crop(decode(picture), y, x, h, w, [height, width], antialias=True)
    return functional.pil_to_tensor(out).permute(1, 2, 0).numpy() if kind == 'Pillow' else out.permute(1, 2, 0).numpy()


if __name__ == '__main__':
    dump, width, height, name = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    totals = {kind: Difference('torchvision, %s, %s' % (kind, name)) for kind in KINDS}
    for picture in read(dump, width, height):
        for kind, total in totals.items():
            total.add(resized(kind, picture, width, height), picture.pixels)
    for total in totals.values():
        total.show()
