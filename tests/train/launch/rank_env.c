/* SPDX-License-Identifier: Apache-2.0
 *
 * A process's rank and cores, from its environment.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "train/launch/launcher_cores.h"
#include "train/launch/rank_meet.h"

static void cores_are_shared_out(void **state)
{
	cpu_set_t all, mine, seen;

	(void)state;
	CPU_ZERO(&all);
	for (int cpu = 3; cpu < 13; cpu++)
		CPU_SET(cpu, &all);
	CPU_ZERO(&seen);
	for (int rank = 0; rank < 4; rank++) {
		cpu_set_t both;

		assert_true(dtrain__rank_cores(&all, rank, 4, &mine));
		assert_in_range(CPU_COUNT(&mine), 2, 3);
		CPU_AND(&both, &mine, &seen);
		assert_int_equal(CPU_COUNT(&both), 0);
		CPU_OR(&seen, &seen, &mine);
	}
	assert_true(CPU_EQUAL(&seen, &all));
	for (int rank = 0; rank < 24; rank++) {
		assert_true(dtrain__rank_cores(&all, rank, 24, &mine));
		assert_int_equal(CPU_COUNT(&mine), 1);
		assert_true(CPU_ISSET(3 + rank % 10, &mine));
	}
	CPU_ZERO(&all);
	assert_false(dtrain__rank_cores(&all, 0, 1, &mine));
}

static void expect_environment(const char *name, const char *value, const char *named)
{
	struct rank_env env;
	beton_error err = {0};
	char before[64];

	snprintf(before, sizeof(before), "%s", getenv(name));
	if (value)
		setenv(name, value, 1);
	else
		unsetenv(name);
	assert_int_equal(dtrain__rank_env_read(&env, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, named));
	setenv(name, before, 1);
}

static void environment_is_checked(void **state)
{
	struct rank_env env;

	(void)state;
	assert_int_equal(dtrain__rank_env_read(&env, NULL), BETON_OK);
	assert_false(env.started);
	assert_int_equal(env.world_size, 1);
	setenv("RANK", "5", 1);
	setenv("WORLD_SIZE", "8", 1);
	setenv("LOCAL_RANK", "1", 1);
	setenv("LOCAL_WORLD_SIZE", "4", 1);
	setenv("MASTER_ADDR", "example.org", 1);
	setenv("MASTER_PORT", "29500", 1);
	assert_int_equal(dtrain__rank_env_read(&env, NULL), BETON_OK);
	assert_true(env.started && !env.store_hosted);
	assert_int_equal(env.rank, 5);
	assert_int_equal(env.local_rank, 1);
	assert_int_equal(env.master_port, 29500);
	assert_string_equal(env.master_addr, "example.org");
	expect_environment("RANK", "8", "RANK");
	expect_environment("RANK", "-1", "RANK");
	expect_environment("RANK", "", "RANK");
	expect_environment("RANK", "1x", "RANK");
	expect_environment("WORLD_SIZE", NULL, "WORLD_SIZE");
	expect_environment("WORLD_SIZE", "0", "WORLD_SIZE");
	expect_environment("LOCAL_RANK", "4", "LOCAL_RANK");
	expect_environment("MASTER_PORT", "65536", "MASTER_PORT");
	expect_environment("MASTER_PORT", NULL, "MASTER_PORT");
	expect_environment("MASTER_ADDR", NULL, "MASTER_ADDR");
	unsetenv("RANK");
}

/* Variables "NAME=VALUE" of a case. */
typedef const char *const variables[10];

