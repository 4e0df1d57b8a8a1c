/* SPDX-License-Identifier: Apache-2.0 */
#include "best.h"

#include <dtrain/checkpoint.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "common/system.h"

void run_best_note(run_position *position, const engine_metric *metric, double value)
{
	if (position->best_step && !engine_metric_is_better(metric, value, position->best_metric))
		return;
	position->best_step = position->step;
	position->best_metric = value;
}

int run_best_resume(const char *dir, run_position *position, beton_error *err)
{
	struct stat info;
	if (!position->best_step)
		return BETON_OK;
	char *path = bt_format("%s/step-%012" PRId64, dir, position->best_step);
	if (!path)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", dir);
	bool kept = stat(path, &info) == 0;
	free(path);
	if (kept)
		return dtrain_checkpoint_link(dir, position->best_step, RUN_BEST_LINK, err);
	position->best_step = 0;
	position->best_metric = 0;
	return BETON_OK;
}
