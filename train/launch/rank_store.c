/* SPDX-License-Identifier: Apache-2.0 */
#include "rank_store.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "common/error.h"
#include "common/net.h"
#include "common/system.h"
#include "pmi.h"
#include "pmix.h"

#define TOKEN_BYTES ((RANK_TOKEN_SIZE - 1) / 2)
/* Time limit of one attempt if rank 0 has several addresses. */
#define ATTEMPT_MS 2000
/* How long a name may be unknown: that of a pod which has just started. */
#define NAME_NS UINT64_C(60000000000)
/* Time limit of the first attempt at another port than the first: rank 0 is seldom there. */
#define OTHER_PORT_MS 250
/* Time to ask who has rank 0's port. */
#define ASK_MS 2000
/* The key of the store with the job's description. */
#define JOB "meet/job"

void dtrain__host_key(char out[DTRAIN_HOST_KEY])
{
	char name[65] = "?", boot[40] = "?";
	FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
	if (file) {
		if (!fgets(boot, sizeof(boot), file))
			boot[0] = '\0';
		boot[strcspn(boot, "\n")] = '\0';
		fclose(file);
	}
	gethostname(name, sizeof(name) - 1);
	snprintf(out, DTRAIN_HOST_KEY, "%s/%s", name, boot);
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

bool dtrain__is_elsewhere(const char *name)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
	bool elsewhere = getaddrinfo(name, NULL, &hints, &list) == 0;
	for (struct addrinfo *a = list; a && elsewhere; a = a->ai_next) {
		int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		elsewhere = fd >= 0 && bind(fd, a->ai_addr, a->ai_addrlen) != 0 && errno == EADDRNOTAVAIL;
		if (fd >= 0)
			close(fd);
	}
	if (list)
		freeaddrinfo(list);
	return elsewhere;
}

/* Where rank 0 listens with --interface: at the interface's address in MASTER_ADDR, if that is one, else at `host`, the
 * first. An address that another interface of this machine has cannot be reached by ranks that look for rank 0 there.
 */
static int choose_listen(const char *address, const char *interface, char host[BT_HOST_SIZE], beton_error *err)
{
	if (!bt_is_address(address))
		return BETON_OK;
	if (bt_interface_has(interface, address))
		snprintf(host, BT_HOST_SIZE, "%.*s", BT_HOST_SIZE - 1, address);
	else if (!dtrain__is_elsewhere(address))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "--interface %s has %s, but MASTER_ADDR is %s, which is another address of this machine",
			       interface, host, address);
	return BETON_OK;
}

/* Chooses the address at which the store listens, if hosted here, and the address to connect to. */
static int choose_hosts(const struct rank_env *env, const char *interface, char listen[BT_HOST_SIZE],
			char connect[RANK_ADDRESSES], beton_error *err)
{
	char host[BT_HOST_SIZE];
	/* MASTER_ADDR may have no meaning on rank 0's own machine. */
	snprintf(listen, BT_HOST_SIZE, "*");
	snprintf(connect, RANK_ADDRESSES, "%s",
		 dtrain__rank_env_hosts_store(env) ? bt_loopback_host() : env->master_addr);
	if (bt_is_loopback(env->master_addr)) {
		snprintf(listen, BT_HOST_SIZE, "%.*s", BT_HOST_SIZE - 1, env->master_addr);
		snprintf(connect, RANK_ADDRESSES, "%s", env->master_addr);
		return BETON_OK;
	}
	if (!interface || env->store_hosted)
		return BETON_OK;
	int status = bt_interface_host(interface, host, err);
	if (status == BETON_OK && dtrain__rank_env_hosts_store(env))
		status = choose_listen(env->master_addr, interface, host, err);
	if (status != BETON_OK)
		return status;
	snprintf(listen, BT_HOST_SIZE, "%s", host);
	/* On Debian a machine resolves its own name to 127.0.1.1, so this is the machine of rank 0. */
	if (dtrain__rank_env_hosts_store(env) || means_loopback(env->master_addr))
		snprintf(connect, RANK_ADDRESSES, "%s", host);
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
	int status = dtrain_store_server_start(&options, server, err);
	if (status == BETON_INVALID_ARGUMENT)
		bt_prefix(err, "DTRAIN_STORE_TOKEN");
	return status;
}

