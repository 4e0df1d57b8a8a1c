#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make-rasters.py FOLDER: picture files of many channels and bits, and FOLDER/expected: a line for each with its height, width,
channels, bytes of a sample, and the SHA-256 of its samples, little-endian; or 'refused' and a part of the message. What OpenCV
and tifffile read is compared with that. Needs NumPy, OpenCV, tifffile."""
import hashlib
import pathlib
import struct
import sys
import zlib

import cv2
import numpy
import tifffile

HEIGHT, WIDTH = 11, 14
folder = pathlib.Path(sys.argv[1])
folder.mkdir(exist_ok=True)
lines = []


def picture(channels, dtype, height=HEIGHT, width=WIDTH):
    state, values = 11 * channels + height, []
    for _ in range(height * width * channels):
        state = (state * 1664525 + 1013904223) % 2**32
        values.append(state >> 16)
    shape = (height, width, channels) if channels > 1 else (height, width)
    return (numpy.array(values, numpy.uint16) >> (8 if dtype == numpy.uint8 else 0)).astype(dtype).reshape(shape)


def expect(name, pixels):
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    little = numpy.ascontiguousarray(pixels.astype(pixels.dtype.newbyteorder('<')))
    digest = hashlib.sha256(little.tobytes()).hexdigest()
    lines.append('%s %d %d %d %d %s' % (name, *pixels.shape[:2], channels, pixels.itemsize, digest))


def refuse(name, message):
    lines.append('%s refused %s' % (name, message))


def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))


def png(name, pixels, colour, depth=None, extra=b''):
    """colour: PNG's number. Rows without a filter."""
    depth = depth or 8 * pixels.itemsize
    rows = [numpy.packbits(row).tobytes() if depth == 1 else row.astype('>u%d' % pixels.itemsize).tobytes() for row in pixels]
    head = struct.pack('>IIBBBBB', pixels.shape[1], pixels.shape[0], depth, colour, 0, 0, 0)
    data = zlib.compress(b''.join(b'\0' + row for row in rows))
    (folder / name).write_bytes(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', head) + extra + chunk(b'IDAT', data) + chunk(b'IEND', b''))


def check_opencv(name, pixels):
    got = cv2.imread(str(folder / name), cv2.IMREAD_UNCHANGED)
    if got.ndim == 3:
        got = got[:, :, [2, 1, 0, 3][:got.shape[2]]]
    assert (got == pixels).all(), name


for dtype, bits in (numpy.uint8, 8), (numpy.uint16, 16):
    for channels, colour in (1, 0), (2, 4), (3, 2), (4, 6):
        name = 'png-%d-%d.png' % (channels, bits)
        pixels = picture(channels, dtype)
        png(name, pixels, colour)
        if channels != 2:
            check_opencv(name, pixels)
        expect(name, pixels)
bits = picture(1, numpy.uint8) >> 7
png('png-bits.png', bits, 0, 1)
expect('png-bits.png', bits * 255)
palette, indices = picture(3, numpy.uint8, 1, 16)[0], picture(1, numpy.uint8) & 15
png('png-palette.png', indices, 3, 8, chunk(b'PLTE', palette.tobytes()))
expect('png-palette.png', palette[indices])
alpha = numpy.arange(16, dtype=numpy.uint8) * 16
png('png-clear.png', indices, 3, 8, chunk(b'PLTE', palette.tobytes()) + chunk(b'tRNS', alpha.tobytes()))
expect('png-clear.png', numpy.concatenate([palette[indices], alpha[indices][..., None]], 2))


def tiff(name, pixels, planes=False, **options):
    data = numpy.ascontiguousarray(pixels.transpose(2, 0, 1)) if planes else pixels
    options.setdefault('photometric', 'minisblack')
    tifffile.imwrite(folder / name, data, metadata=None, planarconfig='separate' if planes else 'contig' if pixels.ndim == 3 else None,
                     **options)
    got = tifffile.imread(folder / name)
    assert (got == data).all(), name


for name, channels, dtype, options in [
        ('tiff-1-8.tif', 1, numpy.uint8, {}),
        ('tiff-1-16.tif', 1, numpy.uint16, {'rowsperstrip': 3}),
        ('tiff-rgb-16.tif', 3, numpy.uint16, {'photometric': 'rgb'}),
        ('tiff-5-8.tif', 5, numpy.uint8, {}),
        ('tiff-7-16-planes.tif', 7, numpy.uint16, {'planes': True, 'rowsperstrip': 4}),
        ('tiff-4-16-tiles.tif', 4, numpy.uint16, {'tile': (16, 16)}),
        ('tiff-3-16-tiled-planes.tif', 3, numpy.uint16, {'tile': (16, 16), 'planes': True}),
        ('tiff-64-8.tif', 64, numpy.uint8, {}),
        ('tiff-big-endian.tif', 2, numpy.uint16, {'byteorder': '>'}),
        ('tiff-bigtiff.tif', 2, numpy.uint16, {'bigtiff': True})]:
    pixels = picture(channels, dtype, 19, 17) if 'tile' in options else picture(channels, dtype)
    tiff(name, pixels, **options)
    expect(name, pixels)
tifffile.imwrite(folder / 'tiff-signed.tif', picture(1, numpy.uint16).astype(numpy.int16), metadata=None)
refuse('tiff-signed.tif', 'a TIFF of samples with a sign or a point')
tifffile.imwrite(folder / 'tiff-float.tif', picture(1, numpy.uint16).astype(numpy.float32), metadata=None)
refuse('tiff-float.tif', 'a TIFF of samples that have neither 8 nor 16 bits')
tiff('tiff-65.tif', picture(65, numpy.uint8, 2, 3))
refuse('tiff-65.tif', '65 channels; a raster has 1 to 64')
for name, pixels in [('npy-1-8.npy', picture(1, numpy.uint8)), ('npy-3-16.npy', picture(3, numpy.uint16)),
                     ('npy-9-big.npy', picture(9, numpy.uint16).astype('>u2'))]:
    numpy.save(folder / name, pixels)
    expect(name, pixels)
numpy.save(folder / 'npy-float.npy', numpy.zeros((3, 4), numpy.float32))
refuse('npy-float.npy', "an array of type '<f4' with 2 dimensions is not a raster")
numpy.save(folder / 'npy-4d.npy', numpy.zeros((2, 3, 4, 5), numpy.uint8))
refuse('npy-4d.npy', "an array of type '|u1' with 4 dimensions is not a raster")
(folder / 'short.png').write_bytes((folder / 'png-3-16.png').read_bytes()[:150])
refuse('short.png', 'damaged PNG')
(folder / 'short.tif').write_bytes((folder / 'tiff-1-16.tif').read_bytes()[:-200])
refuse('short.tif', 'its TIFF cannot be decoded')
(folder / 'text.png').write_bytes(b'this is no picture')
refuse('text.png', 'not a PNG, TIFF or .npy file')
(folder / 'expected').write_text('\n'.join(lines) + '\n')
