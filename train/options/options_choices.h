/* SPDX-License-Identifier: Apache-2.0
 *
 * The possible values of options, each list in the order of its enum. For options_table.c alone. */
#ifndef OPTIONS_OPTIONS_CHOICES_H
#define OPTIONS_OPTIONS_CHOICES_H

#include <dtrain/optimizer.h>
#include <dtrain/sync.h>

#include "options.h"

static const char *const tasks[] = {
	[RUN_TASK_VISION] = "vision",
	[RUN_TASK_LM] = "lm",
	NULL,
};
static const char *const schedules[] = {
	[DTRAIN_SCHEDULE_CONSTANT] = "constant",
	[DTRAIN_SCHEDULE_LINEAR] = "linear",
	[DTRAIN_SCHEDULE_COSINE] = "cosine",
	[DTRAIN_SCHEDULE_WSD] = "wsd",
	[DTRAIN_SCHEDULE_POLYNOMIAL] = "polynomial",
	[DTRAIN_SCHEDULE_STEP] = "step",
	NULL,
};
static const char *const pipeline_schedules[] = {"1f1b", "gpipe", "interleaved", "naive", "zb1p", "zbv", NULL};
static const char *const lr_scales[] = {
	[RUN_LR_SCALE_NONE] = "none",
	[RUN_LR_SCALE_LINEAR] = "linear",
	[RUN_LR_SCALE_SQRT] = "sqrt",
	NULL,
};
static const char *const precisions[] = {
	[ENGINE_PRECISION_F32] = "f32",
	[ENGINE_PRECISION_TF32] = "tf32",
	[ENGINE_PRECISION_BF16] = "bf16",
	[ENGINE_PRECISION_FP16] = "fp16",
	NULL,
};
static const char *const strategies[] = {
	[RUN_STRATEGY_DDP] = "ddp",     [RUN_STRATEGY_ZERO1] = "zero1", [RUN_STRATEGY_ZERO2] = "zero2",
	[RUN_STRATEGY_ZERO3] = "zero3", [RUN_STRATEGY_FSDP] = "fsdp",   [RUN_STRATEGY_HSDP] = "hsdp",
	[RUN_STRATEGY_LOCAL] = "local", [RUN_STRATEGY_ASYNC] = "async", NULL,
};
static const char *const plans[] = {
	[RUN_PLAN_NO] = "no",
	[RUN_PLAN_SHORT] = "yes",
	[RUN_PLAN_FULL] = "full",
	NULL,
};
static const char *const buffers[] = {
	[DTRAIN_BUFFERS_AVERAGE] = "average",
	[DTRAIN_BUFFERS_BROADCAST] = "broadcast",
	[DTRAIN_BUFFERS_OWN] = "own",
	NULL,
};
static const char *const compressions[] = {"none", "f16", "bf16", "int8", "topk", "powersgd", NULL};
static const char *const orders[] = {
	[RUN_ORDER_SEQUENTIAL] = "sequential",
	[RUN_ORDER_RANDOM] = "random",
	[RUN_ORDER_QUASI_RANDOM] = "quasi-random",
	[RUN_ORDER_WEIGHTED] = "weighted",
	[RUN_ORDER_WEIGHTED_UNIQUE] = "weighted-unique",
	[RUN_ORDER_BALANCED] = "balanced",
	[RUN_ORDER_LIST] = "list",
	[RUN_ORDER_FFCV_RANDOM] = "ffcv-random",
	[RUN_ORDER_TORCH_DISTRIBUTED] = "torch-distributed",
	[RUN_ORDER_UNIFORM] = "uniform",
	NULL,
};
static const char *const tunes[] = {[RUN_TUNE_LATER] = "later", [RUN_TUNE_NOW] = "now", NULL};
static const char *const engines[] = {
	[BETON_ENGINE_AUTO] = "auto",
	[BETON_ENGINE_MMAP] = "mmap",
	[BETON_ENGINE_THREADS] = "threads",
	[BETON_ENGINE_URING] = "uring",
	NULL,
};
static const char *const bad_samples[] = {
	[RUN_BAD_FAIL] = "fail",
	[RUN_BAD_SKIP] = "skip",
	NULL,
};
static const char *const crops[] = {
	[BETON_CROP_NONE] = "none",
	[BETON_CROP_RANDOM] = "random",
	[BETON_CROP_CENTER] = "center",
	NULL,
};
static const char *const flip_modes[] = {
	[BETON_FLIP_RANDOM] = "random",
	[BETON_FLIP_ALTERNATE] = "alternate",
	NULL,
};
static const char *const fills[] = {
	[VISION_FILL_MEAN] = "mean",
	[VISION_FILL_REFLECT] = "reflect",
	NULL,
};
static const char *const auto_augments[] = {
	[VISION_AUTO_NONE] = "none",
	[VISION_AUTO_RAND] = "rand-augment",
	[VISION_AUTO_TRIVIAL] = "trivial-augment",
	NULL,
};
static const char *const erases[] = {
	[VISION_ERASE_MEAN] = "mean",
	[VISION_ERASE_NOISE] = "noise",
	NULL,
};
static const char *const ttas[] = {
	[VISION_TTA_NONE] = "none",
	[VISION_TTA_FLIP] = "flip",
	[VISION_TTA_FLIP_SHIFT] = "flip-shift",
	NULL,
};
static const char *const losses[] = {
	[VISION_LOSS_CROSS_ENTROPY] = "cross-entropy",
	[VISION_LOSS_BCE] = "bce",
	[VISION_LOSS_MSE] = "mse",
	NULL,
};
static const char *const norms[] = {
	[DTRAIN_NORM_2] = "2",
	[DTRAIN_NORM_1] = "1",
	[DTRAIN_NORM_MAX] = "inf",
	NULL,
};
static const char *const flags[] = {"no", "yes", NULL};
static const char *const resumes[] = {
	[RUN_RESUME_NO] = "no",
	[RUN_RESUME_YES] = "yes",
	[RUN_RESUME_AUTO] = "auto",
	NULL,
};

static const char *device_name(int index)
{
	static const char *const names[] = {"auto", "cuda", "cpu", "ref"};
	return index < (int)(sizeof(names) / sizeof(names[0])) ? names[index] : NULL;
}

static const char *optimizer_name(int index)
{
	const dtrain_optimizer_kind *kind = dtrain_optimizer_kind_at(index);
	return kind ? kind->name : NULL;
}

#endif
