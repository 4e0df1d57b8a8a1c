/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_TRAIN_DEVICES_CUDA_CUDNN_CASES_H
#define TESTS_TRAIN_DEVICES_CUDA_CUDNN_CASES_H

#include "devices/cuda/cudnn/dnn_record.h"

/* Adds the examples (train/core/ops) of the ops that cuDNN could have a graph for, and their backward ops. */
void record_examples(record *out, dtrain_dtype dtype);

/* Adds the attention of GPT-2, a ViT and Llama-like models, and its backward ops; the first has all that makes a graph
 * large. Without engines in F32. */
void record_attention(record *out, dtrain_dtype dtype);

#endif
