#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes positions.h: a ViT's positions, resized as timm's resample_abs_pos_embed does with PyTorch.

Usage: make-positions.py | clang-format >positions.h        (any PyTorch; CPU; a second)"""
import torch
from torch.nn import functional

COLUMNS = 2


def resized(old, new):
    """The positions of a class token and old x old patches, of which element i is i * i % 31 - 15, for new x new."""
    count = (old * old + 1) * COLUMNS
    x = torch.tensor([float(i * i % 31 - 15) for i in range(count)]).reshape(1, -1, COLUMNS)
    grid = x[:, 1:].reshape(1, old, old, COLUMNS).permute(0, 3, 1, 2)
    grid = functional.interpolate(grid, size=(new, new), mode="bicubic", antialias=True)
    return torch.cat([x[:, :1], grid.permute(0, 2, 3, 1).reshape(1, -1, COLUMNS)], dim=1).flatten().tolist()


print("/* SPDX-License-Identifier: Apache-2.0\n *\n * Written by make-positions.py with PyTorch " + torch.__version__.split("+")[0] + ". */")
for old, new in ((2, 3), (4, 3)):
    print(f"static const float positions_{old}_{new}[] = {{")
    numbers = [f"{x:.9g}f" if "." in f"{x:.9g}" or "e" in f"{x:.9g}" else f"{x:.9g}.0f" for x in resized(old, new)]
    for i in range(0, len(numbers), 8):
        print("\t" + ", ".join(numbers[i:i + 8]) + ",")
    print("};")
