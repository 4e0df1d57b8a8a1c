/* SPDX-License-Identifier: Apache-2.0
 *
 * Times the loader's orders, on a sparse file of this many samples.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <beton/beton.h>
#include <jansson.h>

#include "bench.h"
#include "common/arguments.h"
#include "common/error.h"
#include "common/system.h"
#include "tools/common/program.h"

static const char *const usage_text =
	"Usage: beton-bench order [OPTION]...\n"
	"Print the time that each order takes for one sample, in nanoseconds, and the time to start an epoch.\n"
	"\n"
	"      --samples N   number of samples in the data set (default 1000000000); at most 10000000\n"
	"                    for the orders that store something for each sample\n"
	"      --json        print one JSON object instead of text\n"
	"  -h, --help        show this text\n"
	"\n"
	"The program makes a sparse file in TMPDIR (or /tmp), which takes almost no disk space.\n"
	"Exit status: 0 success, 1 failure, 2 wrong usage.\n";

enum { HEADER = 24, FIELD = 1041, RECORD = 8, LARGE = 10000000, STRETCH = 256, STRETCHES = 4096 };

typedef struct order_case {
	const char *name;
	beton_order order;
	bool large; /* keeps something for each sample */
	bool weights;
} order_case;

static const order_case cases[] = {
	{"sequential", BETON_ORDER_SEQUENTIAL, false, false},
	{"random", BETON_ORDER_RANDOM, false, false},
	{"quasi", BETON_ORDER_QUASI_RANDOM, false, false},
	{"weighted", BETON_ORDER_WEIGHTED, true, true},
	{"weighted-unique", BETON_ORDER_WEIGHTED_UNIQUE, true, true},
	{"balanced", BETON_ORDER_BALANCED, true, false},
	{"ffcv-random", BETON_ORDER_FFCV_RANDOM, true, false},
	{"torch-distributed", BETON_ORDER_TORCH_DISTRIBUTED, true, false},
	{"uniform", BETON_ORDER_UNIFORM, false, false},
};

typedef struct order_result {
	uint64_t samples;
	double open_ms;       /* the loader, with a file of that many samples */
	double begin_ms;      /* the first sample of an epoch */
	double ns_per_sample; /* of the further ones */
} order_result;

/* A file with one field of integers, all of them 0. */
static int make_holes(char *path, uint64_t samples, beton_error *err)
{
	uint8_t head[HEADER + FIELD] = {BETON_FORMAT_VERSION, 0, 1, 0};
	uint32_t page_size = BETON_PAGE_SIZE_DEFAULT;
	uint64_t end = (sizeof(head) + samples * RECORD + page_size - 1) / page_size * page_size;
	memcpy(head + 4, &page_size, sizeof(page_size));
	memcpy(head + 8, &samples, sizeof(samples));
	memcpy(head + 16, &end, sizeof(end));
	head[HEADER] = BETON_FIELD_INT;
	memcpy(head + HEADER + 1, "label", 5);
	int fd = mkstemp(path);
	if (fd < 0)
		return bt_fail_errno(err, errno, "%s: cannot create", path);
	int result = BETON_OK;
	if (bt_write_full(fd, head, sizeof(head)) != 0 || ftruncate(fd, (off_t)end) != 0)
		result = bt_fail_errno(err, errno, "%s: cannot write", path);
	if (close(fd) != 0 && result == BETON_OK)
		result = bt_fail_errno(err, errno, "%s: cannot write", path);
	return result;
}

static int measure_epoch(beton_loader *loader, order_result *out, beton_error *err)
{
	uint64_t length = beton_loader_epoch_length(loader);
	uint64_t stretch = length < STRETCH ? length : STRETCH, taken = 0;
	uint64_t samples[STRETCH];
	uint64_t begin = bt_now_ns();
	int result = beton_loader_samples_at(loader, 1, 0, 1, samples, err);
	out->begin_ms = (double)(bt_now_ns() - begin) * 1e-6;
	begin = bt_now_ns();
	for (uint64_t i = 0; i < STRETCHES && result == BETON_OK; i++, taken += stretch) {
		/* All over the epoch: whatever depends on the position is met. */
		uint64_t position = (uint64_t)((double)(length - stretch) / STRETCHES * (double)i);
		result = beton_loader_samples_at(loader, 1, position, stretch, samples, err);
	}
	out->ns_per_sample = (double)(bt_now_ns() - begin) / (double)taken;
	return result == BETON_OK ? program_check_signals(err) : result;
}

