/* SPDX-License-Identifier: Apache-2.0 */
#include "gate.h"

#include "common/system.h"

/* While the thread plans the next measurement, the GPU is kept for it for so long: a step that was launched in between
 * would make it wait for the whole step. */
static const uint64_t LINGER_NS = 300000;

void cuda_gate_init(cuda_gate *gate)
{
	pthread_condattr_t clock;
	*gate = (cuda_gate){.open = false};
	pthread_mutex_init(&gate->lock, NULL);
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(&gate->changed, &clock);
	pthread_condattr_destroy(&clock);
}

void cuda_gate_destroy(cuda_gate *gate)
{
	pthread_cond_destroy(&gate->changed);
	pthread_mutex_destroy(&gate->lock);
}

static void wait_until(cuda_gate *gate, uint64_t ns)
{
	struct timespec time = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
	pthread_cond_timedwait(&gate->changed, &gate->lock, &time);
}

void cuda_gate_enter(cuda_gate *gate)
{
	if (!gate)
		return;
	pthread_mutex_lock(&gate->lock);
	gate->waits = true;
	pthread_cond_broadcast(&gate->changed);
	while (!gate->closing && !(gate->open && bt_now_ns() < gate->until))
		pthread_cond_wait(&gate->changed, &gate->lock);
	gate->waits = false;
	gate->inside = true;
	pthread_mutex_unlock(&gate->lock);
}

void cuda_gate_leave(cuda_gate *gate)
{
	if (!gate)
		return;
	pthread_mutex_lock(&gate->lock);
	gate->inside = false;
	pthread_cond_broadcast(&gate->changed);
	pthread_mutex_unlock(&gate->lock);
}

void cuda_gate_lend(cuda_gate *gate, double milliseconds)
{
	gate->open = true;
	gate->until = bt_now_ns() + (uint64_t)(milliseconds * 1e6);
	pthread_cond_broadcast(&gate->changed);
	uint64_t busy_until = bt_now_ns() + LINGER_NS;
	for (uint64_t now = bt_now_ns(); gate->inside || (now < gate->until && now < busy_until); now = bt_now_ns()) {
		if (gate->inside || gate->waits)
			busy_until = now + LINGER_NS;
		wait_until(gate, gate->inside ? now + 1000000000 : busy_until);
	}
	gate->open = false;
}

void cuda_gate_close(cuda_gate *gate)
{
	pthread_mutex_lock(&gate->lock);
	__atomic_store_n(&gate->closing, true, __ATOMIC_RELEASE);
	pthread_cond_broadcast(&gate->changed);
	pthread_mutex_unlock(&gate->lock);
}
