/* SPDX-License-Identifier: Apache-2.0
 *
 * dtrain-bench link: how fast bytes go between host and device and between devices, and what the machine's settings
 * mean for groups of ranks.
 */
#include "bench_link.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "bench.h"
#include "common/arguments.h"
#include "common/error.h"
#include "common/system.h"
#include "core/module.h"
#include "options/device_choice.h"

#define SMALL_BYTES 4

typedef struct link_options {
	const char *device, *root;
	uint64_t bytes, repeats;
	bool json, help;
} link_options;

typedef struct link_end {
	dtrain_device *device;
	dtrain_stream *stream;
	void *memory;
	dtrain_device_identity identity;
	char pci[96]; /* description of its link */
} link_end;

typedef struct link_job {
	const dtrain_device_api *api;
	const dtrain_group_backend *group; /* NULL: the device's module has no backend */
	link_end ends[LINK_MAX_DEVICES];
	int count;
	const link_options *options;
	json_t *rows;
	link_matrix matrix;
} link_job;

static void usage(void)
{
	puts("Usage: dtrain-bench link [OPTION]...\n"
	     "Measures bandwidth and latency between the host and each device, and between each two devices, tells\n"
	     "what is between these (the matrix of nvidia-smi topo -m), and what is set up badly for groups of ranks,\n"
	     "with what to do about it.\n\n"
	     "  --device NAME     cuda (or cpu, ref, auto); default: none, only what is set up is looked at\n"
	     "  --bytes N         of a copy whose bandwidth is measured (default 268435456)\n"
	     "  --repeats N       copies of each kind; the best counts (default 10)\n"
	     "  --root DIR        look for /proc, /sys and /dev below it\n"
	     "  --json            one JSON object instead of text\n"
	     "  --help            this text\n\n"
	     "The exit status is 0 also when there are findings.");
}

static int parse(int argc, char **argv, link_options *o, beton_error *err)
{
	static const struct option names[] = {{"device", required_argument, NULL, 'd'},
					      {"bytes", required_argument, NULL, 'b'},
					      {"repeats", required_argument, NULL, 'r'},
					      {"root", required_argument, NULL, 'R'},
					      {"json", no_argument, NULL, 'j'},
					      {"help", no_argument, NULL, 'h'},
					      {0}};
	bool seen[sizeof(names) / sizeof(names[0])] = {false};
	int option, status = BETON_OK;
	while (status == BETON_OK && (option = bt_getopt_once(argc, argv, "", names, seen)) != -1) {
		switch (option) {
		case 'd':
			o->device = optarg;
			status = run_check_device(optarg, err);
			break;
		case 'b':
			status = bt_parse_u64("--bytes", optarg, SMALL_BYTES, 1ull << 36, &o->bytes, err);
			break;
		case 'r':
			status = bt_parse_u64("--repeats", optarg, 1, 100000, &o->repeats, err);
			break;
		case 'R':
			o->root = optarg;
			break;
		case 'j':
			o->json = true;
			break;
		case 'h':
			o->help = true;
			break;
		default: /* getopt has printed the error */
			return bt_fail(err, BETON_INVALID_ARGUMENT, "try dtrain-bench link --help");
		}
	}
	if (status == BETON_OK && optind < argc)
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "unexpected argument '%s'", argv[optind]);
	return status;
}

static int describe(link_job *job, link_end *end, beton_error *err)
{
	const dtrain_module *module;
	for (int i = 0; !job->group && (module = dtrain__module_at(i)); i++)
		job->group = module->device == job->api ? module->group : NULL;
	int status = job->group ? job->group->identify(end->device, &end->identity, err) : BETON_OK;
	if (status == BETON_OK && end->identity.pci[0])
		link_describe_pci(job->options->root, end->identity.pci, end->pci, sizeof(end->pci));
	return status;
}

/* Opens all devices: the first index that is refused is past the last. */
static int open_ends(link_job *job, beton_error *err)
{
	int status = BETON_OK;
	for (int i = 0; i < LINK_MAX_DEVICES && status == BETON_OK; i++) {
		dtrain_device_options options = {.struct_size = sizeof(options), .index = i};
		link_end *end = &job->ends[i];
		beton_error refused = {0};
		status = dtrain_device_open(job->options->device, &options, &end->device, &refused);
		if (status == BETON_INVALID_ARGUMENT && i > 0)
			return BETON_OK;
		if (status != BETON_OK) {
			*err = refused;
			return status;
		}
		job->count++;
		job->api = dtrain_device_get_api(end->device);
		status = describe(job, end, err);
		if (status == BETON_OK)
			status = job->api->stream_create(end->device, &end->stream, err);
		if (status == BETON_OK)
			status = job->api->alloc(end->device, job->options->bytes, &end->memory, err);
	}
	return status;
}

