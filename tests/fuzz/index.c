/* SPDX-License-Identifier: Apache-2.0
 *
 * An edited index of JPEGs, in the file or beside it, under the reader and a whole loader. An entry whose checksum does
 * not match changes no pixel; one that was sealed again may hold anything, and there is a batch or a bad sample. The
 * input: a byte that chooses the place and what is sealed, one that chooses pixels and crop, then edits of 2 bytes of
 * place, one of length and the bytes. */
#include "fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include <beton/beton.h>
#include <beton/index.h>
#include <beton/io.h>
#include <beton/loader.h>

#include "beton/format.h"
#include "exercise.h"
#include "tests/support/jpegs.h"

enum { CHOICES = 2, SAMPLES = 2, WIDTH = 272, HEIGHT = 144, OUTPUT = 24, BATCH = SAMPLES * OUTPUT * OUTPUT * 3 };

enum { BESIDE = 1, SEAL_ENTRIES = 2, SEAL_SECTIONS = 4, SEAL_HEADERS = 8, CUT = 16 };

typedef struct content {
	uint8_t *data;
	size_t size;
} content;

/* The places and the entries, one after the other, in a copy of the file or of the side file. */
typedef struct sections {
	uint8_t *places;
	uint8_t *entries;
	size_t places_size;
	size_t entries_size;
} sections;

static char folder[] = "/tmp/fuzz-index-XXXXXX";
static char plain_path[sizeof(folder) + 16], side_path[sizeof(folder) + 16];
static content plain, indexed, side;
static uint64_t jpeg_sums[SAMPLES];

static content read_all(const char *path)
{
	struct stat status;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	require(fd >= 0 && fstat(fd, &status) == 0, "a file that was written is there");
	content all = {malloc((size_t)status.st_size), (size_t)status.st_size};
	require(all.data && read(fd, all.data, all.size) == (ssize_t)all.size, "and can be read");
	close(fd);
	return all;
}

static void write_all(const char *path, const uint8_t *data, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	require(fd >= 0 && write(fd, data, size) == (ssize_t)size, "a file can be written");
	close(fd);
}

static void remove_files(void)
{
	unlink(side_path);
	unlink(plain_path);
	rmdir(folder);
}

static void write_dataset(const char *path, uint32_t flags, const jpeg_bytes *jpegs)
{
	static const beton_field field = {.name = "image", .type = BETON_FIELD_IMAGE};
	beton_writer *writer;
	beton_writer_options options;
	beton_writer_options_init(&options);
	options.flags = flags;
	options.page_size = BETON_PAGE_SIZE_MIN;
	int result = beton_writer_open(&writer, path, &field, 1, &options, NULL);
	for (int i = 0; i < SAMPLES && result == BETON_OK; i++) {
		const beton_input input = {.data = jpegs[i].data,
					   .size = jpegs[i].size,
					   .mode = BETON_IMAGE_JPEG,
					   .width = WIDTH,
					   .height = HEIGHT};
		result = beton_writer_append(writer, &input, NULL);
	}
	require(result == BETON_OK && beton_writer_finish(writer, NULL) == BETON_OK, "the dataset can be written");
	beton_writer_close(&writer);
}

/* Once: a file of two JPEGs without an index, the same with it, and its side file. */
static void prepare(void)
{
	static const jpeg_sort sorts[SAMPLES] = {{.colour = JCS_YCbCr, .h = 2, .v = 2},
						 {.colour = JCS_GRAYSCALE, .h = 1, .v = 1}};
	jpeg_bytes jpegs[SAMPLES];
	beton_index_options options;
	beton_index_report report;
	require(mkdtemp(folder) != NULL, "there is a folder for temporary files");
	snprintf(plain_path, sizeof(plain_path), "%s/a.beton", folder);
	snprintf(side_path, sizeof(side_path), "%s/a.beton.index", folder);
	atexit(remove_files);
	uint8_t *pixels = textured_pixels(WIDTH, HEIGHT);
	for (int i = 0; i < SAMPLES; i++) {
		jpegs[i] = jpeg_make(&sorts[i], WIDTH, HEIGHT, pixels, 90);
		jpeg_sums[i] = XXH3_64bits(jpegs[i].data, jpegs[i].size);
	}
	free(pixels);
	write_dataset(plain_path, 0, jpegs);
	indexed = read_all(plain_path);
	write_dataset(plain_path, BETON_WRITER_NO_JPEG_INDEX, jpegs);
	plain = read_all(plain_path);
	beton_index_options_init(&options);
	options.side = true;
	options.num_threads = 1;
	require(beton_index_add(plain_path, &options, &report, NULL) == BETON_OK && report.indexed == SAMPLES,
		"each JPEG gets an index");
	side = read_all(side_path);
	for (int i = 0; i < SAMPLES; i++)
		free(jpegs[i].data);
}

