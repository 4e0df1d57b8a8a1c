/* SPDX-License-Identifier: Apache-2.0
 *
 * A client of PMIx servers, as Open MPI's mpirun and PRRTE have them, by the library libpmix.so.2, which is opened when
 * it is needed: those launchers bring it along.
 */
#ifndef LAUNCH_PMIX_H
#define LAUNCH_PMIX_H

#include "rank_exchange.h"

/* Whether this process has a server, and the library can be opened. */
bool dtrain__pmix_is_there(void);

typedef struct pmix_world {
	int rank, size;
	int local_rank, local_size;
} pmix_world;

/* Asks the server about this process; *out is possible in itself. Errors, with which *out stays as it is: as
 * dtrain__pmix_exchange. */
int dtrain__pmix_world(pmix_world *out, beton_error *err);

/* Gives every rank rank 0's value. Collective over all ranks of the launcher; once in a process. Errors: NOT_FOUND (the
 * library), TIMEOUT (a rank did not come), MISMATCH (the server's answer), SYSTEM. */
int dtrain__pmix_exchange(struct rank_exchange_job *job, beton_error *err);

#endif
