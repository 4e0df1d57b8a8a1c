/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes a dataset from four threads and reads it back:
 *
 *     cc write-dataset.c $(pkg-config --cflags --libs libbeton) -pthread -o write-dataset && ./write-dataset out.beton
 *
 * and with -Wl,-rpath,$(pkg-config --variable=libdir libbeton) where the system does not look for libraries. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <beton/beton.h>

enum { SAMPLES = 10000, THREADS = 4 };

typedef struct worker {
	beton_writer *writer;
	pthread_t thread;
	int first; /* this index, and every fourth one from there on */
	int result;
	beton_error error;
} worker;

static void *write_samples(void *argument)
{
	worker *self = (worker *)argument;
	for (int i = self->first; i < SAMPLES && self->result == BETON_OK; i += THREADS) {
		char text[32];
		beton_input values[2];
		memset(values, 0, sizeof(values));
		values[0].integer = i;
		values[1].data = text;
		values[1].size = (uint64_t)snprintf(text, sizeof(text), "{\"square\": %d}", i * i);
		self->result = beton_writer_put(self->writer, (uint64_t)i, values, &self->error);
	}
	/* Others may wait for the samples that this thread will not put. */
	if (self->result != BETON_OK)
		beton_writer_cancel(self->writer);
	return NULL;
}

static int write_all(beton_writer *writer, beton_error *error)
{
	worker workers[THREADS];
	int result = BETON_OK;
	memset(workers, 0, sizeof(workers));
	for (int i = 0; i < THREADS; i++) {
		workers[i].writer = writer;
		workers[i].first = i;
		if (pthread_create(&workers[i].thread, NULL, write_samples, &workers[i]) != 0)
			exit(1); /* a library would cancel, and join the running threads */
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(workers[i].thread, NULL);
		/* After one thread's failure the others only report that there was one. */
		if (workers[i].result != BETON_OK && (result == BETON_OK || result == BETON_CANCELLED)) {
			result = workers[i].result;
			*error = workers[i].error;
		}
	}
	return result == BETON_OK ? beton_writer_finish(writer, error) : result;
}

static int read_one(const char *path, uint64_t sample, beton_error *error)
{
	beton_reader *reader;
	beton_value values[2];
	char text[64] = "";
	int result = beton_reader_open(&reader, path, error);
	if (result == BETON_OK)
		result = beton_reader_sample(reader, sample, values, error);
	if (result == BETON_OK && values[1].size <= sizeof(text))
		result = beton_reader_read_value(reader, &values[1], text, error);
	if (result == BETON_OK)
		printf("sample %llu: %lld %s\n", (unsigned long long)sample, (long long)values[0].integer, text);
	beton_reader_close(&reader);
	return result;
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		fprintf(stderr, "usage: write-dataset OUT.beton\n");
		return 2;
	}
	beton_field fields[2];
	memset(fields, 0, sizeof(fields));
	strcpy(fields[0].name, "number");
	fields[0].type = BETON_FIELD_INT;
	strcpy(fields[1].name, "facts");
	fields[1].type = BETON_FIELD_JSON;

	beton_writer_options options;
	beton_writer_options_init(&options);
	options.expected_samples = SAMPLES;
	options.facts = "{\"source\": \"arithmetic\"}";

	beton_writer *writer;
	beton_error error;
	int result = beton_writer_open(&writer, argv[1], fields, 2, &options, &error);
	if (result == BETON_OK)
		result = write_all(writer, &error);
	beton_writer_close(&writer);
	if (result == BETON_OK)
		result = read_one(argv[1], 99, &error);
	if (result != BETON_OK)
		fprintf(stderr, "write-dataset: %s\n", error.message);
	return result == BETON_OK ? 0 : 1;
}
