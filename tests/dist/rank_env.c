/* SPDX-License-Identifier: Apache-2.0
 *
 * What a process makes of its environment: which rank it is, and which cores it gets.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "train/run/launcher_cores.h"
#include "train/run/rank_env.h"

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

struct started {
	const char *variables[4], *values[4]; /* rank, size, local rank, local size */
	const char *source;
};

static void set_all(const struct started *job, bool present)
{
	for (int i = 0; i < 4 && job->variables[i]; i++) {
		if (present)
			setenv(job->variables[i], job->values[i], 1);
		else
			unsetenv(job->variables[i]);
	}
}

/* mpirun's own daemons may have srun's variables: its come first. */
static void other_launchers_are_understood(void **state)
{
	static const struct started srun = {
		{"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"}, {"5", "8", "1"}, "srun's SLURM_PROCID"};
	static const struct started mpirun = {{"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
					       "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
					      {"2", "6", "0", "2"},
					      "mpirun's OMPI_COMM_WORLD_RANK"};
	beton_error err = {0};
	struct rank_env env;

	(void)state;
	/* A batch script, which srun did not start. */
	setenv("SLURM_PROCID", "0", 1);
	setenv("SLURM_NTASKS", "8", 1);
	assert_int_equal(dtrain__rank_env_read(&env, NULL), BETON_OK);
	assert_false(env.started);
	set_all(&srun, true);
	unsetenv("MASTER_ADDR");
	unsetenv("MASTER_PORT");
	assert_int_equal(dtrain__rank_env_read(&env, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "MASTER_PORT is not set: srun does not tell the ranks where rank 0 is"));
	setenv("MASTER_PORT", "29500", 1);
	assert_int_equal(dtrain__rank_env_read(&env, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "MASTER_ADDR is not set: srun does not"));
	setenv("MASTER_ADDR", "node1", 1);
	assert_int_equal(dtrain__rank_env_read(&env, NULL), BETON_OK);
	assert_true(env.started && env.rank == 5 && env.world_size == 8 && env.local_rank == 1);
	assert_string_equal(env.source, srun.source);
	expect_environment("SLURM_PROCID", "8", "SLURM_PROCID");
	set_all(&mpirun, true);
	assert_int_equal(dtrain__rank_env_read(&env, NULL), BETON_OK);
	assert_true(env.rank == 2 && env.world_size == 6 && env.local_rank == 0 && env.local_world_size == 2);
	assert_string_equal(env.source, mpirun.source);
	assert_string_equal(env.master_addr, "node1");
	setenv("OMPI_COMM_WORLD_RANK", "0", 1);
	setenv("OMPI_COMM_WORLD_SIZE", "1", 1);
	set_all(&srun, false);
	assert_int_equal(dtrain__rank_env_read(&env, NULL), BETON_OK);
	assert_false(env.started);
	set_all(&mpirun, false);
	unsetenv("SLURM_NTASKS");
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
	dtrain_store_server *server = NULL;
	dtrain_store *store = NULL;
	beton_error err = {0};
	struct rank_env env;

	(void)state;
	setenv("RANK", "0", 1);
	setenv("WORLD_SIZE", "2", 1);
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	setenv("MASTER_PORT", "29500", 1);
	setenv("DTRAIN_STORE_TOKEN", "secret", 1);
	assert_int_equal(dtrain__rank_env_read(&env, NULL), BETON_OK);
	assert_int_equal(dtrain__rank_env_store(&env, NULL, 100, &server, &store, &err), BETON_INVALID_ARGUMENT);
	assert_non_null(strstr(err.message, "DTRAIN_STORE_TOKEN"));
	assert_null(strstr(err.message, "secret"));
	assert_null(server);
	unsetenv("RANK");
	unsetenv("DTRAIN_STORE_TOKEN");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cores_are_shared_out),
		cmocka_unit_test(environment_is_checked),
		cmocka_unit_test(other_launchers_are_understood),
		cmocka_unit_test(open_stores_are_known),
		cmocka_unit_test(bad_token_is_named),
	};

	unsetenv("RANK");
	unsetenv("SLURM_PROCID");
	unsetenv("OMPI_COMM_WORLD_RANK");
	unsetenv("DTRAIN_STORE_HOSTED");
	unsetenv("DTRAIN_STORE_TOKEN");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
