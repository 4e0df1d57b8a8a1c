/* SPDX-License-Identifier: Apache-2.0
 *
 * Is this process a rank that somebody started, and which one? One table of the launchers that are understood.
 */
#ifndef LAUNCH_RANK_ENV_H
#define LAUNCH_RANK_ENV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <dtrain/comm.h>

/* Size of the list of rank 0's possible addresses, which commas separate. */
#define RANK_ADDRESSES 512

/* Ports that rank 0 may use if its port is derived, and not given. */
#define RANK_PORTS 4
#define RANK_PORT_STEP 331

#define RANK_JOB_SIZE 96

/* Size of a token's text with its NUL. */
#define RANK_TOKEN_SIZE 33

/* How the ranks learn the address of rank 0 if the environment does not contain it. */
enum rank_exchange {
	RANK_EXCHANGE_NONE, /* master_addr and master_port are known */
	RANK_EXCHANGE_PMI,  /* by the launcher's key-value space, over the descriptor PMI_FD */
	RANK_EXCHANGE_PMIX, /* by the launcher's PMIx server */
};

struct rank_env {
	bool started;       /* by a launcher; false: a single process */
	const char *source; /* the row that counts: "srun's SLURM_PROCID"; NULL: not started by a launcher */
	int rank;
	int world_size;
	int local_rank;       /* 0 until local_known, unless the launcher tells it alone */
	int local_world_size; /* the world size until local_known */
	bool local_known;
	bool has_local_rank;              /* by the launcher */
	char master_addr[RANK_ADDRESSES]; /* "": exchanged, or a world of one rank */
	uint16_t master_port;             /* 0: the same */
	int ports;                        /* from master_port on in steps of RANK_PORT_STEP; rank 0 takes a free one */
	char job[RANK_JOB_SIZE];          /* the launcher's name of it, "SLURM_JOB_ID 7.0"; "": not known */
	const char *address_source;       /* "MASTER_ADDR", "SLURM_STEP_NODELIST", ... */
	enum rank_exchange exchange;
	bool store_hosted;               /* by our launcher; otherwise rank 0 hosts the store */
	const char *store_token;         /* DTRAIN_STORE_TOKEN, or own_token; NULL: none */
	char own_token[RANK_TOKEN_SIZE]; /* made by rank 0, and exchanged with its address */
};

/* Reads the variables of the launchers in the table. A world of one rank counts as a single process, unless RANK is
 * set. MASTER_ADDR and MASTER_PORT win over what is derived. Errors: INVALID_ARGUMENT naming the variable that is
 * malformed, missing or contradicts another, or the variables of a launcher that is not understood. */
int dtrain__rank_env_read(struct rank_env *out, beton_error *err);

/* The exit status of a rank that failed with this code: LAUNCH_EXIT_PEER_LOST if another rank's end is the cause. */
int dtrain__rank_env_failure_status(const struct rank_env *env, int code);

/* True if rank 0 hosts the store, and this process is rank 0. */
bool dtrain__rank_env_hosts_store(const struct rank_env *env);

/* True if rank 0 hosts a store that is reachable over the network and requires no token. */
bool dtrain__rank_env_is_open(const struct rank_env *env);

/* The first host of a list as Slurm writes it: "n1" of "n[1-2],m3", "rack00_blade1" of "rack[00-63]_blade[1,3]".
 * INVALID_ARGUMENT: the list is malformed, or the name does not fit. */
int dtrain__first_host(const char *list, char *out, size_t size, beton_error *err);

/* The name of pod 0 of an indexed job, from the name of the pod with that index: "train-0.service" of
 * "train-3.service". False: the name has no such form. */
bool dtrain__first_pod(const char *name, int index, char *out, size_t size);

/* The addresses in a URI of Open MPI, "1.0;tcp://10.0.0.1,10.1.0.1:1234;tcp6://[fd00::1]:99", separated by commas.
 * False: there is none. */
bool dtrain__uri_hosts(const char *uri, char *out, size_t size);

#endif
