/* SPDX-License-Identifier: Apache-2.0
 *
 * dtrain-bench comm: every operation of a group of ranks over a range of sizes.
 */
#include "bench_comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "bench.h"
#include "common/arguments.h"
#include "common/error.h"
#include "common/list.h"
#include "common/system.h"
#include "launch/launcher.h"
#include "launch/rank_meet.h"
#include "launch/status_line.h"
#include "options/device_choice.h"

typedef struct comm_options {
	run_device_choice device; /* no name: host memory */
	const char *backend, *interface;
	bool ops[COMM_OPS];
	dtrain_dtype dtype;
	uint64_t least, most; /* most 0: not given */
	uint64_t factor, iterations, warm_up, world_size, timeout;
	bool share, copy_engines, json, help;
} comm_options;

static void usage(void)
{
	puts("Usage: dtrain-bench comm [OPTION]...\n"
	     "Times the operations of a group of ranks over a range of sizes and checks their results. Alone it\n"
	     "starts its ranks on this machine; started by torchrun, dtrain's launcher, srun or mpirun it is one\n"
	     "rank. The last two need MASTER_ADDR and MASTER_PORT in the environment.\n\n"
	     "  --op NAMES        allreduce, reduce_scatter, all_gather, broadcast, reduce, gather, scatter,\n"
	     "                    all_to_all, send_recv, with commas between them; default all\n"
	     "  --dtype NAME      f32 (default), f64, f16, bf16, i64 or u8\n"
	     "  --min BYTES       smallest message (default 1024)\n"
	     "  --max BYTES       largest message (default 16777216; of a GPU's memory 268435456)\n"
	     "  --factor N        from one size to the next (default 4)\n"
	     "  --iterations N    timed operations of each size (default 20)\n"
	     "  --warm-up N       untimed ones before them (default 5)\n"
	     "  --world-size N    ranks to start here (default 2)\n"
	     "  --device NAME     whose memory is used: cuda, cuda:INDEX, cpu, ref or auto; default: the host's. Of\n"
	     "                    several devices each rank takes that of its local rank, if no index is given\n"
	     "  --backend NAME    gloo or nccl; default: that of the device\n"
	     "  --share-device    ranks may use the same GPU, where NCCL can do that\n"
	     "  --copy-engines    the GPUs' copy engines move what is not added up, where NCCL can do that\n"
	     "  --interface NAME  network interface between the ranks\n"
	     "  --timeout N       seconds that an operation may take (default 60)\n"
	     "  --json            one JSON object instead of a table\n"
	     "  --help            this text\n\n"
	     "Sizes and bandwidths are as in nccl-tests: bytes is the size of the larger buffer of a call, algbw is\n"
	     "bytes by time on the slowest rank, and busbw the load of the links, which does not depend on the ranks.\n"
	     "In send_recv each rank sends to the next one and receives from the one before it at once.");
}

/* Enough to show the bandwidth of host memory, and of device memory. */
#define DEFAULT_MOST (16 << 20)
#define DEFAULT_MOST_FAR (256 << 20)

static int parse_ops(const char *text, comm_options *o, beton_error *err)
{
	memset(o->ops, 0, sizeof(o->ops));
	int status = BETON_OK;
	while (text && status == BETON_OK) {
		char name[32];
		int found = 0;
		status = bt_list_next("--op", &text, name, sizeof(name), err);
		while (status == BETON_OK && found < COMM_OPS && strcmp(comm_op_names[found], name) != 0)
			found++;
		if (status == BETON_OK && found == COMM_OPS)
			return bt_fail(err, BETON_INVALID_ARGUMENT, "--op: no operation '%s'", name);
		if (status == BETON_OK)
			o->ops[found] = true;
	}
	return status;
}

static int parse_dtype(const char *text, comm_options *o, beton_error *err)
{
	for (int i = DTRAIN_F32; i <= DTRAIN_U8; i++) {
		if (strcmp(dtrain_dtype_name((dtrain_dtype)i), text) == 0) {
			o->dtype = (dtrain_dtype)i;
			return BETON_OK;
		}
	}
	return bt_fail(err, BETON_INVALID_ARGUMENT, "--dtype: no type '%s'", text);
}

