/* SPDX-License-Identifier: Apache-2.0 */
#include "rank_env.h"

#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/error.h"
#include "common/net.h"
#include "common/system.h"
#include "launcher.h"
#include "pmix.h"

/* Range of ports that are derived from a job's number, below the system's range for connections. */
#define PORT_FIRST 10000
#define PORT_COUNT 20000
/* Prime to the number of ports, and more than the steps that a job runs at once. */
#define STEPS 31
/* A pod has its own ports, so this one is free. */
#define POD_PORT 29500

/* A launcher, as the environment of a rank shows it. The first row that is present counts. */
struct row {
	const char *source;
	const char *rank;
	const char *world_size;
	const char *local_rank;
	const char *local_world_size; /* NULL: it is not told */
	const char *mark;             /* a variable that only this launcher sets; NULL: any */
	const char *job, *step;       /* variables with the names of the job and of its part; NULL: none */
	bool alone;                   /* a world of one is a rank of this launcher too, and not a process by itself */
	bool nested;                  /* other launchers may have started this one: their variables are not compared */
	bool outer;                   /* others start their daemons with this one, whose variables ranks inherit */
	/* Fills what MASTER_ADDR and MASTER_PORT do not tell, or chooses the exchange. NULL: they must be set. */
	int (*find_address)(struct rank_env *env, beton_error *err);
};

static int find_by_slurm(struct rank_env *env, beton_error *err);
static int find_by_open_mpi(struct rank_env *env, beton_error *err);
static int find_by_pmi(struct rank_env *env, beton_error *err);
static int find_by_pmix(struct rank_env *env, beton_error *err);
static int find_by_pod(struct rank_env *env, beton_error *err);

#define RANK_VARIABLES "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"

static const struct row rows[] = {
	{"dtrain-ffcv's RANK", RANK_VARIABLES, .mark = "DTRAIN_STORE_HOSTED", .alone = true, .nested = true},
	{"torchrun's RANK", RANK_VARIABLES, .mark = "TORCHELASTIC_RUN_ID", .job = "TORCHELASTIC_RUN_ID", .alone = true,
	 .nested = true},
	{"RANK", RANK_VARIABLES, .alone = true},
	{"mpirun's OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
	 "OMPI_COMM_WORLD_LOCAL_SIZE", .job = "OMPI_MCA_ess_base_jobid", .find_address = find_by_open_mpi},
	{"mpiexec's PMI_RANK", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", .mark = "MPI_LOCALNRANKS",
	 .find_address = find_by_pmi},
	/* A batch script also has SLURM_PROCID and SLURM_NTASKS, but is not a rank; only srun sets the step's size. */
	{"srun's SLURM_PROCID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", NULL, .job = "SLURM_JOB_ID",
	 .step = "SLURM_STEP_ID", .outer = true, .find_address = find_by_slurm},
	{"PMI_RANK", "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE", .find_address = find_by_pmi},
	/* The index is that of a pod: RANK goes before it. */
	{"Kubernetes' JOB_COMPLETION_INDEX", "JOB_COMPLETION_INDEX", "WORLD_SIZE", NULL, NULL, .outer = true,
	 .find_address = find_by_pod},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

#define ANY (-1)

/* Variables that only a rank of some launcher has, whether it is understood or not. */
static const struct {
	const char *name;
	int single;  /* the value in a world of one process; ANY: no value tells */
	bool counts; /* it is the number of processes */
} signs[] = {
	{"PMI_RANK", 0, false},
	{"PMI_SIZE", 1, true},
	{"PMI_ID", 0, false},
	{"PMI_FD", ANY, false},
	{"PMI_PORT", ANY, false},
	{"PMIX_RANK", 0, false},
	{"PMIX_NAMESPACE", ANY, false},
	{"JSM_NAMESPACE_RANK", 0, false},
	{"JSM_NAMESPACE_SIZE", 1, true},
	{"JSM_NAMESPACE_LOCAL_RANK", 0, false},
	{"PALS_APID", ANY, false},
	{"PALS_RANKID", 0, false},
	{"PALS_NODEID", 0, false},
	{"PALS_LOCAL_RANKID", 0, false},
	{"ALPS_APP_PE", 0, false},
	{"FLUX_TASK_RANK", 0, false},
	{"FLUX_JOB_SIZE", 1, true},
	{"MV2_COMM_WORLD_RANK", 0, false},
	{"MV2_COMM_WORLD_SIZE", 1, true},
	{"OMPI_COMM_WORLD_RANK", 0, false},
	{"OMPI_COMM_WORLD_SIZE", 1, true},
	{"OMPI_COMM_WORLD_LOCAL_SIZE", 1, false},
	{"MPI_LOCALNRANKS", 1, false},
	{"SLURM_STEP_NUM_TASKS", 1, true},
	{"SLURM_STEP_TASKS_PER_NODE", 1, false},
	{"LOCAL_RANK", 0, false},
	{"LOCAL_WORLD_SIZE", 1, false},
	{"HYDI_CONTROL_FD", ANY, false},
	{"JOB_COMPLETION_INDEX", ANY, false},
	{"PET_NODE_RANK", 0, false},
	{"PET_NNODES", 1, true},
};
#define SIGNS (sizeof(signs) / sizeof(signs[0]))

static const char *value_of(const char *name)
{
	return name ? getenv(name) : NULL;
}

static bool is_set(const char *name)
{
	const char *text = value_of(name);
	return text && *text;
}

static int read_number(const char *name, uint64_t least, uint64_t most, int *out, beton_error *err)
{
	const char *text = getenv(name);
	uint64_t value;
	if (!text)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "the environment variable %s is not set", name);
	int status = bt_parse_u64(name, text, least, most, &value, err);
	if (status != BETON_OK) {
		bt_prefix(err, "environment");
		return status;
	}
	*out = (int)value;
	return BETON_OK;
}