static int measure(const order_case *what, uint64_t samples, order_result *out, beton_error *err)
{
	const char *folder = getenv("TMPDIR");
	char path[4096];
	snprintf(path, sizeof(path), "%s/beton-bench-XXXXXX", folder && *folder ? folder : "/tmp");
	beton_loader_options options;
	beton_loader_options_init(&options);
	options.order = what->order;
	options.batch_size = options.num_threads = 1;
	*out = (order_result){.samples = samples};
	double *weights = what->weights ? malloc(samples * sizeof(*weights)) : NULL;
	if (what->weights && !weights)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for %" PRIu64 " weights", samples);
	for (uint64_t i = 0; weights && i < samples; i++)
		weights[i] = 1 + (double)(i % 100);
	options.weights = weights;
	options.num_weights = weights ? samples : 0;
	beton_loader *loader = NULL;
	int result = make_holes(path, samples, err);
	uint64_t begin = bt_now_ns();
	if (result == BETON_OK)
		result = beton_loader_open(&loader, path, &options, err);
	out->open_ms = (double)(bt_now_ns() - begin) * 1e-6;
	unlink(path);
	if (result == BETON_OK)
		result = measure_epoch(loader, out, err);
	beton_loader_close(&loader);
	free(weights);
	return result;
}

static int run(uint64_t samples, bool json, beton_error *err)
{
	json_t *rows = json_array();
	int result = BETON_OK;
	if (!json)
		printf("%-18s %12s %10s %10s %10s\n", "order", "samples", "ns/sample", "begin ms", "open ms");
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases) && result == BETON_OK; i++) {
		order_result row;
		result = measure(&cases[i], cases[i].large && samples > LARGE ? LARGE : samples, &row, err);
		if (result != BETON_OK)
			break;
		if (json)
			json_array_append_new(rows,
					      json_pack("{s:s, s:I, s:f, s:f, s:f}", "order", cases[i].name, "samples",
							(json_int_t)row.samples, "ns_per_sample", row.ns_per_sample,
							"begin_ms", row.begin_ms, "open_ms", row.open_ms));
		else
			printf("%-18s %12" PRIu64 " %10.1f %10.2f %10.2f\n", cases[i].name, row.samples,
			       row.ns_per_sample, row.begin_ms, row.open_ms);
	}
	json_t *root = json_pack("{s:o}", "orders", rows);
	if (result == BETON_OK && json &&
	    (!root || json_dumpf(root, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) != 0))
		result = bt_fail(err, BETON_IO, "cannot write the figures");
	else if (result == BETON_OK && json)
		puts("");
	json_decref(root);
	return result;
}

int bench_order(int argc, char **argv)
{
	static const struct option names[] = {{"samples", required_argument, NULL, 's'},
					      {"json", no_argument, NULL, 'j'},
					      {"help", no_argument, NULL, 'h'},
					      {NULL, 0, NULL, 0}};
	uint64_t samples = 1000000000;
	bool json = false;
	beton_error err;
	for (int option; (option = bt_getopt(argc, argv, "h", names, NULL)) != -1;) {
		bool good = option != '?';
		if (option == 'h') {
			fputs(usage_text, stdout);
			return fflush(stdout) == 0 ? 0 : 1;
		}
		/* A file of 2^62 bytes is more than any file system has. */
		if (option == 's' && bt_parse_u64("--samples", optarg, 1, UINT64_C(1) << 59, &samples, &err)) {
			fprintf(stderr, "beton-bench: %s\n", err.message);
			good = false;
		}
		json |= option == 'j';
		if (!good)
			return 2;
	}
	if (optind < argc) {
		fprintf(stderr, "beton-bench: order takes no FILE\n");
		return 2;
	}
	program_start();
	int result = run(samples, json, &err);
	return program_end("beton-bench", result, &err);
}
