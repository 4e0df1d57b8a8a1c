/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include <dtrain/optim.h>

double dtrain_schedule_lr(const dtrain_schedule *schedule, int64_t step)
{
	if (step < 0)
		step = 0;
	if (step < schedule->warmup_steps && schedule->initial_lr > 0)
		return schedule->initial_lr +
		       (schedule->lr - schedule->initial_lr) * ((double)step / (double)schedule->warmup_steps);
	if (step < schedule->warmup_steps)
		return schedule->lr * (double)(step + 1) / (double)schedule->warmup_steps;
	if (schedule->kind == DTRAIN_SCHEDULE_CONSTANT)
		return schedule->lr;
	int64_t length = schedule->total_steps - schedule->warmup_steps;
	if (step >= schedule->total_steps || length < 1)
		return schedule->final_lr;
	double done = (double)(step - schedule->warmup_steps) / (double)length;
	double left = schedule->kind == DTRAIN_SCHEDULE_COSINE ? 0.5 * (1 + cos(M_PI * done)) : 1 - done;
	return schedule->final_lr + (schedule->lr - schedule->final_lr) * left;
}

double dtrain_lookahead_weight(int64_t every, int64_t step, int64_t total_steps)
{
	if (step % every)
		return step < total_steps ? -1 : 0;
	return 1 - pow(0.95, (double)every) * pow((double)step / (double)total_steps, 3);
}

double dtrain_average_weight(double decay, bool warm_up, int64_t update)
{
	double rising = update > 1 ? 1 - pow((double)update, -2.0 / 3) : 0;
	return 1 - (warm_up && rising < decay ? rising : decay);
}