/* Ranks find out when they meet which of them share a machine, if the launcher does not tell it. */
static int read_local(const struct row *row, struct rank_env *out, beton_error *err)
{
	bool rank = value_of(row->local_rank), size = value_of(row->local_world_size);
	int status = BETON_OK;
	out->local_world_size = out->world_size;
	if (size)
		status = read_number(row->local_world_size, 1, (uint64_t)out->world_size, &out->local_world_size, err);
	if (status == BETON_OK && rank)
		status = read_number(row->local_rank, 0, (uint64_t)out->local_world_size - 1, &out->local_rank, err);
	out->has_local_rank = rank;
	out->local_known = (rank && size) || out->world_size == 1;
	if (!out->local_known)
		out->local_world_size = out->world_size;
	return status;
}

static void name_job(const struct row *row, struct rank_env *out)
{
	if (!is_set(row->job))
		return;
	snprintf(out->job, sizeof(out->job), "%s %.40s%s%.20s", row->job, getenv(row->job),
		 is_set(row->step) ? "." : "", is_set(row->step) ? getenv(row->step) : "");
	bt_sanitize(out->job);
}

static int read_ranks(const struct row *row, struct rank_env *out, beton_error *err)
{
	int status = read_number(row->world_size, 1, LAUNCH_MAX_RANKS, &out->world_size, err);
	if (status == BETON_OK)
		status = read_number(row->rank, 0, (uint64_t)out->world_size - 1, &out->rank, err);
	return status == BETON_OK ? read_local(row, out, err) : status;
}

static bool is_number(const char *name, uint64_t expected)
{
	uint64_t number;
	return value_of(name) && bt_parse_u64(name, getenv(name), expected, expected, &number, NULL) == BETON_OK;
}

static bool is_one(const char *name)
{
	return is_number(name, 1);
}

/* RANK is always used. With the others a single rank may be a shell, or a job that starts its own ranks. */
static bool is_present(const struct row *row)
{
	if (!value_of(row->rank) || (row->mark && !is_set(row->mark)))
		return false;
	return row->alone || (value_of(row->world_size) && !is_one(row->world_size));
}