static const char *const known[] = {"RANK",
				    "WORLD_SIZE",
				    "LOCAL_RANK",
				    "LOCAL_WORLD_SIZE",
				    "MASTER_ADDR",
				    "MASTER_PORT",
				    "DTRAIN_STORE_HOSTED",
				    "DTRAIN_STORE_TOKEN",
				    "TORCHELASTIC_RUN_ID",
				    "OMPI_COMM_WORLD_RANK",
				    "OMPI_COMM_WORLD_SIZE",
				    "OMPI_COMM_WORLD_LOCAL_RANK",
				    "OMPI_COMM_WORLD_LOCAL_SIZE",
				    "OMPI_MCA_orte_hnp_uri",
				    "OMPI_MCA_ess_base_jobid",
				    "PMI_RANK",
				    "PMI_SIZE",
				    "PMI_FD",
				    "PMI_ID",
				    "PMI_PORT",
				    "PMI_LOCAL_RANK",
				    "PMI_LOCAL_SIZE",
				    "PMIX_RANK",
				    "PMIX_NAMESPACE",
				    "MPI_LOCALRANKID",
				    "MPI_LOCALNRANKS",
				    "HYDI_CONTROL_FD",
				    "SLURM_PROCID",
				    "SLURM_LOCALID",
				    "SLURM_NTASKS",
				    "SLURM_STEP_NUM_TASKS",
				    "SLURM_STEP_TASKS_PER_NODE",
				    "SLURM_STEP_NODELIST",
				    "SLURM_STEP_NUM_NODES",
				    "SLURMD_NODENAME",
				    "SLURM_JOB_ID",
				    "SLURM_STEP_ID",
				    "JOB_COMPLETION_INDEX",
				    "JSM_NAMESPACE_RANK",
				    "JSM_NAMESPACE_SIZE",
				    "JSM_NAMESPACE_LOCAL_RANK",
				    "PALS_RANKID",
				    "PALS_APID",
				    "PALS_LOCAL_RANKID",
				    "PALS_NODEID",
				    "FLUX_TASK_RANK",
				    "FLUX_JOB_SIZE",
				    "PET_NNODES"};

static int read_with(const char *const *set, struct rank_env *env, beton_error *err)
{
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		unsetenv(known[i]);
	for (int i = 0; i < 10 && set[i]; i++) {
		char name[64];

		snprintf(name, sizeof(name), "%.*s", (int)strcspn(set[i], "="), set[i]);
		setenv(name, strchr(set[i], '=') + 1, 1);
	}
	return dtrain__rank_env_read(env, err);
}

#define SRUN "SLURM_PROCID=5", "SLURM_STEP_NUM_TASKS=8", "SLURM_LOCALID=1"
#define SRUN_LIST "SLURM_STEP_NODELIST=gpu[07-09],big1"
#define MPIRUN "OMPI_COMM_WORLD_RANK=2", "OMPI_COMM_WORLD_SIZE=6", "OMPI_COMM_WORLD_LOCAL_RANK=0"
#define MPIEXEC "PMI_RANK=3", "PMI_SIZE=4", "MPI_LOCALRANKID=1", "MPI_LOCALNRANKS=2", "PMI_FD=9"
#define PLACE "MASTER_ADDR=node1", "MASTER_PORT=29500"