static void tell_waiting(const struct rank_env *env, const rank_meet_options *options, uint64_t began_ns,
			 const beton_error *why)
{
	char line[BETON_ERROR_MESSAGE_SIZE + 128];
	snprintf(line, sizeof(line), "rank %d has waited %.0f s for rank 0: %s; the address is from %s", env->rank,
		 (double)(bt_now_ns() - began_ns) / 1e9, why->message, env->address_source);
	options->say(line);
}

/* All ranks of a job have this text, and no other job that may use its port. */
static void describe_job(const struct rank_env *env, char *text, size_t size)
{
	snprintf(text, size, "%d ranks%s%s, MASTER_PORT %u", env->world_size, *env->job ? ", " : "", env->job,
		 (unsigned)env->master_port);
}

/* MISMATCH: the store is another job's. */
static int check_job(const struct rank_env *env, dtrain_store *store, uint16_t port, int timeout_ms, beton_error *err)
{
	char job[RANK_JOB_SIZE + 64];
	void *theirs = NULL;
	size_t size;
	describe_job(env, job, sizeof(job));
	int status = dtrain_store_get(store, JOB, timeout_ms, &theirs, &size, err);
	if (status == BETON_OK && strcmp(theirs, job) != 0) {
		bt_sanitize(theirs);
		status = bt_fail(
			err, BETON_MISMATCH,
			"the store at %s:%u is of another job: %.200s; this process is of %s (two jobs need two "
			"ports: MASTER_PORT)",
			env->master_addr, (unsigned)port, (const char *)theirs, job);
	}
	free(theirs);
	return status;
}

/* Connects to this job's store. */
static int try_store(const struct rank_env *env, const char *host, uint16_t port, int timeout_ms, dtrain_store **store,
		     beton_error *err)
{
	char job[RANK_JOB_SIZE + 64];
	uint64_t began = bt_now_ns();
	int status = dtrain_store_connect(host, port, env->store_token, timeout_ms, store, err);
	if (status != BETON_OK || env->store_hosted)
		return status;
	describe_job(env, job, sizeof(job));
	int left_ms = timeout_ms - (int)((bt_now_ns() - began) / 1000000);
	status = env->rank == 0 ? dtrain_store_set(*store, JOB, job, strlen(job), err)
				: check_job(env, *store, port, left_ms > OTHER_PORT_MS ? left_ms : OTHER_PORT_MS, err);
	if (status != BETON_OK)
		dtrain_store_close(store);
	return status;
}

/* Whether it may be otherwise later, or at another of rank 0's addresses. */
static bool is_passing(int status, bool several, uint64_t waited_ns)
{
	if (several)
		return status != BETON_INVALID_ARGUMENT && status != BETON_NO_MEMORY;
	return status == BETON_TIMEOUT || (status == BETON_NOT_FOUND && waited_ns < NAME_NS);
}

/* Where rank 0 may be: each host at each port. */
struct places {
	const char *hosts; /* with commas */
	uint16_t port;
	int ports;
};

/* One of the places, in turn. */
struct place {
	const char *host; /* in the list of hosts */
	int port, round;
};

static void next_place(const struct places *all, struct place *place)
{
	place->host += strcspn(place->host, ",");
	if (*place->host++)
		return;
	place->host = all->hosts;
	if (++place->port < all->ports)
		return;
	place->port = 0;
	place->round++;
}

static uint16_t port_at(uint16_t first, int which)
{
	unsigned port = first + (unsigned)which * RANK_PORT_STEP;
	return (uint16_t)(port <= UINT16_MAX ? port : port - UINT16_MAX / 2);
}

