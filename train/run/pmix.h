/* SPDX-License-Identifier: Apache-2.0
 *
 * A client of PMIx servers, as Open MPI's mpirun and PRRTE have them, by the library libpmix.so.2, which is opened when
 * it is needed: those launchers bring it along.
 */
#ifndef DTRAIN_RUN_PMIX_H
#define DTRAIN_RUN_PMIX_H

#include "rank_exchange.h"

/* Whether this process has a server, and the library can be opened. */
bool dtrain__pmix_is_there(void);

/* Asks the server about this process. Errors: as dtrain__pmix_exchange. */
int dtrain__pmix_world(int *world_size, int *local_rank, int *local_world_size, beton_error *err);

/* Gives every rank rank 0's value. Collective over all ranks of the launcher; once in a process. Errors: NOT_FOUND (the
 * library), TIMEOUT (a rank did not come), MISMATCH (the server's answer), SYSTEM. */
int dtrain__pmix_exchange(struct rank_exchange_job *job, beton_error *err);

#endif
