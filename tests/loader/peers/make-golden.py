# SPDX-License-Identifier: Apache-2.0
"""make-golden.py LIBRARY DUMP CROP WIDTH HEIGHT: a part of golden.bin, from what load-pixels wrote to DUMP. For make-golden.

LIBRARY pictures: a line 'pictures COUNT', and for each picture its mode (0 JPEG, 1 raw), width, height and bytes as stored
(uint32, little-endian), and these bytes. Else a line 'LIBRARY CROP WIDTH HEIGHT', and for each picture the crop's x, y, width
and height (uint32), and the library's RGB pixels."""
import struct
import sys

from peer_pixels import read

library, dump, crop, width, height = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
pictures = list(read(dump, width, height))
out = sys.stdout.buffer
if library == 'pictures':
    out.write(b'pictures %d\n' % len(pictures))
    for p in pictures:
        out.write(struct.pack('<4I', p.raw, p.width, p.height, len(p.stored)) + p.stored.tobytes())
    sys.exit()
if library == 'ffcv':
    from ffcv_pixels import from_functions
    pixels = from_functions(pictures, width, height)
else:
    from torch_pixels import resized
    kind = {'pillow': 'Pillow', 'tensors': 'tensors', 'tensors-v2': 'tensors, v2'}[library]
    pixels = (resized(kind, p, width, height) for p in pictures)
out.write(b'%s %s %d %d\n' % (library.encode(), crop.encode(), width, height))
for p, peer in zip(pictures, pixels):
    out.write(struct.pack('<4I', *p.box) + peer.tobytes())
