/* SPDX-License-Identifier: Apache-2.0
 *
 * What DDP wants to know of an operation besides <dtrain/comm.h>.
 */
#ifndef DTRAIN_COMM_WORK_H
#define DTRAIN_COMM_WORK_H

#include <dtrain/comm.h>

/* dtrain_work_wait, which also tells when the operation ran (bt_now_ns; either may be NULL). */
int dtrain__work_wait_timed(dtrain_work **work, uint64_t *start_ns, uint64_t *end_ns, beton_error *err);

/* Waits at once for what a function of <dtrain/comm.h> returned: status is its result, *work its handle. */
static inline int dtrain__work_finish(int status, dtrain_work **work, beton_error *err)
{
	return status ? status : dtrain_work_wait(work, err);
}

#endif
