#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints fits.h: where Pillow's ImageOps.pad puts pictures, and the pixels that it makes, to be compared with the loader's.

usage: make-fits.py > fits.h    (needs Pillow, NumPy and xxhash)
"""
import random

import numpy
import PIL
import xxhash
from PIL import Image, ImageOps

CENTERS = ((0.5, 0.5), (0, 0))  # BETON_FIT_PAD_CENTER, BETON_FIT_PAD_CORNER
PAD = (7, 114, 250)
PICTURES = (((64, 48), (32, 32)), ((48, 64), (33, 20)), ((31, 90), (64, 64)), ((90, 31), (17, 64)), ((20, 15), (51, 61)),
            ((40, 40), (24, 24)), ((5, 77), (40, 9)), ((80, 60), (40, 31)))


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


def braces(values):
    return '{' + ', '.join(str(v) for v in values) + '}'


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


print(f'''/* SPDX-License-Identifier: Apache-2.0
 *
 * Made by make-fits.py with Pillow {PIL.__version__}. */
/* clang-format off */
static const golden_place golden_places[] = {{''')
for size, out in choose_sizes():
    if min(round(size[1] / size[0] * out[0]), round(size[0] / size[1] * out[1])) == 0:
        continue  # Pillow refuses a side of 0
    print(f'\t{{{braces(size)}, {braces(out)}, {{{", ".join(braces(place(size, out, c)) for c in CENTERS)}}}}},')
print(f'''}};
static const uint16_t golden_pad[3] = {braces(PAD)};
static const golden_picture golden_pictures[] = {{''')
for number, (size, out) in enumerate(PICTURES):
    picture = fixture_picture(number, *size)
    padded = (ImageOps.pad(picture, out, Image.Resampling.BILINEAR, color=PAD, centering=c) for c in CENTERS)
    digests = ('0x' + xxhash.xxh3_64_hexdigest(p.tobytes()) for p in padded)
    print(f'\t{{{braces(size)}, {braces(out)}, {braces(digests)}}},')
print('};\n/* clang-format on */')
