/* SPDX-License-Identifier: Apache-2.0 */
#include "rank_env.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/net.h"
#include "common/system.h"
#include "launcher.h"

/* How a launcher tells a process its rank. The first convention for which is_used() is true counts. */
struct convention {
	const char *source;
	const char *rank;
	const char *world_size;
	const char *local_rank;       /* if unset: the rank */
	const char *local_world_size; /* if unset: the world size. "": it is never set */
	const char *launcher;         /* of ranks that are not told rank 0's address; NULL: they are */
};

static const struct convention conventions[] = {
	{"torchrun's RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", NULL},
	/* Before srun's convention: mpirun may start its daemons with srun, whose variables the ranks inherit. */
	{"mpirun's OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
	 "OMPI_COMM_WORLD_LOCAL_SIZE", "mpirun"},
	/* A batch script also has SLURM_PROCID and SLURM_NTASKS, but is not a rank; only srun sets the step's size. */
	{"srun's SLURM_PROCID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "", "srun"},
};

static int read_number(const char *name, uint64_t least, uint64_t most, const char *fallback, int *out,
		       beton_error *err)
{
	const char *text = getenv(name);
	uint64_t value;
	int status;
	if (!text)
		text = fallback;
	if (!text)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "the environment variable %s is not set", name);
	status = bt_parse_u64(name, text, least, most, &value, err);
	if (status != BETON_OK) {
		bt_prefix(err, "environment");
		return status;
	}
	*out = (int)value;
	return BETON_OK;
}

static int read_ranks(const struct convention *names, struct rank_env *out, beton_error *err)
{
	const char *rank_text = getenv(names->rank), *world_text = getenv(names->world_size);
	const char *local = *names->local_world_size ? names->local_world_size : names->world_size;
	int status = read_number(names->world_size, 1, LAUNCH_MAX_RANKS, NULL, &out->world_size, err);
	out->local_known = *names->local_world_size && getenv(local);

	if (status == BETON_OK)
		status = read_number(names->rank, 0, (uint64_t)out->world_size - 1, NULL, &out->rank, err);
	if (status == BETON_OK)
		status = read_number(local, 1, (uint64_t)out->world_size, world_text, &out->local_world_size, err);
	if (status == BETON_OK)
		status = read_number(names->local_rank, 0, (uint64_t)out->local_world_size - 1, rank_text,
				     &out->local_rank, err);
	return status;
}

static int read_address(const struct convention *names, struct rank_env *out, beton_error *err)
{
	const char *address = getenv("MASTER_ADDR"), *number = getenv("MASTER_PORT");
	int port = 0, status;
	if (out->world_size == 1 && (!address || !number))
		return BETON_OK;
	if (names->launcher && (!address || !*address || !number))
		return bt_fail(
			err, BETON_INVALID_ARGUMENT,
			"the environment variable %s is not set: %s does not tell the ranks where rank 0 is; on all "
			"ranks, set MASTER_ADDR to its machine and MASTER_PORT to a free port there; or "
			"unset %s to train in each process separately",
			!number ? "MASTER_PORT" : "MASTER_ADDR", names->launcher, names->rank);
	status = read_number("MASTER_PORT", 1, UINT16_MAX, NULL, &port, err);
	if (status != BETON_OK)
		return status;
	if (!address || !*address)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "the environment variable MASTER_ADDR is not set");
	if (strlen(address) >= sizeof(out->master_addr))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "the environment variable MASTER_ADDR is too long: %zu bytes", strlen(address));
	snprintf(out->master_addr, sizeof(out->master_addr), "%s", address);
	out->master_port = (uint16_t)port;
	return BETON_OK;
}

/* RANK is always used. With mpirun or srun, a single rank may be a shell, or a job that starts its own ranks. */
static bool is_used(const struct convention *names)
{
	const char *world = getenv(names->world_size);
	if (!getenv(names->rank))
		return false;
	return !names->launcher || (world && strcmp(world, "1") != 0);
}