static void close_ends(link_job *job)
{
	for (int i = 0; i < job->count; i++) {
		link_end *end = &job->ends[i];
		job->api->free(end->device, end->memory);
		if (end->stream)
			job->api->stream_destroy(end->stream);
		dtrain_device_close(&end->device);
	}
}

/* Seconds of the fastest copy, measured on the host. */
static int time_copy(const link_job *job, dtrain_stream *stream, void *to, const void *from, size_t bytes,
		     dtrain_copy kind, double *seconds, beton_error *err)
{
	int status = BETON_OK;
	*seconds = 1e9;
	for (uint64_t i = 0; i <= job->options->repeats && status == BETON_OK; i++) {
		uint64_t began = bt_now_ns();
		status = job->api->copy(stream, to, from, bytes, kind, err);
		if (status == BETON_OK)
			status = job->api->stream_synchronize(stream, err);
		double one = (double)(bt_now_ns() - began) * 1e-9;
		if (i > 0 && one < *seconds) /* the first copy touches the memory */
			*seconds = one;
	}
	return status;
}

static int measure(link_job *job, const char *from_name, const char *to_name, dtrain_stream *stream, void *to,
		   const void *from, dtrain_copy kind, double *gb_s, beton_error *err)
{
	size_t bytes = (size_t)job->options->bytes;
	double bulk, latency;
	int status = time_copy(job, stream, to, from, bytes, kind, &bulk, err);
	if (status == BETON_OK)
		status = time_copy(job, stream, to, from, SMALL_BYTES, kind, &latency, err);
	if (status != BETON_OK)
		return status;
	*gb_s = (double)bytes * 1e-9 / (bulk > 1e-9 ? bulk : 1e-9);
	if (!job->options->json)
		printf("%-18s -> %-18s %10.2f GB/s %10.1f us\n", from_name, to_name, *gb_s, latency * 1e6);
	else if (json_array_append_new(job->rows, json_pack("{s:s, s:s, s:f, s:f}", "from", from_name, "to", to_name,
							    "gb_s", *gb_s, "latency_us", latency * 1e6)))
		return bt_fail(err, BETON_NO_MEMORY, "out of memory");
	return BETON_OK;
}

static int measure_host(link_job *job, int index, bool pinned, void *host, beton_error *err)
{
	link_end *end = &job->ends[index];
	const char *host_name = pinned ? "host (pinned)" : "host (pageable)";
	char name[32];
	snprintf(name, sizeof(name), "device %d", index);
	double gb_s;
	int status = measure(job, host_name, name, end->stream, end->memory, host, DTRAIN_HOST_TO_DEVICE, &gb_s, err);
	return status != BETON_OK ? status
				  : measure(job, name, host_name, end->stream, host, end->memory, DTRAIN_DEVICE_TO_HOST,
					    &gb_s, err);
}

static int measure_device(link_job *job, int index, beton_error *err)
{
	link_end *end = &job->ends[index];
	size_t bytes = (size_t)job->options->bytes;
	void *pinned = NULL, *pageable = calloc(1, bytes);
	int status = pageable ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "no memory for %zu bytes", bytes);
	if (status == BETON_OK)
		status = measure_host(job, index, false, pageable, err);
	free(pageable);
	if (status == BETON_OK)
		status = job->api->host_alloc(end->device, bytes, &pinned, err);
	if (status == BETON_OK)
		status = measure_host(job, index, true, pinned, err);
	job->api->host_free(end->device, pinned);
	return status;
}

static int measure_pair(link_job *job, int from, int to, beton_error *err)
{
	const link_end *source = &job->ends[from], *target = &job->ends[to];
	char from_name[32], to_name[32];
	snprintf(from_name, sizeof(from_name), "device %d", from);
	snprintf(to_name, sizeof(to_name), "device %d", to);
	int status = measure(job, from_name, to_name, source->stream, target->memory, source->memory,
			     DTRAIN_DEVICE_TO_DEVICE, &job->matrix.gb_s[from][to], err);
	if (status != BETON_OK || !job->options->json)
		return status;
	json_t *row = json_array_get(job->rows, json_array_size(job->rows) - 1);
	return json_object_set_new(
		       row, "path",
		       json_string(link_path(job->options->root, source->identity.pci, target->identity.pci)))
		       ? bt_fail(err, BETON_NO_MEMORY, "out of memory")
		       : BETON_OK;
}

static int measure_pairs(link_job *job, beton_error *err)
{
	int status = BETON_OK;
	job->matrix.count = job->count;
	for (int i = 0; i < job->count; i++)
		job->matrix.pci[i] = job->ends[i].identity.pci;
	for (int i = 0; i < job->count; i++) {
		for (int k = 0; k < job->count && status == BETON_OK; k++)
			status = i == k ? BETON_OK : measure_pair(job, i, k, err);
	}
	if (status == BETON_OK && job->count > 1 && !job->options->json &&
	    !link_print_matrix(job->options->root, &job->matrix))
		status = bt_fail(err, BETON_IO, "cannot write the result");
	return status;
}

