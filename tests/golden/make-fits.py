#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints fits.txt: where Pillow's ImageOps.pad, and torchvision's Resize and CenterCrop, put pictures, and the pixels that they
make, to be compared with the loader's.

usage: make-fits.py > fits.txt    (needs Pillow, NumPy, torchvision and xxhash)
"""
import random

import numpy
import PIL
import torchvision
import xxhash
from PIL import Image, ImageOps
from torchvision.transforms import functional as F

CENTERS = ((0.5, 0.5), (0, 0))  # BETON_FIT_PAD_CENTER, BETON_FIT_PAD_CORNER
PAD = (7, 114, 250)
PICTURES = (((64, 48), (32, 32)), ((48, 64), (33, 20)), ((31, 90), (64, 64)), ((90, 31), (17, 64)), ((20, 15), (51, 61)),
            ((40, 40), (24, 24)), ((5, 77), (40, 9)), ((80, 60), (40, 31)),
            ((700, 300), (48, 40)), ((290, 800), (30, 44)))
SIDES = (36, 21, 48, 19, 90, 40, 33, 60, 60, 33)  # of PICTURES: some are cut off, some padded, some both


def place(size, out, center):
    """x, y, width and height of the picture."""
    white = Image.new('L', size, 255)
    left, top, right, bottom = ImageOps.pad(white, out, Image.Resampling.NEAREST, color=0, centering=center).getbbox()
    return left, top, right - left, bottom - top


def fixture_picture(picture, width, height):
    """fixture_pixels of tests/loader/fixture.c."""
    y, x, c = numpy.indices((height, width, 3), dtype=numpy.uint64)
    wave = (x * (3 + picture % 5) + y * (2 + picture % 7) + c * 60 + picture * 11) & 255
    value = numpy.where(wave < 128, wave * 2, 510 - wave * 2)
    noise = (((x * 2654435761 + y * 40503 + c * 97 + picture) & 0xffffffff) >> 5) & 15
    return Image.fromarray((value * 15 // 16 + noise).astype(numpy.uint8))


def cut_place(size, out, side):
    """The same of Resize(side) and CenterCrop(out), which may reach beyond the output."""
    resized = F.resize(Image.new('L', size, 255), side)
    # Numbers of columns and rows, from 1 on, as pixels: the output's first one that is not padding tells the place.
    places = []
    for axis in (0, 1):
        long = Image.new('I', (resized.size[axis], 1))
        long.putdata(range(1, resized.size[axis] + 1))
        line = list(F.center_crop(long, [1, out[axis]]).get_flattened_data())
        first = next(i for i, value in enumerate(line) if value)
        places.append(first - (line[first] - 1))
    return *places, *resized.size


def choose_sizes():
    """Sizes of pictures and outputs: usual ones, all small ones with a half to round, and others."""
    usual = [((w, h), out) for w, h in ((500, 375), (375, 500), (640, 427), (333, 500), (1000, 10), (3, 1000), (1920, 1080))
             for out in ((224, 224), (640, 640), (1024, 600))]
    small = [((w, h), (o, p)) for w in range(1, 13) for h in range(1, 13) for o, p in ((10, 10), (5, 9), (21, 14))]
    halves = [s for s in small if (s[0][1] * s[1][0] * 2 % s[0][0] == 0 and s[0][1] * s[1][0] % s[0][0]) or
              (s[0][0] * s[1][1] * 2 % s[0][1] == 0 and s[0][0] * s[1][1] % s[0][1])]
    draw = random.Random(1)
    others = [((draw.randint(1, 700), draw.randint(1, 700)), (draw.randint(1, 700), draw.randint(1, 700)))
              for _ in range(60)]
    return usual + halves + others


print(f"# Made by make-fits.py with Pillow {PIL.__version__} and torchvision {torchvision.__version__.split('+')[0]}.")
for size, out in choose_sizes():
    if min(round(size[1] / size[0] * out[0]), round(size[0] / size[1] * out[1])) == 0:
        continue  # Pillow refuses a side of 0
    print('place', *size, *out, *(number for center in CENTERS for number in place(size, out, center)))
for number, (size, out) in enumerate(choose_sizes()):
    if max(size) < 40 * min(size):
        side = (256, 33, 8, 17, 100)[number % 5]
        print('cut', *size, *out, side, *cut_place(size, out, side))
print('pad', *PAD)
for number, (size, out) in enumerate(PICTURES):
    picture = fixture_picture(number, *size)
    padded = (ImageOps.pad(picture, out, Image.Resampling.BILINEAR, color=PAD, centering=c) for c in CENTERS)
    digests = ('0x' + xxhash.xxh3_64_hexdigest(p.tobytes()) for p in padded)
    cut = F.center_crop(F.resize(picture, SIDES[number]), out[::-1])
    print('picture', *size, *out, *digests, SIDES[number], '0x' + xxhash.xxh3_64_hexdigest(cut.tobytes()))
