/* SPDX-License-Identifier: Apache-2.0
 *
 * A device that computes nothing and records the ops that a model makes on it. It is not part of the module, but of
 * dnn-ahead and of tests.
 */
#ifndef DTRAIN_CUDA_CUDNN_DNN_RECORD_H
#define DTRAIN_CUDA_CUDNN_DNN_RECORD_H

#include <dtrain/device.h>

#define RECORD_MAX 1024

typedef struct record {
	dtrain_op_desc ops[RECORD_MAX];
	int count;
} record;

/* Adds the ops of a model, trained or evaluated, with activations of a type; a CONV2D with a follower also without.
 * Convolutions of a picture that is stored as cells read these. */
int record_model(record *out, const char *model, bool training, dtrain_dtype dtype, int64_t batch, int64_t side,
		 beton_error *err);

#endif
