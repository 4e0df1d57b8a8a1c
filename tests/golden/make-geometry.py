#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints geometry.txt: where torchvision's transforms.v2 put boxes and points, to be compared with the loader's.

usage: make-geometry.py > geometry.txt    (needs torch and torchvision)

A case is a picture, its crop, the output's size, and steps. torchvision cuts boxes off after each step; what that takes
from their area is measured here. It flips the numbers of pixels, not places in them: points are moved by 0.5 around it.
"""
import math
import torch
import torchvision
from torchvision import tv_tensors
from torchvision.transforms.v2 import functional as F

BOXES = ((10, 5, 60, 45), (0, 0, 100, 80), (70, 50, 100, 80), (33.5, 20.25, 41.75, 27.5), (-20, 30, 15, 90))
POINTS = ((40, 30), (52.25, 47.5), (61, 38))
SIZE = (100, 80)
FLIP_X, FLIP_Y, SHIFT, ROTATE, SHEAR = range(5)
CASES = (
    ((0, 0, 100, 80), (64, 48), ()),
    ((12, 7, 61, 55), (64, 48), ()),
    ((12, 7, 61, 55), (64, 48), ((FLIP_X,),)),
    ((12, 7, 61, 55), (64, 48), ((FLIP_Y,), (SHIFT, -9, 5))),
    ((0, 0, 100, 80), (224, 224), ((ROTATE, 17),)),
    ((20, 10, 70, 66), (97, 31), ((ROTATE, -30), (FLIP_X,))),
    ((20, 10, 70, 66), (97, 131), ((ROTATE, 30), (ROTATE, -30))),
    ((20, 10, 70, 66), (97, 131), ((SHEAR, 0.21, 0), (SHIFT, 12, 0))),
    ((20, 10, 70, 66), (97, 131), ((SHEAR, 0, -0.3), (ROTATE, 9), (FLIP_Y,), (SHIFT, -20, 14))),
    ((20, 10, 70, 66), (97, 131), ((SHIFT, 60, 70), (SHIFT, -60, -70), (FLIP_X,))),
)


def one_step(values, step):
    kind = step[0]
    if kind == FLIP_X:
        return F.horizontal_flip(values)
    if kind == FLIP_Y:
        return F.vertical_flip(values)
    none = {'angle': 0.0, 'translate': [0, 0], 'scale': 1.0, 'shear': [0.0, 0.0]}
    if kind == SHIFT:
        none['translate'] = list(step[1:])
    elif kind == ROTATE:
        return F.rotate(values, step[1])
    else:
        none['shear'] = [math.degrees(math.atan(slope)) for slope in step[1:]]
        none['center'] = [0, 0]
    return F.affine(values, **none)


def area(box):
    return max(box[2] - box[0], 0) * max(box[3] - box[1], 0)


def boxes_of(crop, size, steps):
    boxes = tv_tensors.BoundingBoxes(torch.tensor(BOXES, dtype=torch.float64), format='XYXY', canvas_size=SIZE[::-1],
                                     clamping_mode=None)
    kept = [1.0] * len(BOXES)
    moved = F.resized_crop(boxes, crop[1], crop[0], crop[3], crop[2], size[::-1])
    for step in (*steps, None):
        cut = F.clamp_bounding_boxes(moved, clamping_mode='hard')
        for i in range(len(BOXES)):
            kept[i] *= float(area(cut[i]) / area(moved[i])) if area(moved[i]) > 0 else 0
        boxes = tv_tensors.wrap(cut, like=moved)
        moved = one_step(boxes, step) if step else boxes
    return boxes.tolist(), kept


def points_of(crop, size, steps):
    points = torch.tensor(POINTS, dtype=torch.float64)
    points = tv_tensors.KeyPoints(points, canvas_size=SIZE[::-1])
    points = F.resized_crop(points, crop[1], crop[0], crop[3], crop[2], size[::-1])
    inside = [1] * len(POINTS)
    for step in (None, *steps):
        if step:
            half = 0.5 if step[0] in (FLIP_X, FLIP_Y) else 0
            points = tv_tensors.wrap(one_step(tv_tensors.wrap(points - half, like=points), step) + half, like=points)
        for i, (x, y) in enumerate(points.tolist()):
            inside[i] &= 0 <= x <= size[0] and 0 <= y <= size[1]
    return points.tolist(), inside


def row(name, *lists):
    print(name, *(f'{value:.12g}' for values in lists for value in values))


print(f"# Made by make-geometry.py with torchvision {torchvision.__version__.split('+')[0]}.")
row('boxes', *BOXES)
row('points', *POINTS)
for crop, size, steps in CASES:
    boxes, kept = boxes_of(crop, size, steps)
    points, inside = points_of(crop, size, steps)
    rows = [[0] * 4 if share == 0 else box for box, share in zip(boxes, kept)]
    row('case', crop, size, [len(steps)], *((*step, 0, 0)[:3] for step in steps), *rows, kept, *points, inside)
