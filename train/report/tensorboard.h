/* SPDX-License-Identifier: Apache-2.0
 *
 * Records of the log as scalars for TensorBoard: an event file, to which each record is added as it is made. */
#ifndef REPORT_TENSORBOARD_H
#define REPORT_TENSORBOARD_H

#include <jansson.h>

#include <beton/error.h>

typedef struct run_tensorboard run_tensorboard;

/* Creates the folder if it is missing, and checks that a file can be created there. Errors: as open. */
int run_tensorboard_check(const char *folder, beton_error *err);

/* Creates a new event file in folder, which is created if it is missing. Errors: UNSUPPORTED (built without the
 * libraries), ACCESS, NO_SPACE, IO, NO_MEMORY. */
int run_tensorboard_open(const char *folder, run_tensorboard **out, beton_error *err);

/* Adds the numbers of a step, an evaluation or an epoch: "loss" of a step becomes "train/loss", "train_top1"
 * "train/top1", "val_loss" of an evaluation "val/loss", "seconds" of an epoch "epoch/seconds". Other records are not
 * for TensorBoard. Errors: NO_SPACE, IO, NO_MEMORY, which name the file. */
int run_tensorboard_add(run_tensorboard *self, const json_t *record, beton_error *err);

/* NULL allowed. Errors: NO_SPACE, IO; the file is closed in any case. */
int run_tensorboard_close(run_tensorboard **self, beton_error *err);

#endif