static int attempt_ms(const struct place *place, bool several, int left_ms)
{
	int most = !several ? left_ms : place->port && place->round < 3 ? OTHER_PORT_MS << place->round : ATTEMPT_MS;
	return left_ms < most ? left_ms : most;
}

/* Tries rank 0's places in turn, and says every 10 seconds that it waits. */
static int connect_store(const struct rank_env *env, const rank_meet_options *options, const struct places *all,
			 dtrain_store **store, beton_error *err)
{
	uint64_t began = bt_now_ns(), deadline = began + (uint64_t)options->connect_ms * 1000000, told = began;
	const uint64_t interval = RANK_WAIT_TELL_MS * UINT64_C(1000000);
	bool several = strchr(all->hosts, ',') || all->ports > 1;
	beton_error last = {0};
	struct place place = {all->hosts, 0, 0};
	for (;;) {
		char host[RANK_ADDRESSES];
		uint64_t now = bt_now_ns(), tells = told + interval, until = tells < deadline ? tells : deadline;
		int left_ms = until > now ? (int)((until - now) / 1000000 + 1) : 0;
		snprintf(host, sizeof(host), "%.*s", (int)strcspn(place.host, ","), place.host);
		int status = try_store(env, host, port_at(all->port, place.port), attempt_ms(&place, several, left_ms),
				       store, &last);
		now = bt_now_ns();
		if (status == BETON_OK || !is_passing(status, several, now - began) || now >= deadline) {
			if (status != BETON_OK)
				*err = last;
			if (status == BETON_INVALID_ARGUMENT)
				bt_prefix(err, "DTRAIN_STORE_TOKEN");
			return status;
		}
		if (now >= tells) {
			tell_waiting(env, options, began, &last);
			told = now;
		}
		/* A name that is not known yet is answered at once. */
		if (status != BETON_TIMEOUT)
			usleep(ATTEMPT_MS * 1000 / 10);
		next_place(all, &place);
	}
}

/* Another process has the port: it may be a rank 0 of this job too, and then out->store is set. */
static int explain_port(const struct rank_env *env, const char *host, uint16_t port, rank_meeting *out,
			beton_error *err)
{
	beton_error why = {0};
	int status = dtrain_store_connect(host, port, env->store_token, ASK_MS, &out->store, &why);
	bool store = status == BETON_OK;
	if (store)
		status = check_job(env, out->store, port, ASK_MS, &why);
	if (status == BETON_ACCESS)
		bt_append(err->message, sizeof(err->message),
			  ", which is rank 0 of a job with another DTRAIN_STORE_TOKEN: set MASTER_PORT to a free port");
	else if (store && status == BETON_MISMATCH)
		bt_append(err->message, sizeof(err->message), ": %s", why.message);
	else if (status != BETON_OK)
		bt_append(err->message, sizeof(err->message), "; set MASTER_PORT to a free port on all ranks");
	if (status != BETON_OK)
		dtrain_store_close(&out->store);
	return err->code;
}

/* Rank 0's part: takes the first of the ports that is free, which becomes that of *all. */
static int host_store(const struct rank_env *env, const rank_meet_options *options, const char *listen,
		      struct places *all, rank_meeting *out, beton_error *err)
{
	int status = BETON_EXISTS;
	for (int i = 0; i < all->ports && status == BETON_EXISTS && !out->store; i++) {
		uint16_t port = port_at(all->port, i);
		status = start_store(env, listen, port, &out->server, err);
		if (status == BETON_EXISTS)
			status = explain_port(env, all->hosts, port, out, err);
		if (status == BETON_EXISTS && !out->store && i + 1 < all->ports) {
			char line[BETON_ERROR_MESSAGE_SIZE + 64];
			snprintf(line, sizeof(line), "%s; rank 0 tries port %u", err->message,
				 (unsigned)port_at(all->port, i + 1));
			options->say(line);
		}
	}
	if (status == BETON_OK)
		*all = (struct places){all->hosts, dtrain_store_server_port(out->server), 1};
	return status;
}

