# SPDX-License-Identifier: Apache-2.0
"""Reads what load-pixels wrote, and compares pixels. For ffcv_pixels.py and torch_pixels.py."""
import struct
from collections import namedtuple

import numpy as np

# box: x, y, width, height of the crop. pixels: ours, height x width x 3.
Picture = namedtuple('Picture', 'raw width height stored box pixels')


def read(path, width, height):
    with open(path, 'rb') as file:
        while head := file.read(64):
            raw, w, h, size, *box = struct.unpack('=8Q', head)
            stored = np.frombuffer(file.read(size), np.uint8)
            pixels = np.frombuffer(file.read(width * height * 3), np.uint8).reshape(height, width, 3)
            yield Picture(bool(raw), w, h, stored, box, pixels)


class Difference:
    """Of all the pictures that were added: prints largest and mean difference, and the share of bytes that differ."""

    def __init__(self, name):
        self.name, self.most, self.sum, self.different, self.bytes = name, 0, 0, 0, 0

    def add(self, peer, ours):
        difference = np.abs(peer.astype(int) - ours)
        self.most = max(self.most, int(difference.max()))
        self.sum += int(difference.sum())
        self.different += int((difference > 0).sum())
        self.bytes += difference.size

    def show(self):
        print('%s: max %d, mean %.4f, %.3f %% of %d bytes differ' % (
            self.name, self.most, self.sum / self.bytes, 100 * self.different / self.bytes, self.bytes))