static bool is_alone(const struct row *row)
{
	return value_of(row->rank) && is_one(row->world_size);
}

/* Another launcher's variables must tell the same. */
static int compare_ranks(const struct row *row, const struct row *other, const struct rank_env *env, beton_error *err)
{
	int rank = 0, world = 0;
	int status = read_number(other->world_size, 1, LAUNCH_MAX_RANKS, &world, err);
	if (status == BETON_OK)
		status = read_number(other->rank, 0, LAUNCH_MAX_RANKS, &rank, err);
	if (status != BETON_OK || (rank == env->rank && world == env->world_size))
		return status;
	return bt_fail(
		err, BETON_INVALID_ARGUMENT,
		"the environment contradicts itself: %s is %d and %s is %d, but %s is %d and %s is %d; unset the "
		"variables of one of the two",
		row->rank, env->rank, row->world_size, env->world_size, other->rank, rank, other->world_size, world);
}

static int compare_row(const struct row *row, const struct row *other, const struct rank_env *env, beton_error *err)
{
	bool by_hand = strcmp(row->rank, "RANK") == 0, pod = strcmp(other->world_size, "WORLD_SIZE") == 0;
	/* A single process of a launcher that could be within this row's: of mpirun whose daemons srun started, or of
	 * mpirun that srun started for each of its tasks. Only the user knows. */
	bool inner = row->outer && other < row && !other->alone && is_alone(other);
	if (inner)
		return compare_ranks(row, other, env, err);
	return other == row || (other->outer && !by_hand) || pod || !is_present(other)
		       ? BETON_OK
		       : compare_ranks(row, other, env, err);
}

static int compare_rows(const struct row *row, const struct rank_env *env, beton_error *err)
{
	int status = BETON_OK, world = 0;
	for (size_t i = 0; i < ROWS && status == BETON_OK && !row->nested; i++)
		status = compare_row(row, &rows[i], env, err);
	if (status != BETON_OK || !is_set("WORLD_SIZE"))
		return status;
	status = read_number("WORLD_SIZE", 1, LAUNCH_MAX_RANKS, &world, err);
	if (status != BETON_OK || world == env->world_size)
		return status;
	return bt_fail(err, BETON_INVALID_ARGUMENT,
		       "the environment contradicts itself: %s is %d, but WORLD_SIZE is %d; unset one of the two",
		       row->world_size, env->world_size, world);
}

/* "A" or "A and B" of MASTER_ADDR and MASTER_PORT, which are missing. */
static int fail_address(const struct rank_env *env, const char *why, beton_error *err)
{
	bool address = !*env->master_addr, port = !env->master_port;
	return bt_fail(err, BETON_INVALID_ARGUMENT, "the environment variable %s%s%s is not set%s%s",
		       address ? "MASTER_ADDR" : "", address && port ? ", or " : "", port ? "MASTER_PORT" : "",
		       why ? ": " : "", why ? why : "");
}

static int read_address(const struct row *row, struct rank_env *out, beton_error *err)
{
	const char *address = getenv("MASTER_ADDR");
	int port = 0, status = BETON_OK;
	if (address && strlen(address) >= sizeof(out->master_addr))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "the environment variable MASTER_ADDR is too long: %zu bytes", strlen(address));
	/* "[::1]", as in a URL. */
	bool brackets = address && *address == '[' && bt_ends_with(address, "]");
	snprintf(out->master_addr, sizeof(out->master_addr), "%.*s", address ? (int)strlen(address) - 2 * brackets : 0,
		 address ? address + brackets : "");
	if (is_set("MASTER_PORT"))
		status = read_number("MASTER_PORT", 1, UINT16_MAX, &port, err);
	out->master_port = (uint16_t)port;
	out->address_source = "MASTER_ADDR";
	out->ports = 1;
	if (status != BETON_OK || (*out->master_addr && port) || out->world_size == 1)
		return status;
	return row->find_address ? row->find_address(out, err) : fail_address(out, NULL, err);
}