/* The entry of a section in the directory of a file with an extension block. */
static uint8_t *find_section(uint8_t *file, uint32_t kind)
{
	const uint8_t *footer = file + load_u64(file + HEADER_ALLOC_TABLE) - FOOTER_SIZE;
	uint8_t *entry = file + load_u64(footer + FOOTER_DIRECTORY);
	for (uint32_t i = load_u32(footer + FOOTER_ENTRIES); i > 0; i--, entry += DIRECTORY_ENTRY_SIZE)
		if (load_u32(entry) == kind)
			return entry;
	require(0, "the file has an index");
	return NULL;
}

static sections find_sections(uint8_t *copy, bool beside)
{
	sections found;
	if (beside) {
		found.places_size = load_u64(copy + SIDE_PLACES_SIZE);
		found.entries_size = load_u64(copy + SIDE_ENTRIES_SIZE);
		found.places = copy + SIDE_SIZE;
		found.entries = found.places + found.places_size;
		return found;
	}
	const uint8_t *places = find_section(copy, SECTION_JPEG_PLACES);
	const uint8_t *entries = find_section(copy, SECTION_JPEG_INDEXES);
	found.places = copy + load_u64(places + DIRECTORY_OFFSET);
	found.places_size = load_u64(places + DIRECTORY_SIZE);
	found.entries = copy + load_u64(entries + DIRECTORY_OFFSET);
	found.entries_size = load_u64(entries + DIRECTORY_SIZE);
	return found;
}

/* Returns the place after the last edit. */
static size_t edit(uint8_t *bytes, size_t room, const uint8_t *data, size_t size)
{
	size_t behind = room;
	for (size_t at = 0; at + 3 < size;) {
		size_t length = data[at + 2] < size - at - 3 ? data[at + 2] : size - at - 3;
		size_t place = (data[at] | (size_t)data[at + 1] << 8) % room;
		size_t used = length < room - place ? length : room - place;
		memcpy(bytes + place, data + at + 3, used);
		behind = place + used;
		at += 3 + length;
	}
	return behind;
}

static void seal_entries(const sections *of)
{
	uint64_t begin = 0;
	for (int i = 0; i < SAMPLES; i++) {
		uint64_t end = load_u64(of->places + 8 * (size_t)i);
		if (end > of->entries_size || end < begin || end - begin < 8)
			return;
		store_u64(of->entries + begin,
			  XXH3_64bits_withSeed(of->entries + begin + 8, (size_t)(end - begin - 8), jpeg_sums[i]));
		begin = end;
	}
}

static void seal(uint8_t *copy, const sections *of, int choices)
{
	bool beside = choices & BESIDE;
	uint8_t *places = beside ? copy + SIDE_PLACES_SUM : find_section(copy, SECTION_JPEG_PLACES) + DIRECTORY_SUM;
	uint8_t *entries = beside ? copy + SIDE_ENTRIES_SUM : find_section(copy, SECTION_JPEG_INDEXES) + DIRECTORY_SUM;
	if (choices & SEAL_ENTRIES)
		seal_entries(of);
	if (choices & SEAL_SECTIONS) {
		store_u64(places, XXH3_64bits(of->places, of->places_size));
		store_u64(entries, XXH3_64bits(of->entries, of->entries_size));
	}
	if (beside) {
		if (choices & SEAL_HEADERS)
			store_u64(copy + SIDE_SUM, XXH3_64bits(copy, SIDE_SUM));
	} else if (choices & SEAL_SECTIONS) {
		/* A directory that is damaged makes the file one that cannot be opened: the target `extension`. */
		uint8_t *footer = copy + load_u64(copy + HEADER_ALLOC_TABLE) - FOOTER_SIZE;
		store_u64(footer + FOOTER_DIRECTORY_SUM,
			  XXH3_64bits(copy + load_u64(footer + FOOTER_DIRECTORY),
				      (size_t)load_u32(footer + FOOTER_ENTRIES) * DIRECTORY_ENTRY_SIZE));
		store_u64(footer + FOOTER_SUM, XXH3_64bits(footer, FOOTER_SUM));
	}
}

