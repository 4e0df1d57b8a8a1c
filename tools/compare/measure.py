# SPDX-License-Identifier: Apache-2.0
"""Runs a command. For tools/compare/write.

Usage: measure.py time|memory COMMAND...
time: prints its wall and CPU seconds, children included, as 'wall W cpu C'.
memory: prints the largest sum of its processes' memory in MB, pages that they share counted once, as 'memory M'. To look
takes time of its own: the two are apart."""
import os
import subprocess
import sys
import time


def tree(root):
    children = {}
    for entry in filter(str.isdigit, os.listdir('/proc')):
        try:
            with open(f'/proc/{entry}/stat') as stat:
                children.setdefault(int(stat.read().rsplit(')', 1)[1].split()[1]), []).append(int(entry))
        except OSError:
            continue
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found


def proportional_bytes(process):
    try:
        with open(f'/proc/{process}/smaps_rollup') as lines:
            return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith('Pss:'))
    except OSError:
        return 0


what, command = sys.argv[1], sys.argv[2:]
started = time.monotonic()
child = subprocess.Popen(command)
peak = 0
while what == 'memory' and child.poll() is None:
    peak = max(peak, sum(map(proportional_bytes, tree(child.pid))))
    time.sleep(0.02)
status = child.wait()
wall = time.monotonic() - started
used = os.times()
if what == 'memory':
    print(f'memory {peak / 1e6:.1f}')
else:
    print(f'wall {wall:.3f} cpu {used.children_user + used.children_system:.3f}')
sys.exit(status)
