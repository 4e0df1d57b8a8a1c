/* SPDX-License-Identifier: Apache-2.0
 *
 * Timings of algorithms beside training: their thread waits at a gate until training lends the idle GPU.
 */
#ifndef DTRAIN_CUDA_GATE_H
#define DTRAIN_CUDA_GATE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

/* All members are under the lock. */
typedef struct cuda_gate {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool open;          /* training lends the GPU */
	bool waits, inside; /* the thread, before and after it has passed */
	bool closing;       /* also atomic */
	uint64_t until;     /* the end of the loan, as bt_now_ns() */
} cuda_gate;

void cuda_gate_init(cuda_gate *gate);
void cuda_gate_destroy(cuda_gate *gate);

/* Around each use of the GPU by the thread. A closing gate lets it pass, because nothing else runs then. NULL: nothing
 * happens. */
void cuda_gate_enter(cuda_gate *gate);
void cuda_gate_leave(cuda_gate *gate);

/* Opens the gate until the time is over, or the thread does something else for a while; then waits until the thread has
 * left. The caller holds the lock. */
void cuda_gate_lend(cuda_gate *gate, double milliseconds);
/* The thread does not wait any more. */
void cuda_gate_close(cuda_gate *gate);

#endif
