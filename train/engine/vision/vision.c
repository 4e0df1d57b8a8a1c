/* SPDX-License-Identifier: Apache-2.0 */
#include "vision.h"

#include "parts.h"

const engine_task vision_task = {
	.sample = "picture",
	.unit = "images",
	.class_field = VISION_LABEL,
	.figures = {{"top1", "top-1", true}, {"top5", "top-5", true}, {"loss", "loss", false}},
	.num_figures = 3,
	.find_problem = vision_find_problem,
	.read_data = vision_read_data,
	.check = vision_check,
	.open_loader = vision_open_loader,
	.build = vision_build,
	.prepare = vision_prepare,
	.find_early = vision_find_early,
	.run_batch = vision_run_batch,
	.add_batch = vision_add_batch,
};