static int open_at_address(const struct rank_env *env, const rank_meet_options *options, rank_meeting *out,
			   beton_error *err)
{
	/* With its static rendezvous, torchrun's agent already listens on MASTER_PORT, and sets this variable. */
	const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
	bool taken = !env->store_hosted && agent && strcmp(agent, "True") == 0 && env->master_port < UINT16_MAX;
	char listen[BT_HOST_SIZE], connect[RANK_ADDRESSES];
	struct places all = {connect, (uint16_t)(env->master_port + taken), taken ? RANK_PORTS : env->ports};
	int status = choose_hosts(env, options->interface, listen, connect, err);
	if (status == BETON_OK && dtrain__rank_env_hosts_store(env))
		status = host_store(env, options, listen, &all, out, err);
	return status == BETON_OK ? connect_store(env, options, &all, &out->store, err) : status;
}

static int make_token(struct rank_env *env, beton_error *err)
{
	uint8_t bytes[TOKEN_BYTES];
	/* Once the system's generator is initialized, so few bytes are never returned in part. */
	if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes))
		return bt_fail_errno(err, errno, "getrandom");
	for (size_t i = 0; i < sizeof(bytes); i++)
		snprintf(env->own_token + 2 * i, 3, "%02x", bytes[i]);
	env->store_token = env->own_token;
	return BETON_OK;
}

static bool is_link_local(const char *host)
{
	return strncmp(host, "fe80:", 5) == 0;
}

/* Lists the launcher's name for this machine and all addresses that others may reach. */
static void list_addresses(char *out, size_t size)
{
	const char *name = getenv("MPIR_CVAR_CH3_INTERFACE_HOSTNAME");
	struct ifaddrs *list = NULL;
	bool named = name && *name && !means_loopback(name);
	snprintf(out, size, "%s", named ? name : "");
	if (getifaddrs(&list) != 0)
		return;
	for (struct ifaddrs *a = list; a; a = a->ifa_next) {
		char host[BT_HOST_SIZE];
		int family = a->ifa_addr ? a->ifa_addr->sa_family : AF_UNSPEC;
		socklen_t length = family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
		if (!(a->ifa_flags & IFF_UP) || a->ifa_flags & IFF_LOOPBACK ||
		    (family != AF_INET && family != AF_INET6) ||
		    getnameinfo(a->ifa_addr, length, host, sizeof(host), NULL, 0, NI_NUMERICHOST) != 0 ||
		    is_link_local(host) || strlen(out) + strlen(host) + 2 > size)
			continue;
		bt_append(out, size, "%s%s", *out ? "," : "", host);
	}
	freeifaddrs(list);
}

/* Rank 0's part of an exchange: starts the store, and describes where it is: "1|ADDRESSES|PORT|TOKEN|HOST". */
static int give_address(struct rank_env *env, const rank_meet_options *options, struct rank_exchange_job *job,
			rank_meeting *out, beton_error *err)
{
	char listen[BT_HOST_SIZE] = "*", host[DTRAIN_HOST_KEY];
	bool given = *env->master_addr, here = env->local_known && env->local_world_size == env->world_size;
	int status = env->store_token ? BETON_OK : make_token(env, err);
	if (status != BETON_OK)
		return status;
	if (options->interface) {
		status = bt_interface_host(options->interface, listen, err);
		if (status != BETON_OK)
			return status;
		if (!given)
			snprintf(env->master_addr, sizeof(env->master_addr), "%s", listen);
	} else if (here && !given) {
		snprintf(listen, sizeof(listen), "%s", bt_loopback_host());
		snprintf(env->master_addr, sizeof(env->master_addr), "%s", bt_loopback_host());
	} else if (!given) {
		list_addresses(env->master_addr, sizeof(env->master_addr));
	}
	status = start_store(env, listen, env->master_port, &out->server, err);
	if (status != BETON_OK)
		return status;
	env->master_port = dtrain_store_server_port(out->server);
	dtrain__host_key(host);
	int length = snprintf(job->value, sizeof(job->value), "1|%s|%u|%s|%s", env->master_addr,
			      (unsigned)env->master_port, env->store_token, options->interface ? "" : host);
	if (length >= (int)sizeof(job->value))
		return bt_fail(err, BETON_NO_SPACE, "the addresses of this machine are too long: %s", env->master_addr);
	return BETON_OK;
}

