/* SPDX-License-Identifier: Apache-2.0
 *
 * The key-value space of a launcher that speaks PMI-1 over the descriptor PMI_FD, as MPICH's mpiexec (hydra) does: a
 * line each way for a command. https://www.mpich.org has the protocol ("A Process Management Interface", version 1.1).
 */
#ifndef LAUNCH_PMI_H
#define LAUNCH_PMI_H

#include "rank_exchange.h"

/* Gives every rank rank 0's value. Collective over all ranks of the launcher; once in a process. Errors:
 * INVALID_ARGUMENT (PMI_FD), MISMATCH (another protocol), TIMEOUT (a rank did not come), PEER_LOST (the launcher),
 * SYSTEM. */
int dtrain__pmi_exchange(struct rank_exchange_job *job, beton_error *err);

#endif