static int parse_one(int option, comm_options *o, beton_error *err)
{
	switch (option) {
	case 'o':
		return parse_ops(optarg, o, err);
	case 't':
		return parse_dtype(optarg, o, err);
	case 'a':
		return bt_parse_u64("--min", optarg, 1, 1ull << 40, &o->least, err);
	case 'z':
		return bt_parse_u64("--max", optarg, 1, 1ull << 40, &o->most, err);
	case 'f':
		return bt_parse_u64("--factor", optarg, 2, 1 << 20, &o->factor, err);
	case 'i':
		return bt_parse_u64("--iterations", optarg, 1, 1000000, &o->iterations, err);
	case 'w':
		return bt_parse_u64("--warm-up", optarg, 0, 1000000, &o->warm_up, err);
	case 'n':
		return bt_parse_u64("--world-size", optarg, 1, LAUNCH_MAX_RANKS, &o->world_size, err);
	case 'T':
		return bt_parse_u64("--timeout", optarg, 1, 86400, &o->timeout, err);
	case 'd':
		return run_parse_device(optarg, &o->device, err);
	case 'b':
		o->backend = optarg;
		return BETON_OK;
	case 'I':
		o->interface = optarg;
		return BETON_OK;
	case 's':
		o->share = true;
		return BETON_OK;
	case 'c':
		o->copy_engines = true;
		return BETON_OK;
	case 'j':
		o->json = true;
		return BETON_OK;
	case 'h':
		o->help = true;
		return BETON_OK;
	default: /* getopt has printed the error */
		return bt_fail(err, BETON_INVALID_ARGUMENT, "try dtrain-bench comm --help");
	}
}

static int parse(int argc, char **argv, comm_options *o, beton_error *err)
{
	static const struct option names[] = {{"op", required_argument, NULL, 'o'},
					      {"dtype", required_argument, NULL, 't'},
					      {"min", required_argument, NULL, 'a'},
					      {"max", required_argument, NULL, 'z'},
					      {"factor", required_argument, NULL, 'f'},
					      {"iterations", required_argument, NULL, 'i'},
					      {"warm-up", required_argument, NULL, 'w'},
					      {"world-size", required_argument, NULL, 'n'},
					      {"device", required_argument, NULL, 'd'},
					      {"backend", required_argument, NULL, 'b'},
					      {"share-device", no_argument, NULL, 's'},
					      {"interface", required_argument, NULL, 'I'},
					      {"timeout", required_argument, NULL, 'T'},
					      {"copy-engines", no_argument, NULL, 'c'},
					      {"json", no_argument, NULL, 'j'},
					      {"help", no_argument, NULL, 'h'},
					      {0}};
	bool seen[sizeof(names) / sizeof(names[0])] = {false};
	int option, status = BETON_OK;
	memset(o->ops, 1, sizeof(o->ops));
	while (status == BETON_OK && (option = bt_getopt_once(argc, argv, "", names, seen)) != -1)
		status = parse_one(option, o, err);
	if (status == BETON_OK && optind < argc)
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "unexpected argument '%s'", argv[optind]);
	if (status == BETON_OK && o->most && o->least > o->most)
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "--min %llu is above --max %llu",
				 (unsigned long long)o->least, (unsigned long long)o->most);
	return status;
}

/* True if the operation exists for that number of ranks. */
static bool applies(const comm_options *o, comm_op op, int size)
{
	return o->ops[op] && !(op == COMM_SEND_RECV && size == 1);
}