/* Ranks of rank 0's machine use its loopback interface, so that their addresses of other networks are not told to
 * ranks elsewhere. */
static int take_address(struct rank_env *env, const char *value, beton_error *err)
{
	char host[DTRAIN_HOST_KEY], copy[RANK_EXCHANGE_SIZE], *parts[5], *rest = copy;
	snprintf(copy, sizeof(copy), "%s", value);
	for (int i = 0; i < 5; i++)
		parts[i] = rest ? strsep(&rest, "|") : NULL;
	uint64_t port = 0;
	if (!parts[4] || strcmp(parts[0], "1") != 0 || strlen(parts[3]) != 2 * TOKEN_BYTES ||
	    bt_parse_u64("port", parts[2], 1, UINT16_MAX, &port, NULL) != BETON_OK)
		return bt_fail(err, BETON_MISMATCH, "rank 0 gives its address in another form: another version?");
	dtrain__host_key(host);
	if (strcmp(parts[4], host) == 0)
		snprintf(env->master_addr, sizeof(env->master_addr), "%s", bt_loopback_host());
	else if (!*env->master_addr)
		snprintf(env->master_addr, sizeof(env->master_addr), "%s", parts[1]);
	env->master_port = (uint16_t)port;
	snprintf(env->own_token, sizeof(env->own_token), "%s", parts[3]);
	env->store_token = env->own_token;
	return BETON_OK;
}

struct exchange_wait {
	const struct rank_env *env;
	const rank_meet_options *options;
	uint64_t began_ns;
};

static void tell_exchange(const void *context)
{
	const struct exchange_wait *wait = context;
	char line[160];
	snprintf(line, sizeof(line), "rank %d has waited %.0f s until all %d ranks come to the launcher's barrier (%s)",
		 wait->env->rank, (double)(bt_now_ns() - wait->began_ns) / 1e9, wait->env->world_size,
		 wait->env->address_source);
	wait->options->say(line);
}

static int open_by_exchange(struct rank_env *env, const rank_meet_options *options, rank_meeting *out, beton_error *err)
{
	const struct exchange_wait wait = {env, options, bt_now_ns()};
	struct rank_exchange_job job = {.gives = env->rank == 0,
					.deadline = bt_now_ns() + (uint64_t)options->connect_ms * 1000000,
					.waits = tell_exchange,
					.context = &wait};
	int status = job.gives ? give_address(env, options, &job, out, err) : BETON_OK;
	if (status == BETON_OK)
		status = env->exchange == RANK_EXCHANGE_PMI ? dtrain__pmi_exchange(&job, err)
							    : dtrain__pmix_exchange(&job, err);
	if (status == BETON_OK && !job.gives)
		status = take_address(env, job.value, err);
	if (status != BETON_OK)
		return status;
	bool own = job.gives && !options->interface;
	const struct places all = {own ? bt_loopback_host() : env->master_addr, env->master_port, 1};
	return connect_store(env, options, &all, &out->store, err);
}

int dtrain__rank_store_open(struct rank_env *env, const rank_meet_options *options, rank_meeting *out, beton_error *err)
{
	*out = (rank_meeting){0};
	return env->exchange != RANK_EXCHANGE_NONE ? open_by_exchange(env, options, out, err)
						   : open_at_address(env, options, out, err);
}