/* The row that counts, and what it tells. */
static const struct {
	variables set;
	const char *source; /* NULL: a process by itself */
	int rank, world_size, local_rank;
	int local_world_size; /* 0: not known */
	const char *address;  /* NULL: exchanged */
	int port;
} launchers[] = {
	{{"A="}, NULL, 0, 1, 0, 1, "", 0},
	{{"DTRAIN_STORE_HOSTED=1", "RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", PLACE},
	 "dtrain-ffcv's RANK",
	 1,
	 2,
	 1,
	 2,
	 "node1",
	 29500},
	{{"TORCHELASTIC_RUN_ID=none", "RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", PLACE},
	 "torchrun's RANK",
	 5,
	 8,
	 1,
	 4,
	 "node1",
	 29500},
	/* Slurm started torchrun's agents. */
	{{"TORCHELASTIC_RUN_ID=none", "RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4", PLACE,
	  "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2"},
	 "torchrun's RANK",
	 5,
	 8,
	 1,
	 4,
	 "node1",
	 29500},
	{{"RANK=1", "WORLD_SIZE=2", PLACE}, "RANK", 1, 2, 0, 0, "node1", 29500},
	/* As in a URL. */
	{{"RANK=1", "WORLD_SIZE=2", "MASTER_ADDR=[fd00::1]", "MASTER_PORT=29500"},
	 "RANK",
	 1,
	 2,
	 0,
	 0,
	 "fd00::1",
	 29500},
	{{"RANK=0", "WORLD_SIZE=1"}, "RANK", 0, 1, 0, 1, "", 0},
	{{SRUN, SRUN_LIST, "SLURM_JOB_ID=7", "SLURM_STEP_ID=2"},
	 "srun's SLURM_PROCID",
	 5,
	 8,
	 1,
	 0,
	 "gpu07",
	 10000 + 7 * 31 + 2},
	/* On one machine, whose name need not mean anything. */
	{{SRUN, SRUN_LIST, "SLURM_STEP_NUM_NODES=1", "SLURM_JOB_ID=7"},
	 "srun's SLURM_PROCID",
	 5,
	 8,
	 1,
	 0,
	 "127.0.0.1",
	 10000 + 7 * 31},
	{{SRUN, SRUN_LIST, "MASTER_PORT=99"}, "srun's SLURM_PROCID", 5, 8, 1, 0, "gpu07", 99},
	{{SRUN, PLACE}, "srun's SLURM_PROCID", 5, 8, 1, 0, "node1", 29500},
	/* With --mpi=pmi2. */
	{{SRUN, SRUN_LIST, "PMI_RANK=5", "PMI_SIZE=8", "PMI_FD=3"}, "srun's SLURM_PROCID", 5, 8, 1, 0, "gpu07", 10000},
	{{MPIRUN, "OMPI_COMM_WORLD_LOCAL_SIZE=2", PLACE}, "mpirun's OMPI_COMM_WORLD_RANK", 2, 6, 0, 2, "node1", 29500},
	/* Without PMIx, by mpirun's host; srun may have started its daemons. */
	{{MPIRUN, "OMPI_COMM_WORLD_LOCAL_SIZE=2", "OMPI_MCA_ess_base_jobid=20003",
	  "OMPI_MCA_orte_hnp_uri=1.0;tcp://10.0.0.1,10.1.0.1:1234;tcp6://[fd00::1]:99", "SLURM_PROCID=0",
	  "SLURM_STEP_NUM_TASKS=3"},
	 "mpirun's OMPI_COMM_WORLD_RANK",
	 2,
	 6,
	 0,
	 2,
	 "10.0.0.1,10.1.0.1,fd00::1",
	 10000 + 3 * 31},
	{{MPIEXEC}, "mpiexec's PMI_RANK", 3, 4, 1, 2, NULL, 0},
	{{MPIEXEC, "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2"}, "mpiexec's PMI_RANK", 3, 4, 1, 2, NULL, 0},
	{{"PMI_RANK=3", "PMI_SIZE=4", "PMI_FD=9"}, "PMI_RANK", 3, 4, 0, 0, NULL, 0},
	{{"PMI_RANK=3", "PMI_SIZE=4", "PALS_RANKID=3", PLACE}, "PMI_RANK", 3, 4, 0, 0, "node1", 29500},
	{{"JOB_COMPLETION_INDEX=2", "WORLD_SIZE=4", PLACE},
	 "Kubernetes' JOB_COMPLETION_INDEX",
	 2,
	 4,
	 0,
	 0,
	 "node1",
	 29500},
	{{"JOB_COMPLETION_INDEX=2", "WORLD_SIZE=4", "MASTER_ADDR=pod"},
	 "Kubernetes' JOB_COMPLETION_INDEX",
	 2,
	 4,
	 0,
	 0,
	 "pod",
	 29500},
	/* Two ranks in each pod. */
	{{"JOB_COMPLETION_INDEX=1", "RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", PLACE},
	 "RANK",
	 3,
	 4,
	 1,
	 2,
	 "node1",
	 29500},
	/* A batch script, which srun did not start; single processes of launchers. */
	{{"SLURM_PROCID=0", "SLURM_NTASKS=8"}, NULL, 0, 1, 0, 1, "", 0},
	{{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1", "PMIX_RANK=0"}, NULL, 0, 1, 0, 1, "", 0},
	{{"PMI_RANK=0", "PMI_SIZE=1", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=1", "HYDI_CONTROL_FD=7"},
	 NULL,
	 0,
	 1,
	 0,
	 1,
	 "",
	 0},
	{{"JOB_COMPLETION_INDEX=2", "WORLD_SIZE=1"}, NULL, 0, 1, 0, 1, "", 0},
	{{"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=01"}, NULL, 0, 1, 0, 1, "", 0},
	{{"SLURM_STEP_NUM_TASKS=1", "SLURM_STEP_TASKS_PER_NODE=1"}, NULL, 0, 1, 0, 1, "", 0},
	{{"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1", "PMIX_RANK=0", "PMIX_NAMESPACE=slurm.pmix.1.0"},
	 NULL,
	 0,
	 1,
	 0,
	 1,
	 "",
	 0},
	{{"JSM_NAMESPACE_RANK=0", "JSM_NAMESPACE_SIZE=1", "JSM_NAMESPACE_LOCAL_RANK=0"}, NULL, 0, 1, 0, 1, "", 0},
	{{"FLUX_TASK_RANK=0", "FLUX_JOB_SIZE=1"}, NULL, 0, 1, 0, 1, "", 0},
	{{"JSM_NAMESPACE_RANK=2", "JSM_NAMESPACE_SIZE=4", "WORLD_SIZE=1"}, NULL, 0, 1, 0, 1, "", 0},
};

static void launchers_are_understood(void **state)
{
	beton_error err = {0};
	struct rank_env env;

	(void)state;
	for (size_t i = 0; i < sizeof(launchers) / sizeof(launchers[0]); i++) {
		int local = launchers[i].local_world_size ? launchers[i].local_world_size : launchers[i].world_size;

		if (read_with(launchers[i].set, &env, &err))
			fail_msg("case %zu: %s", i, err.message);
		assert_int_equal(env.started, launchers[i].source != NULL);
		if (launchers[i].source)
			assert_string_equal(env.source, launchers[i].source);
		assert_int_equal(env.rank, launchers[i].rank);
		assert_int_equal(env.world_size, launchers[i].world_size);
		assert_int_equal(env.local_rank, launchers[i].local_rank);
		assert_int_equal(env.local_world_size, local);
		if (env.started)
			assert_int_equal(env.local_known, launchers[i].local_world_size != 0);
		assert_int_equal(env.exchange != RANK_EXCHANGE_NONE, launchers[i].address == NULL);
		assert_string_equal(env.master_addr, launchers[i].address ? launchers[i].address : "");
		assert_int_equal(env.master_port, launchers[i].port);
	}
}

/* The message names variables that are missing, contradict each other or belong to an unknown launcher. */
static void wrong_environments_are_refused(void **state)
{
	static const struct {
		variables set;
		const char *named[3];
	} cases[] = {
		{{"RANK=0", "WORLD_SIZE=2", "LOCAL_RANK=0", PLACE, "PMI_RANK=1", "PMI_SIZE=4"},
		 {"contradicts", "RANK is 0 and WORLD_SIZE is 2", "PMI_RANK is 1 and PMI_SIZE is 4"}},
		{{"RANK=0", "WORLD_SIZE=1", SRUN},
		 {"contradicts", "WORLD_SIZE is 1", "SLURM_PROCID is 5 and SLURM_STEP_NUM_TASKS is 8"}},
		{{SRUN, SRUN_LIST, "WORLD_SIZE=4"}, {"contradicts", "SLURM_STEP_NUM_TASKS is 8", "WORLD_SIZE is 4"}},
		{{SRUN, SRUN_LIST, "PMI_RANK=4", "PMI_SIZE=8"}, {"contradicts", "SLURM_PROCID is 5", "PMI_RANK is 4"}},
		{{MPIRUN, MPIEXEC}, {"contradicts", "OMPI_COMM_WORLD_RANK is 2", "PMI_RANK is 3"}},
		{{"SLURM_PROCID=8", "SLURM_STEP_NUM_TASKS=8", SRUN_LIST}, {"SLURM_PROCID"}},
		{{SRUN}, {"MASTER_ADDR is not set", "SLURM_STEP_NODELIST is missing"}},
		{{SRUN, "SLURM_STEP_NODELIST=n[1-2"}, {"SLURM_STEP_NODELIST", "'n[1-2' is not a list of hosts"}},
		{{"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=8", SRUN_LIST, "SLURMD_NODENAME=big1"},
		 {"rank 0 is on big1", "set MASTER_ADDR"}},
		{{MPIRUN}, {"MASTER_ADDR is not set", "libpmix.so.2"}},
		{{"PMI_RANK=3", "PMI_SIZE=4"}, {"MASTER_ADDR, or MASTER_PORT is not set", "PMI_FD is missing"}},
		{{"PMI_RANK=3"}, {"PMI_RANK=3", "incomplete"}},
		{{"PMI_ID=3", "PMI_PORT=host:99"}, {"PMI_ID=3, PMI_PORT=host:99"}},
		{{"PMIX_RANK=1", "PMIX_NAMESPACE=prterun-1"}, {"PMI"}},
		{{"JSM_NAMESPACE_RANK=2", "JSM_NAMESPACE_SIZE=4"}, {"JSM_NAMESPACE_RANK=2, JSM_NAMESPACE_SIZE=4"}},
		{{"JSM_NAMESPACE_LOCAL_RANK=1"}, {"JSM_NAMESPACE_LOCAL_RANK=1"}},
		{{"PALS_RANKID=1"}, {"PALS_RANKID=1"}},
		{{"PALS_APID=77", "PALS_LOCAL_RANKID=0", "PALS_NODEID=0"},
		 {"PALS_APID=77", "PALS_NODEID=0", "PALS_LOCAL_RANKID=0"}},
		{{"FLUX_TASK_RANK=1"}, {"FLUX_TASK_RANK=1"}},
		{{"PET_NNODES=2"}, {"PET_NNODES=2"}},
		{{"JOB_COMPLETION_INDEX=0"}, {"JOB_COMPLETION_INDEX=0", "WORLD_SIZE alone"}},
		{{"JOB_COMPLETION_INDEX=1", "WORLD_SIZE=4"}, {"MASTER_ADDR is not set", "JOB_COMPLETION_INDEX"}},
		{{"WORLD_SIZE=4"}, {"WORLD_SIZE=4"}},
		/* A program between the launcher and this one dropped the rank. */
		{{"SLURM_STEP_NUM_TASKS=8", SRUN_LIST}, {"SLURM_STEP_NUM_TASKS=8"}},
		{{"SLURM_STEP_TASKS_PER_NODE=4(x2)"}, {"SLURM_STEP_TASKS_PER_NODE=4(x2)"}},
		{{"TORCHELASTIC_RUN_ID=none", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2"},
		 {"LOCAL_RANK=0", "LOCAL_WORLD_SIZE=2"}},
		{{"MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=2"}, {"MPI_LOCALNRANKS=2"}},
		{{"OMPI_COMM_WORLD_LOCAL_SIZE=2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE=2"}},
		{{"WORLD_SIZE=1x"}, {"WORLD_SIZE=1x"}},
		/* srun runs one shell, and another launcher was started there. */
		{{"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1", "PMIX_RANK=1", "PMIX_NAMESPACE=prterun-1"}, {"PMI"}},
		{{"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1", "JSM_NAMESPACE_RANK=0", "JSM_NAMESPACE_SIZE=4"},
		 {"JSM_NAMESPACE_RANK=0, JSM_NAMESPACE_SIZE=4"}},
		{{"SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=1", "PALS_RANKID=2"}, {"PALS_RANKID=2"}},
		/* One process by mpirun, whose daemons srun started, or four times mpirun by srun. */
		{{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2",
		  SRUN_LIST},
		 {"contradicts", "OMPI_COMM_WORLD_SIZE is 1", "SLURM_STEP_NUM_TASKS is 2"}},
		/* The descriptor of the launcher: closed, of something else, or none. */
		{{"PMI_RANK=0", "PMI_SIZE=2", "PMI_FD=77"}, {"PMI_FD is 77", "MASTER_ADDR"}},
		{{"PMI_RANK=0", "PMI_SIZE=2", "PMI_FD=8"}, {"PMI_FD is 8", "no socket"}},
		{{"PMI_RANK=0", "PMI_SIZE=2", "PMI_FD=x"}, {"PMI_FD: 'x'"}},
		{{"PMI_RANK=0", "PMI_SIZE=2", "PMI_FD=99999999999"}, {"PMI_FD: '99999999999'"}},
	};
	struct rank_env env;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		beton_error err = {0};
		int status = read_with(cases[i].set, &env, &err);

		if (status == BETON_OK)
			fail_msg("case %zu, %s: accepted", i, cases[i].set[0]);
		for (int part = 0; part < 3 && cases[i].named[part]; part++)
			if (!strstr(err.message, cases[i].named[part]))
				fail_msg("case %zu: no '%s' in: %s", i, cases[i].named[part], err.message);
	}
	read_with((variables){NULL}, &env, NULL);
}

static void lists_of_hosts_are_read(void **state)
{
	static const struct {
		const char *list, *first; /* NULL: refused */
	} cases[] = {
		{"n1", "n1"},
		{"n1,m[2-3]", "n1"},
		{"n[1-2]", "n1"},
		{"tux[0-5,12]", "tux0"},
		{"tux[7,9-12],big", "tux7"},
		{"lx[0000-1023]", "lx0000"},
		{"rack[00-63]_blade[1,4-41]", "rack00_blade1"},
		{"a[1]b[2]c,d", "a1b2c"},
		{"node-7.example.org", "node-7.example.org"},
		{"", NULL},
		{",n1", NULL},
		{"n[", NULL},
		{"n[]", NULL},
		{"n[1", NULL},
		{"n[a-b]", NULL},
		{"n[1-2", NULL},
		{"n1]", NULL},
	};
	char host[32];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int status = dtrain__first_host(cases[i].list, host, sizeof(host), NULL);

		assert_int_equal(status, cases[i].first ? BETON_OK : BETON_INVALID_ARGUMENT);
		if (cases[i].first)
			assert_string_equal(host, cases[i].first);
	}
	assert_int_equal(dtrain__first_host("n[0000-9999]", host, 5, NULL), BETON_INVALID_ARGUMENT);
	assert_int_equal(dtrain__first_host("n[000-999]", host, 5, NULL), BETON_OK);
}

static void pods_and_addresses_are_read(void **state)
{
	char text[64];

	(void)state;
	assert_true(dtrain__first_pod("train-3", 3, text, sizeof(text)));
	assert_string_equal(text, "train-0");
	assert_true(dtrain__first_pod("a-1-12.svc.team.svc.cluster.local", 12, text, sizeof(text)));
	assert_string_equal(text, "a-1-0.svc.team.svc.cluster.local");
	assert_false(dtrain__first_pod("train-13", 3, text, sizeof(text)));
	assert_false(dtrain__first_pod("-3", 3, text, sizeof(text)));
	assert_false(dtrain__first_pod("vm", 0, text, sizeof(text)));
	assert_false(dtrain__first_pod("train-3", 3, text, 7));
	assert_true(dtrain__uri_hosts("2127626240.0;tcp://192.0.2.2:59051;tcp6://[fd00::2]:36565", text, sizeof(text)));
	assert_string_equal(text, "192.0.2.2,fd00::2");
	assert_true(dtrain__uri_hosts("1.0;tcp://10.0.0.1,10.1.0.1:1", text, sizeof(text)));
	assert_string_equal(text, "10.0.0.1,10.1.0.1");
	assert_false(dtrain__uri_hosts("1.0", text, sizeof(text)));
	assert_false(dtrain__uri_hosts("1.0;tcp://", text, sizeof(text)));
}

/* A warning is worth its line where somebody else could be at the port. */
static void open_stores_are_known(void **state)
{
	static const struct {
		const char *address, *rank, *token;
		bool open;
	} cases[] = {
		{"node1", "0", NULL, true},      {"10.0.0.7", "0", "", true},
		{"node1", "1", NULL, false},     {"node1", "0", "00112233445566778899aabbccddeeff", false},
		{"127.0.0.1", "0", NULL, false}, {"localhost", "0", NULL, false},
		{"::1", "0", NULL, false},
	};
	struct rank_env env;

	(void)state;
	setenv("WORLD_SIZE", "2", 1);
	setenv("MASTER_PORT", "29500", 1);
	setenv("LOCAL_RANK", "0", 1);
	unsetenv("LOCAL_WORLD_SIZE");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		setenv("MASTER_ADDR", cases[i].address, 1);
		setenv("RANK", cases[i].rank, 1);
		if (cases[i].token)
			setenv("DTRAIN_STORE_TOKEN", cases[i].token, 1);
		else
			unsetenv("DTRAIN_STORE_TOKEN");
		assert_int_equal(dtrain__rank_env_read(&env, NULL), BETON_OK);
		assert_int_equal(dtrain__rank_env_is_open(&env), cases[i].open);
	}
	unsetenv("RANK");
	unsetenv("DTRAIN_STORE_TOKEN");
}

/* A token that is none stops a rank, and is not printed. */
static void bad_token_is_named(void **state)
{
	const rank_meet_options meet = {.connect_ms = 100, .wait_ms = 100, .lease_ms = 20000};
	rank_meeting meeting;
	beton_error err = {0};
	struct rank_env env;

	(void)state;
	setenv("RANK", "0", 1);
	setenv("WORLD_SIZE", "2", 1);
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	setenv("MASTER_PORT", "29500", 1);
	setenv("DTRAIN_STORE_TOKEN", "secret", 1);
	assert_int_equal(dtrain__rank_env_read(&env, NULL), BETON_OK);
	assert_int_equal(dtrain__rank_meet(&env, &meet, &meeting, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "DTRAIN_STORE_TOKEN"));
	assert_null(strstr(err.message, "secret"));
	assert_null(meeting.server);
	unsetenv("RANK");
	unsetenv("DTRAIN_STORE_TOKEN");
}

/* The tests' PMI_FD is 9. 8 is another file. */
static int open_launcher(void **state)
{
	static int ends[2];

	*state = ends;
	return socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && dup2(ends[0], 9) == 9 &&
			       dup2(open("/dev/null", O_RDWR), 8) == 8
		       ? 0
		       : -1;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cores_are_shared_out),     cmocka_unit_test(environment_is_checked),
		cmocka_unit_test(launchers_are_understood), cmocka_unit_test(wrong_environments_are_refused),
		cmocka_unit_test(lists_of_hosts_are_read),  cmocka_unit_test(pods_and_addresses_are_read),
		cmocka_unit_test(open_stores_are_known),    cmocka_unit_test(bad_token_is_named),
	};

	unsetenv("RANK");
	unsetenv("SLURM_PROCID");
	unsetenv("OMPI_COMM_WORLD_RANK");
	unsetenv("DTRAIN_STORE_HOSTED");
	unsetenv("DTRAIN_STORE_TOKEN");
	return cmocka_run_group_tests(tests, open_launcher, NULL);
}
