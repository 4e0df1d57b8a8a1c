/* SPDX-License-Identifier: Apache-2.0
 *
 * read-events FILE: prints "STEP TAG VALUE" for each scalar of an event file of TensorBoard, after checking the frames.
 */
#include <endian.h>
#include <inttypes.h>
#include <isa-l/crc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "event.pb-c.h"

static uint32_t masked_crc(const void *data, size_t size)
{
	uint32_t crc = ~crc32_iscsi((unsigned char *)data, (int)size, UINT32_MAX);
	return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static bool read_part(FILE *file, void *data, size_t size)
{
	uint32_t crc;
	return fread(data, 1, size, file) == size && fread(&crc, 1, sizeof(crc), file) == sizeof(crc) &&
	       le32toh(crc) == masked_crc(data, size);
}

static void print_event(const Tensorboard__Event *event)
{
	if (event->what_case == TENSORBOARD__EVENT__WHAT_FILE_VERSION)
		printf("version %s\n", event->file_version);
	for (size_t i = 0; event->what_case == TENSORBOARD__EVENT__WHAT_SUMMARY && i < event->summary->n_value; i++) {
		const Tensorboard__Summary__Value *value = event->summary->value[i];
		printf("%" PRId64 " %s %.9g\n", event->step, value->tag, (double)value->simple_value);
	}
}

int main(int argc, char **argv)
{
	FILE *file = argc == 2 ? fopen(argv[1], "r") : NULL;
	uint64_t size;
	/* The check value of CRC-32C. */
	if (!file || masked_crc("123456789", 9) != ((0xe3069283u >> 15 | 0xe3069283u << 17) + 0xa282ead8u))
		return 2;
	while (!feof(file)) {
		int next = fgetc(file);
		if (next == EOF)
			break;
		ungetc(next, file);
		if (!read_part(file, &size, sizeof(size)) || le64toh(size) > 1 << 20)
			return fprintf(stderr, "a bad length\n"), 1;
		size = le64toh(size);
		unsigned char *data = malloc(size + 1);
		Tensorboard__Event *event = NULL;
		if (data && read_part(file, data, size))
			event = tensorboard__event__unpack(NULL, size, data);
		free(data);
		if (!event)
			return fprintf(stderr, "a bad event\n"), 1;
		print_event(event);
		tensorboard__event__free_unpacked(event, NULL);
	}
	return fclose(file) == 0 ? 0 : 1;
}
