#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes positions.txt: a ViT's positions, resized as timm's resample_abs_pos_embed does with PyTorch.

Usage: make-positions.py >positions.txt        (any PyTorch; CPU; a second)"""
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


print("# Made by make-positions.py with PyTorch " + torch.__version__.split("+")[0] + ".")
for old, new in ((2, 3), (4, 3)):
    print(f"{old}_{new}", *(f"{x:.9g}" for x in resized(old, new)))
