/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_CUDA_DNN_CASES_H
#define TESTS_CUDA_DNN_CASES_H

#include "cuda/dnn_record.h"

/* Adds the ops of a layer of tests/train/op_case.h that cuDNN could have a graph for. */
struct op_case;
void record_case(record *out, const struct op_case *layer, dtrain_dtype dtype);

#endif