static int report(const comm_options *o, comm_op op, const comm_figure *figure, json_t *rows, beton_error *err)
{
	if (!o->json) {
		printf("%-15s %12lld %12lld %12.1f %10.3f %10.3f %8lld\n", comm_op_names[op], (long long)figure->bytes,
		       (long long)figure->count, figure->seconds * 1e6, figure->algbw * 1e-9, figure->busbw * 1e-9,
		       (long long)figure->wrong);
		return BETON_OK;
	}
	if (json_array_append_new(rows,
				  json_pack("{s:s, s:I, s:I, s:f, s:f, s:f, s:I}", "op", comm_op_names[op], "bytes",
					    (json_int_t)figure->bytes, "count", (json_int_t)figure->count, "time_us",
					    figure->seconds * 1e6, "algbw_gb_s", figure->algbw * 1e-9, "busbw_gb_s",
					    figure->busbw * 1e-9, "wrong", (json_int_t)figure->wrong)))
		return bt_fail(err, BETON_NO_MEMORY, "out of memory");
	return BETON_OK;
}

/* --max, or the default for the memory. */
static uint64_t find_most(const comm_options *o, const comm_place *place)
{
	dtrain_device_caps caps = {0};
	if (place->device)
		place->api->caps(place->device, &caps);
	uint64_t usual = caps.asynchronous ? DEFAULT_MOST_FAR : DEFAULT_MOST;
	return o->most ? o->most : usual > o->least ? usual : o->least;
}

static int measure_all(const comm_options *o, comm_place *place, json_t *rows, int64_t *wrong, beton_error *err)
{
	uint64_t most = find_most(o, place);
	int status = BETON_OK;
	for (int op = 0; op < COMM_OPS && status == BETON_OK; op++) {
		if (!applies(o, (comm_op)op, place->size))
			continue;
		for (uint64_t bytes = o->least; bytes <= most && status == BETON_OK; bytes *= o->factor) {
			comm_figure figure;
			status = comm_measure(place, (comm_op)op, (int64_t)bytes, (int)o->warm_up, (int)o->iterations,
					      &figure, err);
			*wrong += status != BETON_OK ? 0 : figure.wrong;
			if (status == BETON_OK && place->rank == 0)
				status = report(o, (comm_op)op, &figure, rows, err);
		}
	}
	return status;
}

/* Only a part can leave transfers to copy engines. */
static int split_group(comm_place *place, beton_error *err)
{
	dtrain_group_split_options options;
	dtrain_group_split_options_init(&options);
	options.copy_engines = true;
	dtrain_group *whole = place->group, *part = NULL;
	int status = dtrain_group_split(whole, 0, place->rank, &options, &part, err);
	if (status != BETON_OK)
		return status;
	dtrain_group_destroy(&place->group);
	place->group = part;
	return BETON_OK;
}

static int open_place(const comm_options *o, const struct rank_env *env, dtrain_store *store, comm_place *place,
		      beton_error *err)
{
	dtrain_device_options device = {.struct_size = sizeof(device)};
	size_t least = (size_t)place->size * 8;
	int status = BETON_OK;
	if (o->device.name[0]) {
		status = run_open_device(&o->device, env, o->share, &device, &place->device, err);
		place->api = status != BETON_OK ? NULL : dtrain_device_get_api(place->device);
		if (status == BETON_OK)
			status = place->api->stream_create(place->device, &place->stream, err);
	}
	dtrain_group_options group;
	dtrain_group_options_init(&group);
	group.backend = o->backend;
	group.interface = o->interface;
	group.timeout_ms = (int)o->timeout * 1000;
	group.device = place->device;
	group.share_device = o->share;
	if (status == BETON_OK)
		status = dtrain_group_create(store, place->rank, place->size, &group, &place->group, err);
	if (status == BETON_UNSUPPORTED && o->backend) /* by this build, or of this device */
		status = err->code = BETON_INVALID_ARGUMENT;
	if (status == BETON_OK && o->copy_engines)
		status = split_group(place, err);
	/* At least one element for each rank, of the largest type. */
	if (status != BETON_OK)
		return status;
	size_t most = find_most(o, place);
	return comm_place_allocate(place, most > least ? most : least, err);
}

static void close_place(comm_place *place)
{
	comm_place_free(place);
	dtrain_group_destroy(&place->group);
	if (place->stream)
		place->api->stream_destroy(place->stream);
	dtrain_device_close(&place->device);
}

