#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pixels of Pillow's libjpeg-turbo beside those of the installed one, for the JPEGs and pixels that
tests/loader/test-loader-kinds COUNT FIRST FOLDER wrote.

Usage: jpegs.py FOLDER. Partial JPEGs are progressive ones whose scans do not send all coefficients."""
import pathlib
import sys

import PIL
from PIL import Image, features


def decode(path):
    try:
        with Image.open(path) as image:
            return image.convert('RGB').tobytes()
    except OSError:
        return None


def main():
    folder = pathlib.Path(sys.argv[1])
    print(f'Pillow {PIL.__version__}, libjpeg-turbo {features.version("libjpeg_turbo")}')
    for name, ending in ('partial JPEGs', '.partial'), ('other JPEGs', '.rgb'):
        count = refused = differ = most = 0
        for ours in sorted(folder.glob('*' + ending)):
            expected, got = ours.read_bytes(), decode(ours.with_suffix('.jpg'))
            count += 1
            refused += got is None
            if got is not None and got != expected:
                differ += 1
                most = max(most, max(abs(a - b) for a, b in zip(got, expected)))
        print(f'{name}: {count}, {refused} refused, {differ} differ, by up to {most}')


main()