static beton_loader_options choose(const beton_source *source, uint8_t choices)
{
	beton_loader_options options;
	beton_loader_options_init(&options);
	options.num_threads = 1;
	options.engine = choices & 1 && source->path ? BETON_ENGINE_MMAP : BETON_ENGINE_THREADS;
	options.batch_size = SAMPLES;
	options.order = BETON_ORDER_SEQUENTIAL;
	options.batches_ahead = 1;
	if (choices & 2)
		options.image.pixels = BETON_PIXELS_TORCHVISION;
	else if (choices & 4)
		options.image.color = BETON_COLOR_GREY;
	options.image.crop = (beton_crop)((choices >> 3 & 3) % 3);
	options.image.center_ratio = choices & 32 ? 0.2 : 0.8;
	options.image.height = options.image.width = OUTPUT;
	return options;
}

/* Loads the one batch. Returns the bytes of its pixels; 0: a sample is bad. */
static size_t load(const beton_source *source, uint8_t choices, uint8_t *pixels)
{
	beton_loader_options options = choose(source, choices);
	beton_loader *loader = NULL;
	beton_iterator *iterator = NULL;
	beton_batch *batch = NULL;
	beton_error err = {0};
	size_t size = 0;
	int result = beton_loader_open_many(&loader, source, 1, &options, &err);
	if (result == BETON_OK)
		result = beton_iterator_open(&iterator, loader, choices, 0, &err);
	if (result == BETON_OK)
		result = beton_iterator_next(iterator, &batch, -1, &err);
	require(result == BETON_OK || (err.code == result && err.message[0]), "a failure says why");
	if (result == BETON_OK) {
		const int64_t *shape = batch->tensors[0].shape;
		size = (size_t)(shape[0] * shape[1] * shape[2] * shape[3]);
		require(batch->count == SAMPLES && size <= BATCH, "the batch has its samples");
		memcpy(pixels, batch->tensors[0].data, size);
	}
	beton_batch_release(&batch);
	beton_iterator_close(&iterator);
	beton_loader_close(&loader);
	return size;
}

static void compare(const beton_source *source, uint8_t choices, bool sealed)
{
	static uint8_t expected[BATCH], got[BATCH];
	size_t size = load(source, choices, got);
	if (sealed)
		return;
	const beton_memory memory = {plain.data, plain.size};
	beton_io io;
	beton_io_memory(&io, "plain", &memory);
	require(load(&(beton_source){.io = &io}, choices, expected) == size, "a damaged index makes no sample bad");
	require(size > 0 && memcmp(expected, got, size) == 0, "a damaged index changes no pixel");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size < CHOICES)
		return 0;
	if (!plain.data)
		prepare();
	bool beside = data[0] & BESIDE;
	const content *from = beside ? &side : &indexed;
	uint8_t *copy = malloc(from->size);
	require(copy != NULL, "there is memory");
	memcpy(copy, from->data, from->size);
	sections found = find_sections(copy, beside);
	require(found.entries == found.places + found.places_size, "the entries stand after the places");
	uint8_t *begin = beside ? copy : found.places;
	size_t behind =
		edit(begin, (size_t)(found.entries + found.entries_size - begin), data + CHOICES, size - CHOICES);
	seal(copy, &found, data[0]);
	if (beside) {
		write_all(side_path, copy, data[0] & CUT ? behind : from->size);
		exercise_reader(plain_path);
		compare(&(beton_source){.path = plain_path}, data[1], data[0] & SEAL_ENTRIES);
	} else {
		const beton_memory memory = {copy, from->size};
		beton_io io;
		beton_io_memory(&io, "indexed", &memory);
		compare(&(beton_source){.io = &io}, data[1], data[0] & SEAL_ENTRIES);
	}
	free(copy);
	return 0;
}
