/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include <dtrain/optim.h>

static double stepped(const dtrain_schedule *schedule, int64_t step)
{
	double lr = schedule->lr;
	for (int32_t i = 0; i < schedule->num_milestones; i++)
		lr *= step >= schedule->milestones[i] ? schedule->factor : 1;
	return lr;
}

/* The part of the way from final_lr to lr that is left; begin: the first step after the warm-up. */
static double left_of(const dtrain_schedule *schedule, int64_t begin, int64_t step)
{
	if (schedule->kind == DTRAIN_SCHEDULE_WSD && schedule->total_steps - schedule->decay_steps > begin)
		begin = schedule->total_steps - schedule->decay_steps;
	if (step < begin)
		return 1;
	double done = (double)(step - begin) / (double)(schedule->total_steps - begin);
	if (schedule->kind == DTRAIN_SCHEDULE_COSINE)
		return 0.5 * (1 + cos(M_PI * done));
	return schedule->kind == DTRAIN_SCHEDULE_POLYNOMIAL ? pow(1 - done, schedule->power) : 1 - done;
}

double dtrain_schedule_lr(const dtrain_schedule *schedule, int64_t step)
{
	if (!schedule)
		return 0;
	if (step < 0)
		step = 0;
	if (step < schedule->warmup_steps && schedule->initial_lr > 0)
		return schedule->initial_lr +
		       (schedule->lr - schedule->initial_lr) * ((double)step / (double)schedule->warmup_steps);
	if (step < schedule->warmup_steps)
		return schedule->lr * (double)(step + 1) / (double)schedule->warmup_steps;
	if (schedule->kind == DTRAIN_SCHEDULE_CONSTANT)
		return schedule->lr;
	if (schedule->kind == DTRAIN_SCHEDULE_STEP)
		return stepped(schedule, step);
	if (step >= schedule->total_steps)
		return schedule->final_lr;
	double left = left_of(schedule, schedule->warmup_steps, step);
	return schedule->final_lr + (schedule->lr - schedule->final_lr) * left;
}

double dtrain_lookahead_weight(int64_t every, int64_t step, int64_t total_steps)
{
	if (every < 1 || total_steps < 1)
		return -1;
	if (step % every)
		return step < total_steps ? -1 : 0;
	return 1 - pow(0.95, (double)every) * pow((double)step / (double)total_steps, 3);
}

double dtrain_average_weight(double decay, bool warm_up, int64_t update)
{
	double rising = update > 1 ? 1 - pow((double)update, -2.0 / 3) : 0;
	return 1 - (warm_up && rising < decay ? rising : decay);
}