static int print_head(const comm_options *o, const comm_place *place)
{
	dtrain_device_caps caps = {0};
	if (o->json)
		return 0;
	if (place->device)
		place->api->caps(place->device, &caps);
	printf("%d ranks, %s, %s\n", place->size, dtrain_dtype_name(o->dtype),
	       place->device ? caps.description : "host memory");
	return printf("%-15s %12s %12s %12s %10s %10s %8s\n", "op", "bytes", "count", "time us", "algbw GB/s",
		      "busbw GB/s", "wrong") < 0;
}

static int print_json(const comm_options *o, const comm_place *place, json_t *rows)
{
	char device[48];
	snprintf(device, sizeof(device), "%s", o->device.name[0] ? o->device.name : "host");
	if (o->device.index >= 0)
		snprintf(device, sizeof(device), "%s:%d", o->device.name, o->device.index);
	json_t *object = json_pack("{s:i, s:s, s:s, s:O}", "world_size", place->size, "dtype",
				   dtrain_dtype_name(o->dtype), "device", device, "results", rows);
	int failed = !object || json_dumpf(object, stdout, 0) != 0 || putchar('\n') == EOF;
	json_decref(object);
	return failed;
}

static void say(const char *line)
{
	status_line_warn("dtrain-bench: %s", line);
}

static int run_rank(const comm_options *o, struct rank_env *env, beton_error *err)
{
	comm_place place = {.rank = env->rank, .size = env->world_size, .dtype = o->dtype};
	const int timeout_ms = (int)o->timeout * 1000;
	const rank_meet_options meet = {
		.interface = o->interface, .connect_ms = timeout_ms, .wait_ms = timeout_ms, .say = say};
	rank_meeting meeting = {0};
	json_t *rows = json_array();
	int64_t wrong = 0;
	int status = rows ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "out of memory");
	if (status == BETON_OK)
		status = dtrain__rank_meet(env, &meet, &meeting, err);
	if (status == BETON_OK)
		status = open_place(o, env, meeting.store, &place, err);
	if (status == BETON_OK && env->rank == 0 && print_head(o, &place))
		status = bt_fail(err, BETON_IO, "cannot write the result");
	if (status == BETON_OK)
		status = measure_all(o, &place, rows, &wrong, err);
	if (status == BETON_OK && env->rank == 0 && ((o->json && print_json(o, &place, rows)) || fflush(stdout)))
		status = bt_fail(err, BETON_IO, "cannot write the result");
	if (status == BETON_OK && wrong)
		status = bt_fail(err, BETON_MISMATCH, "%lld elements of results are wrong", (long long)wrong);
	close_place(&place);
	dtrain__rank_leave(&meeting);
	json_decref(rows);
	return status;
}

int bench_comm(int argc, char **argv)
{
	comm_options o = {.device = {.index = -1},
			  .least = 1024,
			  .factor = 4,
			  .iterations = 20,
			  .warm_up = 5,
			  .world_size = 2,
			  .timeout = 60};
	struct rank_env env = {0};
	beton_error err = {0};
	int status = parse(argc, argv, &o, &err), exit_status = BENCH_DONE;
	if (status == BETON_OK && o.help) {
		usage();
		return BENCH_DONE;
	}
	if (status == BETON_OK)
		status = dtrain__rank_env_read(&env, &err);
	if (status != BETON_OK) {
		fprintf(stderr, "dtrain-bench: %s\n", err.message);
		return BENCH_USAGE;
	}
	if (!env.started && o.world_size > 1) {
		/* The ranks get the whole command line, whose first argument names this command. */
		struct launch_options launch = {
			.world_size = (int)o.world_size, .grace_ms = LAUNCH_DEFAULT_GRACE_MS, .argv = argv - 1};
		status = dtrain__launch(&launch, &exit_status, &err);
	} else {
		status = run_rank(&o, &env, &err);
	}
	if (status == BETON_OK)
		return exit_status;
	fprintf(stderr, "dtrain-bench: %s\n", err.message);
	return status == BETON_PEER_LOST ? LAUNCH_EXIT_PEER_LOST : bench_failure(status);
}
