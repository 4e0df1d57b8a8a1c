#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/pipeline/*.csv: schedules of torch.distributed.pipelining, as its own classes write them.

Needs PyTorch 2.15. No process group is opened: a schedule asks its stages for numbers alone.
"""
import os
import sys

from torch.distributed.pipelining import schedules


class Stage:
    """What a schedule's constructor asks of a stage."""

    def __init__(self, rank, ranks, index, stages):
        self.group_rank, self.group_size = rank, ranks
        self.stage_index, self.num_stages = index, stages
        self.is_first, self.is_last = index == 0, index == stages - 1
        self.has_backward = True
        self.submod = None
        self.device = None
        self.stage_index_to_group_rank = {}


def make(name, ranks, chunks, micro_batches):
    of = getattr(schedules, name)
    stages = [Stage(0, ranks, chunk * ranks, chunks * ranks) for chunk in range(chunks)]
    if name in ("ScheduleZBVZeroBubble", "ScheduleDualPipeV"):
        stages = [Stage(0, ranks, 0, 2 * ranks), Stage(0, ranks, 2 * ranks - 1, 2 * ranks)]
    return of(stages, micro_batches, loss_fn=lambda *_: None)


def main():
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pipeline")
    for file, name, ranks, chunks, micro_batches, transfers in (
        ("interleaved-4-2-8", "ScheduleInterleaved1F1B", 4, 2, 8, True),
        ("zb1p-4-2-8", "ScheduleInterleavedZeroBubble", 4, 2, 8, False),
        ("zbv-4-2-8", "ScheduleZBVZeroBubble", 4, 2, 8, True),
        ("looped-3-2-4", "ScheduleLoopedBFS", 3, 2, 4, False),
        ("dual-3-2-6", "ScheduleDualPipeV", 3, 2, 6, True),
    ):
        schedule = make(name, ranks, chunks, micro_batches)
        schedule._dump_csv(os.path.join(folder, file + ".csv"), "compute_only")
        if transfers:
            schedule._dump_csv(os.path.join(folder, file + "-comms.csv"), "compute_comms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