/* The number may be any text. */
static uint16_t derive_port(const char *job, const char *step)
{
	uint64_t sum = 0, last = 0;
	for (const char *c = job; c && *c; c++)
		sum = (sum * (*c >= '0' && *c <= '9' ? 10 : 131) + (uint64_t)(unsigned char)*c - '0') % PORT_COUNT;
	for (const char *c = step; c && *c; c++)
		last = (last * 10 + (uint64_t)(unsigned char)*c - '0') % PORT_COUNT;
	return (uint16_t)(PORT_FIRST + (sum * STEPS + last) % PORT_COUNT);
}

static void take_port(struct rank_env *env, const char *job, const char *step)
{
	env->master_port = derive_port(job, step);
	env->ports = RANK_PORTS;
}

static int find_by_slurm(struct rank_env *env, beton_error *err)
{
	const char *list = getenv("SLURM_STEP_NODELIST"), *node = getenv("SLURMD_NODENAME");
	if (!env->master_port)
		take_port(env, getenv("SLURM_JOB_ID"), getenv("SLURM_STEP_ID"));
	if (*env->master_addr)
		return BETON_OK;
	/* The name of a node need not be one of its network. */
	if (is_one("SLURM_STEP_NUM_NODES")) {
		snprintf(env->master_addr, sizeof(env->master_addr), "%s", bt_loopback_host());
		env->address_source = "SLURM_STEP_NUM_NODES";
		return BETON_OK;
	}
	if (!list || !*list)
		return fail_address(env, "SLURM_STEP_NODELIST is missing, so the host of rank 0 is not known", err);
	int status = dtrain__first_host(list, env->master_addr, sizeof(env->master_addr), err);
	if (status != BETON_OK) {
		bt_prefix(err, "environment: SLURM_STEP_NODELIST");
		return status;
	}
	env->address_source = "SLURM_STEP_NODELIST";
	if (env->rank == 0 && node && strcmp(node, env->master_addr) != 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "rank 0 is on %s, which is not the first host of SLURM_STEP_NODELIST '%s' (another "
			       "--distribution?): set MASTER_ADDR to it on all ranks",
			       node, list);
	return BETON_OK;
}

/* A program between the launcher and this one may have closed the descriptor; its number may be another file's since.
 */
static int find_by_pmi(struct rank_env *env, beton_error *err)
{
	struct stat info;
	int fd = -1;
	if (!is_set("PMI_FD"))
		return fail_address(env, "PMI_FD is missing too, by which ranks could ask the launcher where rank 0 is",
				    err);
	int status = read_number("PMI_FD", 0, INT32_MAX, &fd, err);
	if (status != BETON_OK)
		return status;
	if (fstat(fd, &info) != 0 || !S_ISSOCK(info.st_mode))
		return bt_fail(err, BETON_INVALID_ARGUMENT,
			       "PMI_FD is %d, which is %s here, and not the launcher's connection; set MASTER_ADDR and "
			       "MASTER_PORT on all ranks",
			       fd, fcntl(fd, F_GETFD) < 0 ? "closed" : "no socket");
	env->exchange = RANK_EXCHANGE_PMI;
	env->address_source = "PMI";
	return BETON_OK;
}

static int find_by_pmix(struct rank_env *env, beton_error *err)
{
	(void)err;
	env->exchange = RANK_EXCHANGE_PMIX;
	env->address_source = "PMIx";
	return BETON_OK;
}

