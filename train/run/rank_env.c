/* SPDX-License-Identifier: Apache-2.0 */
#include "rank_env.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "launcher.h"
#include "launcher.h"

/* How a launcher tells a process which rank it is. The first convention whose rank variable is set is used. */
struct convention {
	const char *source;
	const char *rank;
	const char *world_size;
	const char *local_rank;       /* may be unset: the rank */
	const char *local_world_size; /* may be unset: the world size */
	const char *address;
	const char *port;
};

static const struct convention conventions[] = {
	{"torchrun's RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"},
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
	if (status) {
		bt_prefix(err, "environment");
		return status;
	}
	*out = (int)value;
	return BETON_OK;
}

static int read_ranks(const struct convention *names, struct rank_env *out, beton_error *err)
{
	const char *rank_text = getenv(names->rank), *world_text = getenv(names->world_size);
	int status = read_number(names->world_size, 1, LAUNCH_MAX_RANKS, NULL, &out->world_size, err);

	if (!status)
		status = read_number(names->rank, 0, (uint64_t)out->world_size - 1, NULL, &out->rank, err);
	if (!status)
		status = read_number(names->local_world_size, 1, (uint64_t)out->world_size, world_text,
				     &out->local_world_size, err);
	if (!status)
		status = read_number(names->local_rank, 0, (uint64_t)out->local_world_size - 1, rank_text,
				     &out->local_rank, err);
	return status;
}

static int read_address(const struct convention *names, struct rank_env *out, beton_error *err)
{
	const char *address = getenv(names->address);
	int port = 0, status;

	if (out->world_size == 1 && (!address || !getenv(names->port)))
		return BETON_OK;
	status = read_number(names->port, 1, UINT16_MAX, NULL, &port, err);
	if (status)
		return status;
	if (!address || !*address)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "the environment variable %s is not set", names->address);
	if (strlen(address) >= sizeof(out->master_addr))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "the environment variable %s is too long: %zu bytes",
			       names->address, strlen(address));
	snprintf(out->master_addr, sizeof(out->master_addr), "%s", address);
	out->master_port = (uint16_t)port;
	return BETON_OK;
}

int dtrain__rank_env_read(struct rank_env *out, beton_error *err)
{
	const char *hosted = getenv("DTRAIN_STORE_HOSTED");
	int status;

	*out = (struct rank_env){.world_size = 1, .local_world_size = 1};
	for (size_t i = 0; i < sizeof(conventions) / sizeof(conventions[0]); i++) {
		if (!getenv(conventions[i].rank))
			continue;
		out->started = true;
		out->source = conventions[i].source;
		out->store_hosted = hosted && strcmp(hosted, "1") == 0;
		status = read_ranks(&conventions[i], out, err);
		return status ? status : read_address(&conventions[i], out, err);
	}
	return BETON_OK;
}

int dtrain__rank_env_failure_status(const struct rank_env *env, int code)
{
	bool peer = code == BETON_PEER_LOST || code == BETON_TIMEOUT;

	return env->started && peer ? LAUNCH_EXIT_PEER_LOST : EXIT_FAILURE;
}

int dtrain__rank_env_store(const struct rank_env *env, int timeout_ms, dtrain_store_server **server,
			   dtrain_store **store, beton_error *err)
{
	/* Under torchrun's static rendezvous its own agent already listens on MASTER_PORT, and says so. */
	const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
	bool taken = !env->store_hosted && agent && strcmp(agent, "True") == 0 && env->master_port < UINT16_MAX;
	uint16_t port = (uint16_t)(env->master_port + (taken ? 1 : 0));
	int status = BETON_OK;

	*server = NULL;
	*store = NULL;
	if (!env->store_hosted && env->rank == 0)
		status = dtrain_store_server_start(env->master_addr, port, server, err);
	if (!status)
		status = dtrain_store_connect(env->master_addr, port, timeout_ms, store, err);
	if (status)
		dtrain_store_server_stop(server);
	return status;
}
