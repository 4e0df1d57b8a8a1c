/* SPDX-License-Identifier: Apache-2.0
 *
 * Is this process a rank that somebody started, and which one?
 */
#ifndef DTRAIN_RUN_RANK_ENV_H
#define DTRAIN_RUN_RANK_ENV_H

#include <stdbool.h>
#include <stdint.h>

#include <dtrain/comm.h>

struct rank_env {
	bool started;       /* by a launcher; false: a single process */
	const char *source; /* origin of the variables: "torchrun's RANK"; NULL: not started by a launcher */
	int rank;
	int world_size;
	int local_rank;
	int local_world_size;
	bool local_known;      /* local_world_size was set; false: it is the world size */
	char master_addr[256]; /* "": not set, in a world of one rank */
	uint16_t master_port;
	bool store_hosted;       /* by our launcher; otherwise rank 0 hosts the store */
	const char *store_token; /* DTRAIN_STORE_TOKEN; NULL: none */
};

/* Reads the variables of torchrun, mpirun (Open MPI) and srun. A world of one rank that mpirun or srun started counts
 * as a single process. Errors: INVALID_ARGUMENT naming the variable that is malformed, missing or contradicts
 * another. */
int dtrain__rank_env_read(struct rank_env *out, beton_error *err);

/* The exit status of a rank that failed with this code: LAUNCH_EXIT_PEER_LOST if another rank's end is the cause. */
int dtrain__rank_env_failure_status(const struct rank_env *env, int code);

/* Opens the store of a job of more than one rank. Rank 0 hosts it unless the launcher does, at MASTER_PORT, or at the
 * next port if torchrun's agent uses that one. It listens on MASTER_ADDR if that is a loopback address, else on the
 * network interface or, if that is NULL, on all addresses, because MASTER_ADDR may be a name with another meaning here.
 * *server is NULL on other ranks; stop it after the last rank has finished. Errors: those of dtrain_store_server_start
 * and dtrain_store_connect; NOT_FOUND (the interface). */
int dtrain__rank_env_store(const struct rank_env *env, const char *interface, int timeout_ms,
			   dtrain_store_server **server, dtrain_store **store, beton_error *err);

/* True if rank 0 hosts a store that is reachable over the network and requires no token. */
bool dtrain__rank_env_is_open(const struct rank_env *env);

#endif