/* Without PMIx's library rank 0 has to be on mpirun's host, whose addresses the ranks know. */
static int find_by_open_mpi(struct rank_env *env, beton_error *err)
{
	const char *uri = getenv("OMPI_MCA_orte_hnp_uri");
	if (dtrain__pmix_is_there())
		return find_by_pmix(env, err);
	if (!env->master_port)
		take_port(env, getenv("OMPI_MCA_ess_base_jobid"), NULL);
	if (*env->master_addr)
		return BETON_OK;
	if (env->local_known && env->local_world_size == env->world_size)
		snprintf(env->master_addr, sizeof(env->master_addr), "%s", bt_loopback_host());
	else if (!uri || !dtrain__uri_hosts(uri, env->master_addr, sizeof(env->master_addr)))
		return fail_address(env, "mpirun tells where rank 0 is by PMIx, whose library libpmix.so.2 is not here",
				    err);
	env->address_source = "OMPI_MCA_orte_hnp_uri, mpirun's host";
	return BETON_OK;
}

static int find_by_pod(struct rank_env *env, beton_error *err)
{
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_CANONNAME}, *list = NULL;
	char name[RANK_ADDRESSES / 2] = "";
	bool found = *env->master_addr;
	if (!env->master_port)
		env->master_port = POD_PORT;
	if (!found && gethostname(name, sizeof(name) - 1) == 0) {
		/* With the service's name, if the system knows it. */
		if (getaddrinfo(name, NULL, &hints, &list) == 0 && list->ai_canonname &&
		    strncmp(list->ai_canonname, name, strlen(name)) == 0)
			snprintf(name, sizeof(name), "%s", list->ai_canonname);
		found = dtrain__first_pod(name, env->rank, env->master_addr, sizeof(env->master_addr));
		env->address_source = "the pod's name";
	}
	if (list)
		freeaddrinfo(list);
	return found ? BETON_OK
		     : fail_address(env, "this host's name does not end in JOB_COMPLETION_INDEX, so pod 0 is not known",
				    err);
}

int dtrain__first_host(const char *list, char *out, size_t size, beton_error *err)
{
	size_t used = 0;
	const char *c = list;
	while (*c && *c != ',') {
		if (*c == '[') {
			size_t number = strspn(c + 1, "0123456789");
			const char *end = strchr(c, ']');
			if (!number || !end || !strchr("-,]", c[1 + number]) || used + number >= size)
				break;
			memcpy(out + used, c + 1, number);
			used += number;
			c = end + 1;
		} else if (*c == ']' || used + 1 >= size) {
			break;
		} else {
			out[used++] = *c++;
		}
	}
	out[used] = '\0';
	if (used && (!*c || *c == ','))
		return BETON_OK;
	return bt_fail(err, BETON_INVALID_ARGUMENT, "'%s' is not a list of hosts", list);
}

bool dtrain__first_pod(const char *name, int index, char *out, size_t size)
{
	char suffix[16];
	int length = (int)strcspn(name, "."), tail = snprintf(suffix, sizeof(suffix), "-%d", index);
	if (length <= tail || strncmp(name + length - tail, suffix, (size_t)tail) != 0)
		return false;
	return (size_t)snprintf(out, size, "%.*s-0%s", length - tail, name, name + length) < size;
}

bool dtrain__uri_hosts(const char *uri, char *out, size_t size)
{
	*out = '\0';
	for (const char *part = strstr(uri, "://"); part; part = strstr(part, "://")) {
		part += 3;
		size_t length = strcspn(part, ";"), address = length;
		while (address > 0 && part[address] != ':')
			address--;
		const char *host = *part == '[' ? part + 1 : part;
		int bytes = (int)(address - (size_t)(host - part)) - (*part == '[');
		if (bytes > 0)
			bt_append(out, size, "%s%.*s", *out ? "," : "", bytes, host);
		part += length;
	}
	return *out;
}

/* "PMI_RANK=1, PMI_ID=2" of what is set. */
static void list_signs(char *text, size_t size)
{
	*text = '\0';
	for (size_t i = 0; i < SIGNS; i++)
		if (is_set(signs[i].name))
			bt_append(text, size, "%s%s=%.40s", *text ? ", " : "", signs[i].name, getenv(signs[i].name));
	if (is_set("WORLD_SIZE"))
		bt_append(text, size, "%sWORLD_SIZE=%.40s", *text ? ", " : "", getenv("WORLD_SIZE"));
	bt_sanitize(text);
}

