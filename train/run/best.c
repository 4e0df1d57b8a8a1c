/* SPDX-License-Identifier: Apache-2.0 */
#include "best.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/system.h"

void run_best_note(run_position *position, const engine_metric *metric, double value)
{
	if (position->best_step && !engine_metric_is_better(metric, value, position->best_metric))
		return;
	position->best_step = position->step;
	position->best_metric = value;
}

int run_best_link(const char *dir, const run_position *position, beton_error *err)
{
	char target[32];
	char *link = bt_format("%s/best", dir), *temporary = bt_format("%s/.best", dir);
	int status = BETON_OK;
	snprintf(target, sizeof(target), "step-%012" PRId64, position->best_step);
	if (!link || !temporary)
		status = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", dir);
	else if ((unlink(temporary) != 0 && errno != ENOENT) || symlink(target, temporary) != 0)
		status = bt_fail_errno(err, errno, "%s: cannot make the link", temporary);
	else if (rename(temporary, link) != 0)
		status = bt_fail_errno(err, errno, "%s: cannot make the link", link);
	else
		status = bt_sync_parent(link, err);
	free(link);
	free(temporary);
	return status;
}

int run_best_resume(const char *dir, run_position *position, beton_error *err)
{
	struct stat facts;
	if (!position->best_step)
		return BETON_OK;
	char *path = bt_format("%s/step-%012" PRId64, dir, position->best_step);
	if (!path)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", dir);
	bool kept = stat(path, &facts) == 0;
	free(path);
	if (kept)
		return run_best_link(dir, position, err);
	position->best_step = 0;
	position->best_metric = 0;
	return BETON_OK;
}