/* CUDA_VISIBLE_DEVICES may name one GPU in several ways. */
static void find_same(const link_job *job, link_findings *out)
{
	for (int i = 0; i < job->count; i++) {
		for (int k = i + 1; k < job->count; k++) {
			if (strcmp(job->ends[i].identity.id, job->ends[k].identity.id) != 0)
				continue;
			link_add(out, LINK_BAD,
				 "name each GPU once in CUDA_VISIBLE_DEVICES: NCCL takes one rank for each",
				 "devices %d and %d are the same one: %s", i, k, job->ends[i].identity.id);
			return;
		}
	}
}

static int find_apart(const link_job *job, link_findings *out, beton_error *err)
{
	int pairs = 0, apart = 0, first[2] = {0}, status = BETON_OK;
	for (int i = 0; i < job->count && status == BETON_OK; i++) {
		for (int k = i + 1; k < job->count && status == BETON_OK; k++) {
			bool reaches = false;
			status = job->group->can_reach(job->ends[i].device, job->ends[k].device, &reaches, err);
			pairs++;
			if (status != BETON_OK || reaches)
				continue;
			if (apart++ == 0) {
				first[0] = i;
				first[1] = k;
			}
		}
	}
	if (apart)
		link_add(out, LINK_BAD,
			 "put GPUs that work together below one PCIe root, or join them by NVLink; on GeForce cards "
			 "and in "
			 "many virtual machines the direct way is missing",
			 "%d of %d pairs of devices do not reach each other's memory (%d and %d ...): copies between "
			 "them "
			 "go through the host's",
			 apart, pairs, first[0], first[1]);
	else if (status == BETON_OK)
		link_add(out, LINK_GOOD, "", "devices: all %d reach each other's memory", job->count);
	return status;
}

static int find_of_devices(const link_job *job, link_findings *out, beton_error *err)
{
	if (!job->group || job->count < 2)
		return BETON_OK;
	find_same(job, out);
	return find_apart(job, out, err);
}

static int measure_all(link_job *job, link_findings *findings, beton_error *err)
{
	int status = open_ends(job, err);
	for (int i = 0; i < job->count && status == BETON_OK && !job->options->json; i++)
		printf("device %d: %s%s%s\n", i,
		       job->ends[i].identity.name[0] ? job->ends[i].identity.name : job->api->name,
		       job->ends[i].pci[0] ? ", PCIe " : "", job->ends[i].pci);
	for (int i = 0; i < job->count && status == BETON_OK; i++)
		status = measure_device(job, i, err);
	if (status == BETON_OK)
		status = measure_pairs(job, err);
	if (status == BETON_OK)
		status = find_of_devices(job, findings, err);
	close_ends(job);
	return status;
}

static int print_findings(const link_options *o, const link_findings *findings, json_t *rows)
{
	static const char *const words[] = {[LINK_GOOD] = "ok", [LINK_BAD] = "look", [LINK_UNKNOWN] = "?"};
	json_t *list = json_array();
	int failed = 0;
	for (int i = 0; i < findings->count; i++) {
		const link_finding *one = &findings->list[i];
		if (o->json)
			failed |= json_array_append_new(list, json_pack("{s:o, s:s, s:s}", "good",
									one->state == LINK_UNKNOWN
										? json_null()
										: json_boolean(one->state == LINK_GOOD),
									"what", one->what, "fix", one->fix));
		else
			failed |= printf("%-4s %s%s%s\n", words[one->state], one->what, one->fix[0] ? ": " : "",
					 one->fix) < 0;
	}
	if (o->json) {
		json_t *object = json_pack("{s:O, s:O}", "links", rows, "findings", list);
		failed |= !object || json_dumpf(object, stdout, 0) != 0 || putchar('\n') == EOF;
		json_decref(object);
	}
	json_decref(list);
	return failed || fflush(stdout) != 0;
}

int bench_link(int argc, char **argv)
{
	link_options o = {.root = "", .bytes = 256 << 20, .repeats = 10};
	beton_error err = {0};
	link_job job = {.options = &o, .rows = json_array()};
	int status = parse(argc, argv, &o, &err), exit_status = BENCH_DONE;
	if (status == BETON_OK && o.help) {
		usage();
	} else if (status != BETON_OK) {
		exit_status = BENCH_USAGE;
	} else {
		link_findings findings;
		link_find(o.root, &findings);
		status = o.device ? measure_all(&job, &findings, &err) : BETON_OK;
		if (status == BETON_OK && print_findings(&o, &findings, job.rows))
			status = bt_fail(&err, BETON_IO, "cannot write the result");
		exit_status = status != BETON_OK ? bench_failure(status) : BENCH_DONE;
	}
	if (status != BETON_OK)
		fprintf(stderr, "dtrain-bench: %s\n", err.message);
	json_decref(job.rows);
	return exit_status;
}