int dtrain__rank_env_read(struct rank_env *out, beton_error *err)
{
	const char *hosted = getenv("DTRAIN_STORE_HOSTED"), *token = getenv("DTRAIN_STORE_TOKEN");
	int status;
	*out = (struct rank_env){.world_size = 1, .local_world_size = 1};
	for (size_t i = 0; i < sizeof(conventions) / sizeof(conventions[0]); i++) {
		if (!is_used(&conventions[i]))
			continue;
		out->started = true;
		out->source = conventions[i].source;
		out->store_hosted = hosted && strcmp(hosted, "1") == 0;
		out->store_token = token && *token ? token : NULL;
		status = read_ranks(&conventions[i], out, err);
		return status != BETON_OK ? status : read_address(&conventions[i], out, err);
	}
	return BETON_OK;
}

int dtrain__rank_env_failure_status(const struct rank_env *env, int code)
{
	bool peer = code == BETON_PEER_LOST || code == BETON_TIMEOUT;
	return env->started && peer ? LAUNCH_EXIT_PEER_LOST : EXIT_FAILURE;
}

/* True if this process must host the store. */
static bool hosts_store(const struct rank_env *env)
{
	return env->started && env->world_size > 1 && env->rank == 0 && !env->store_hosted;
}

bool dtrain__rank_env_is_open(const struct rank_env *env)
{
	return hosts_store(env) && !env->store_token && !bt_is_loopback(env->master_addr);
}

/* True if the name resolves only to loopback addresses here. */
static bool means_loopback(const char *name)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
	char host[BT_HOST_SIZE];
	bool loopback = getaddrinfo(name, NULL, &hints, &list) == 0;
	for (struct addrinfo *a = list; a && loopback; a = a->ai_next)
		loopback = getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof(host), NULL, 0, NI_NUMERICHOST) == 0 &&
			   bt_is_loopback(host);
	if (list)
		freeaddrinfo(list);
	return loopback;
}

/* Chooses the address at which the store listens, if hosted here, and the address to connect to. */
static int choose_hosts(const struct rank_env *env, const char *interface, char listen[BT_HOST_SIZE],
			char connect[sizeof(env->master_addr)], beton_error *err)
{
	char host[BT_HOST_SIZE];
	int status;
	snprintf(listen, BT_HOST_SIZE, "*");
	snprintf(connect, sizeof(env->master_addr), "%s", env->master_addr);
	if (bt_is_loopback(env->master_addr)) {
		snprintf(listen, BT_HOST_SIZE, "%.*s", BT_HOST_SIZE - 1, env->master_addr);
		return BETON_OK;
	}
	if (!interface || env->store_hosted)
		return BETON_OK;
	status = bt_interface_host(interface, host, err);
	if (status != BETON_OK)
		return status;
	snprintf(listen, BT_HOST_SIZE, "%s", host);
	/* On Debian a machine resolves its own name to 127.0.1.1, so this is the machine of rank 0. */
	if (means_loopback(env->master_addr))
		snprintf(connect, sizeof(env->master_addr), "%s", host);
	return BETON_OK;
}

static int start_store(const struct rank_env *env, const char *host, uint16_t port, dtrain_store_server **server,
		       beton_error *err)
{
	dtrain_store_server_options options;
	dtrain_store_server_options_init(&options);
	options.host = host;
	options.port = port;
	options.token = env->store_token;
	options.ranks = env->world_size;
	return dtrain_store_server_start(&options, server, err);
}

int dtrain__rank_env_store(const struct rank_env *env, const char *interface, int timeout_ms,
			   dtrain_store_server **server, dtrain_store **store, beton_error *err)
{
	/* With its static rendezvous, torchrun's agent already listens on MASTER_PORT, and sets this variable. */
	const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
	bool taken = !env->store_hosted && agent && strcmp(agent, "True") == 0 && env->master_port < UINT16_MAX;
	uint16_t port = (uint16_t)(env->master_port + (taken ? 1 : 0));
	char listen[BT_HOST_SIZE], connect[sizeof(env->master_addr)];
	int status = choose_hosts(env, interface, listen, connect, err);

	*server = NULL;
	*store = NULL;
	if (status == BETON_OK && hosts_store(env))
		status = start_store(env, listen, port, server, err);
	if (status == BETON_OK)
		status = dtrain_store_connect(connect, port, env->store_token, timeout_ms, store, err);
	if (status == BETON_INVALID_ARGUMENT)
		bt_prefix(err, "DTRAIN_STORE_TOKEN");
	if (status != BETON_OK)
		dtrain_store_server_stop(server);
	return status;
}
