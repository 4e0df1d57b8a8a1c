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
	bool started;       /* by a launcher; false: the rest describes one process on its own */
	const char *source; /* whose variables: "torchrun's RANK"; NULL when not started */
	int rank;
	int world_size;
	int local_rank;
	int local_world_size;
	bool local_known;      /* the environment has local_world_size; false: it is the world size */
	char master_addr[256]; /* "" in a world of one that has none */
	uint16_t master_port;
	bool store_hosted;       /* our launcher runs the store; otherwise rank 0 has to */
	const char *store_token; /* DTRAIN_STORE_TOKEN; NULL: none */
};

/* What torchrun, mpirun (Open MPI) and srun set. A rank alone in its world that mpirun or srun started is one process
 * on its own. Errors: INVALID_ARGUMENT naming the variable that is malformed, missing or contradicts another. */
int dtrain__rank_env_read(struct rank_env *out, beton_error *err);

/* What a rank that failed with this code exits with: LAUNCH_EXIT_PEER_LOST where it only suffers from another one's
 * end, for which it is not to be blamed. */
int dtrain__rank_env_failure_status(const struct rank_env *env, int code);

/* The store of a job of more than one rank: rank 0 hosts it first where nobody else does (at MASTER_PORT, or
 * at the port after it where torchrun's agent uses that one itself). It listens on the loopback address that
 * MASTER_ADDR is, or on the network interface, or, where that is NULL, on all addresses: MASTER_ADDR may be a name that
 * means another address here than elsewhere. *server stays NULL for everybody else; stop it after the last rank is done
 * with it. Errors: those of dtrain_store_server_start and dtrain_store_connect; NOT_FOUND (the interface). */
int dtrain__rank_env_store(const struct rank_env *env, const char *interface, int timeout_ms,
			   dtrain_store_server **server, dtrain_store **store, beton_error *err);

/* Whether rank 0 hosts a store that others can reach over the network, and that asks for no token. */
bool dtrain__rank_env_is_open(const struct rank_env *env);

#endif
