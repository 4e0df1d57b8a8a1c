#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes golden.bin, what torchvision and Pillow make of one picture, for ../operations.c.

usage: make-golden.py golden.bin        (needs torch, torchvision and Pillow)

The file is a list of records: a name (32 bytes, NUL padded) and 3 * 23 * 17 bytes of RGB pixels. The first is the input.
"""
import sys

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import InterpolationMode, autoaugment
from torchvision.transforms import functional as F

WIDTH, HEIGHT = 23, 17
y, x, c = np.mgrid[0:HEIGHT, 0:WIDTH, 0:3]
# A slope with noise, a flat grey corner, and a channel without the extremes.
pixels = (x * 9 + y * (5 + c) + (x * 7 + y * 13 + c * 29) % 31 + c * 10).clip(3, 255).astype(np.uint8)
pixels[:5, :5] = 90
pixels[12:, :6, 2] //= 3
tensor = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
image = Image.fromarray(pixels)
NEAREST, BILINEAR = InterpolationMode.NEAREST, InterpolationMode.BILINEAR
fill = (10, 200, 30)


def space(cls, name, bin):
    t = cls()
    magnitudes, signed = t._augmentation_space(31, (HEIGHT, WIDTH))[name] if cls is autoaugment.RandAugment \
        else t._augmentation_space(31)[name]
    value = magnitudes[bin].item() if magnitudes.ndim > 0 else 0.0
    return autoaugment._apply_op(image, name, value, NEAREST, fill=list(fill))


def padded(mode, size, left, top):
    return F.crop(F.pad(tensor, [size] * 4, padding_mode=mode), top, left, HEIGHT, WIDTH)


cases = {
    'input': tensor,
    'brightness 0.4': F.adjust_brightness(tensor, 0.4),
    'brightness 1.7': F.adjust_brightness(tensor, 1.7),
    'contrast 0.3': F.adjust_contrast(tensor, 0.3),
    'contrast 1.6': F.adjust_contrast(tensor, 1.6),
    'saturation 0.2': F.adjust_saturation(tensor, 0.2),
    'saturation 1.9': F.adjust_saturation(tensor, 1.9),
    'hue 0.3': F.adjust_hue(tensor, 0.3),
    'hue -0.45': F.adjust_hue(tensor, -0.45),
    'grayscale': F.rgb_to_grayscale(tensor, 3),
    'solarize 100': F.solarize(tensor, 100),
    'posterize 3': F.posterize(tensor, 3),
    'invert': F.invert(tensor),
    'autocontrast': F.autocontrast(tensor),
    'equalize': F.equalize(tensor),
    'sharpness 0.2': F.adjust_sharpness(tensor, 0.2),
    'sharpness 1.8': F.adjust_sharpness(tensor, 1.8),
    'blur 5 1.3': F.gaussian_blur(tensor, [5, 5], [1.3, 1.3]),
    'blur 9 4': F.gaussian_blur(tensor, [9, 9], [4.0, 4.0]),
    'flip horizontal': F.hflip(tensor),
    'flip vertical': F.vflip(tensor),
    'rotate 33 nearest': F.rotate(image, 33, NEAREST, fill=fill),
    'rotate -71.5 nearest': F.rotate(image, -71.5, NEAREST, fill=fill),
    'rotate 33 bilinear': F.rotate(image, 33, BILINEAR, fill=fill),
    'rotate 180 nearest': F.rotate(image, 180, NEAREST, fill=fill),
    'shift 3 -2 edge': padded('edge', 4, 1, 6),
    'shift 3 -2 reflect': padded('reflect', 4, 1, 6),
    'shear x 0.3': space(autoaugment.RandAugment, 'ShearX', 30),
    'shear y 0.3': space(autoaugment.RandAugment, 'ShearY', 30),
    'translate x': space(autoaugment.RandAugment, 'TranslateX', 9),
    'translate y': space(autoaugment.RandAugment, 'TranslateY', 20),
}
with open(sys.argv[1], 'wb') as out:
    for name, result in cases.items():
        if isinstance(result, Image.Image):
            result = np.asarray(result)
        else:
            result = result.permute(1, 2, 0).contiguous().numpy()
        assert result.shape == (HEIGHT, WIDTH, 3) and result.dtype == np.uint8, name
        out.write(name.encode().ljust(32, b'\0') + result.tobytes())