/* Whether a sign shows other processes; *single: one shows that there is none. */
static bool signs_show_others(bool *single)
{
	bool others = is_set("WORLD_SIZE") && !is_one("WORLD_SIZE");
	for (size_t i = 0; i < SIGNS; i++) {
		if (!is_set(signs[i].name) || signs[i].single == ANY)
			continue;
		bool fits = is_number(signs[i].name, (uint64_t)signs[i].single);
		others = others || !fits;
		*single = *single || (fits && signs[i].counts);
	}
	return others;
}

/* PMIx's own launchers tell the rest only on demand. */
static int read_pmix(struct rank_env *out, beton_error *err)
{
	pmix_world world;
	int status = dtrain__pmix_world(&world, err);
	if (status != BETON_OK || world.size == 1)
		return status;
	out->rank = world.rank;
	out->world_size = world.size;
	out->local_rank = world.local_rank;
	out->local_world_size = world.local_size;
	out->started = out->local_known = out->has_local_rank = true;
	out->source = "PMIX_RANK";
	const struct row row = {.find_address = find_by_pmix};
	return read_address(&row, out, err);
}

/* Checks a process to which no row applies: it must not train alone where others do the same. alone: a row shows a
 * single process. */
static int check_signs(bool alone, struct rank_env *out, beton_error *err)
{
	char text[400];
	bool single = alone, others = signs_show_others(&single);
	/* The user's own word. */
	if (is_one("WORLD_SIZE"))
		return BETON_OK;
	/* Even if srun started one task: that may be a shell, and another launcher was started there. */
	if (is_set("PMIX_RANK") && !is_one("OMPI_COMM_WORLD_SIZE") && dtrain__pmix_is_there()) {
		int status = read_pmix(out, err);
		if (out->started || (status != BETON_OK && (others || !single)))
			return status;
		single = true;
	}
	list_signs(text, sizeof(text));
	if ((single && !others) || !*text)
		return BETON_OK;
	return bt_fail(
		err, BETON_INVALID_ARGUMENT,
		"the environment has %s, which are incomplete or of an unknown launcher: each process would train by "
		"itself; set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each (WORLD_SIZE alone if "
		"JOB_COMPLETION_INDEX is set), or WORLD_SIZE=1 to train in each process separately",
		text);
}

int dtrain__rank_env_read(struct rank_env *out, beton_error *err)
{
	const char *hosted = getenv("DTRAIN_STORE_HOSTED"), *token = getenv("DTRAIN_STORE_TOKEN");
	bool alone = false;
	*out = (struct rank_env){.world_size = 1, .local_world_size = 1};
	out->store_token = token && *token ? token : NULL;
	for (size_t i = 0; i < ROWS; i++) {
		const struct row *row = &rows[i];
		alone = alone || is_alone(row);
		if (!is_present(row))
			continue;
		out->started = true;
		out->source = row->source;
		out->store_hosted = hosted && strcmp(hosted, "1") == 0;
		name_job(row, out);
		int status = read_ranks(row, out, err);
		if (status == BETON_OK)
			status = compare_rows(row, out, err);
		return status == BETON_OK ? read_address(row, out, err) : status;
	}
	return check_signs(alone, out, err);
}

int dtrain__rank_env_failure_status(const struct rank_env *env, int code)
{
	bool peer = code == BETON_PEER_LOST || code == BETON_TIMEOUT;
	return env->started && peer ? LAUNCH_EXIT_PEER_LOST : EXIT_FAILURE;
}

bool dtrain__rank_env_hosts_store(const struct rank_env *env)
{
	return env->started && env->world_size > 1 && env->rank == 0 && !env->store_hosted;
}

bool dtrain__rank_env_is_open(const struct rank_env *env)
{
	return dtrain__rank_env_hosts_store(env) && !env->store_token && !bt_is_loopback(env->master_addr);
}
