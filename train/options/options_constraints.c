/* SPDX-License-Identifier: Apache-2.0
 *
 * The constraints between several options. What one option alone needs is in its row. */
#include "options_constraints.h"

#define ALWAYS LIST()

const option_constraint run_constraints[] = {
	/* Required options. */
	CONSTRAINT(EXCLUDES, LIST(SET("resume")), LIST(SET("evaluate")), .early = true),
	CONSTRAINT(NEEDS, LIST(SET("evaluate")), LIST(SET("val"))),
	CONSTRAINT(ONE, LIST(SET("evaluate")), LIST(SET("init"), SET("checkpoint"))),
	CONSTRAINT(ONE, LIST(SET("evaluate")), LIST(SET("model")),
		   .reason = "the metadata of the weights do not name it"),
	CONSTRAINT(ONE, LIST(SET("evaluate")), LIST(SET("classes")), .unless = LIST(IS("task", "lm")),
		   .reason = "the metadata of the weights do not have it"),
	CONSTRAINT(ONE, ALWAYS, LIST(SET("data")), .unless = LIST(SET("evaluate"))),
	CONSTRAINT(ONE, ALWAYS, LIST(SET("model")), .unless = LIST(SET("evaluate"))),
	CONSTRAINT(ONE, ALWAYS, LIST(SET("epochs"), SET("steps")),
		   .unless = LIST(SET("evaluate"), SET("plan"), SET("overlap"))),

	/* Several options for one thing. */
	CONSTRAINT(AT_MOST_ONE, LIST(SET("plan"), SET("overlap")), LIST(SET("epochs"), SET("steps")),
		   .unless = LIST(SET("evaluate"))),
	CONSTRAINT(AT_MOST_ONE, ALWAYS, LIST(SET("warmup-epochs"), SET("warmup-steps"), SET("warmup-share"))),
	CONSTRAINT(AT_MOST_ONE, ALWAYS, LIST(GIVEN("batch-size"), GIVEN("global-batch"))),
	CONSTRAINT(AT_MOST_ONE, ALWAYS, LIST(SET("unit-mb"), SET("unit-pattern"))),
	CONSTRAINT(AT_MOST_ONE, ALWAYS, LIST(GIVEN("gpu"), GIVEN("device")),
		   .reason = "--gpu describes a device in place of one that is here"),

	/* Values that need something. */
	CONSTRAINT(NEEDS, LIST(IS("schedule", "step")), LIST(SET("milestones"))),
	CONSTRAINT(NEEDS, LIST(IS("order", "weighted weighted-unique")), LIST(SET("weights"))),
	CONSTRAINT(NEEDS, LIST(IS("order", "list")), LIST(SET("indices"))),
	CONSTRAINT(NEEDS, LIST(IS("order", "balanced")), LIST(IS("task", "vision")),
		   .reason = "samples of other tasks have no classes"),
	CONSTRAINT(NEEDS, LIST(IS("flip-mode", "alternate")), LIST(ABOVE("flip", 0))),
	CONSTRAINT(NEEDS, LIST(IS("tta", "flip-shift")), LIST(ABOVE("image-size", 1))),
	CONSTRAINT(NEEDS, LIST(IS("buffers", "own")), LIST(IS("strategy", "ddp local")),
		   .reason = "with shards each rank writes a part of a checkpoint"),

	/* Ranges. */
	CONSTRAINT(AT_MOST, LIST(SET("crop-scale.MIN")), LIST(SET("crop-scale.MAX"))),
	CONSTRAINT(AT_MOST, LIST(SET("crop-ratio.MIN")), LIST(SET("crop-ratio.MAX"))),
	CONSTRAINT(AT_MOST, LIST(SET("color-jitter.H")), LIST(LITERAL(0.5))),
	CONSTRAINT(BELOW, LIST(SET("translate")), LIST(SET("image-size"))),
	CONSTRAINT(AT_MOST, LIST(SET("cutout")), LIST(SET("image-size"))),
	CONSTRAINT(AT_MOST, LIST(SET("window-stride")), LIST(SET("context-length"))),
	CONSTRAINT(POWER_OF_TWO, LIST(SET("reproducible")), ALWAYS),

	/* Reading. */
	CONSTRAINT(EXCLUDES, LIST(SET("indices")), LIST(SET("data-weights"))),
	CONSTRAINT(EXCLUDES, LIST(IS("engine", "mmap")), LIST(SET("direct")), .reason = "it maps the page cache"),

	/* Losses. */
	CONSTRAINT(EXCLUDES, LIST(SET("mixup"), SET("cutmix")), LIST(SET("ignore-label")), .reason = "they mix labels"),
	CONSTRAINT(EXCLUDES, LIST(IS("loss", "mse")), LIST(SET("label-smoothing")), .reason = "it has no classes"),
	CONSTRAINT(EXCLUDES, LIST(IS("loss", "mse")), LIST(SET("tta")),
		   .reason = "views are added as logits, and it has none"),

	/* Measured transfers: of units whose sizes are free. */
	CONSTRAINT(EXCLUDES, LIST(SET("tune-units")), LIST(SET("overlap"))),
	CONSTRAINT(EXCLUDES, LIST(SET("plan"), SET("evaluate"), SET("compress"), SET("reproducible")),
		   LIST(SET("overlap"), SET("tune-units"))),
	CONSTRAINT(EXCLUDES, LIST(SET("unit-pattern"), GIVEN("unit-mb"), GIVEN("bucket-mb")), LIST(SET("tune-units")),
		   .reason = "--tune-units chooses the units itself"),

	/* Unsynchronized ranks. */
	CONSTRAINT(EXCLUDES, LIST(IS("strategy", STRATEGY_UNSYNCHRONIZED)), LIST(SET("ema"), SET("lookahead"))),
	CONSTRAINT(EXCLUDES, LIST(IS("strategy", STRATEGY_UNSYNCHRONIZED)), LIST(IS("offload", OFFLOAD_OPTIMIZER)),
		   .reason = "the ranks exchange the parameters on the device"),
	CONSTRAINT(EXCLUDES, LIST(IS("strategy", STRATEGY_UNSYNCHRONIZED)),
		   LIST(SET("compress"), SET("sync-batch-norm")),
		   .reason = "the ranks take their steps unsynchronized"),
	CONSTRAINT(EXCLUDES, LIST(IS("strategy", "async")), LIST(IS("precision", "fp16")),
		   .reason = "the workers have no common loss scale"),

	/* Memory of the host. */
	CONSTRAINT(EXCLUDES, LIST(IS("offload", OFFLOAD_OPTIMIZER)), LIST(SET("ema"), SET("lookahead")),
		   .reason = "they work on the device"),

	/* The same bits on any number of ranks. */
	CONSTRAINT(EXCLUDES, LIST(SET("reproducible")), LIST(GIVEN("accumulate")),
		   .reason = "each rank adds up parts / ranks batches in a step"),
	CONSTRAINT(EXCLUDES, LIST(SET("reproducible")), LIST(SET("bucket-mb"), SET("unit-mb"), SET("unit-pattern")),
		   .reason = "norms are added up unit by unit, and the units are the blocks of the model with every "
			     "strategy"),
	CONSTRAINT(EXCLUDES, LIST(SET("reproducible")),
		   LIST(IS("strategy", STRATEGY_UNSYNCHRONIZED), SET("compress"), SET("sync-batch-norm"),
			IS("buffers", "broadcast own")),
		   .reason = "the result depends on the number of ranks"),
	CONSTRAINT(EXCLUDES, LIST(SET("reproducible")), LIST(IS("offload", OFFLOAD_OPTIMIZER)),
		   .reason = "gradients are complete only after backward, on the device"),
	CONSTRAINT(EXCLUDES, LIST(SET("reproducible")), LIST(IS("order", "torch-distributed")),
		   .reason = "the order depends on the number of ranks"),

	/* Ranks that compute one model together. */
	CONSTRAINT(NEEDS, LIST(ABOVE("mesh.pipeline", 1), ABOVE("mesh.context", 1), ABOVE("mesh.tensor", 1)),
		   LIST(IS("strategy", STRATEGY_TOGETHER))),
	CONSTRAINT(EXCLUDES, LIST(ABOVE("mesh.pipeline", 1), ABOVE("mesh.context", 1), ABOVE("mesh.tensor", 1)),
		   LIST(SET("reproducible")), .reason = "sums have another order"),
	CONSTRAINT(EXCLUDES, LIST(ABOVE("mesh.pipeline", 1), ABOVE("mesh.tensor", 1)),
		   LIST(IS("offload", OFFLOAD_OPTIMIZER)), .reason = "units in host memory are whole"),
	CONSTRAINT(EXCLUDES, LIST(ABOVE("mesh.pipeline", 1), ABOVE("mesh.tensor", 1)), LIST(SET("compress")),
		   .reason = "it is for whole gradients"),
	CONSTRAINT(EXCLUDES, LIST(ABOVE("mesh.pipeline", 1), ABOVE("mesh.context", 1), ABOVE("mesh.tensor", 1)),
		   LIST(SET("overlap"), SET("tune-units")), .reason = "transfers within the model are not measured"),

	CONSTRAINT(EXCLUDES, LIST(SET("pipeline-timeline")), LIST(SET("evaluate")),
		   .reason = "it is of a step of training"),

	/* The number of ranks. */
	CONSTRAINT(NEEDS, LIST(IS("strategy", "async")), LIST(AT_LEAST("world-size", 2)),
		   .unless = LIST(SET("evaluate")), .reason = "a server and its workers"),
	CONSTRAINT(NEEDS, LIST(SET("overlap"), SET("tune-units")), LIST(AT_LEAST("world-size", 2)),
		   .reason = "transfers between ranks are measured"),
	CONSTRAINT(DIVIDES, LIST(USED("shard")), LIST(SET("world-size")),
		   .unless = LIST(IS("strategy", "ddp " STRATEGY_UNSYNCHRONIZED), SET("evaluate"))),
	CONSTRAINT(DIVIDES, LIST(SET("mesh.tensor")), LIST(SET("world-size"))),
	CONSTRAINT(DIVIDES, LIST(SET("mesh.pipeline")), LIST(SET("world-size"))),
	CONSTRAINT(DIVIDES, LIST(SET("mesh.context")), LIST(SET("world-size"))),
	{.relation = OPTION_NO_MORE},
};
