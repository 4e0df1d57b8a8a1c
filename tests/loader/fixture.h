/* SPDX-License-Identifier: Apache-2.0
 *
 * Small .beton files for the loader's tests, in a temporary folder. */
#ifndef TESTS_LOADER_FIXTURE_H
#define TESTS_LOADER_FIXTURE_H

/* cmocka wants these before it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdatomic.h>
#include <stdbool.h>

#include <beton/beton.h>
#include <beton/loader.h>

/* Aborts the test with the library's message when a call fails. */
#define assert_ok(call)                                                                     \
	do {                                                                                \
		beton_error fault_ = {0};                                                   \
		beton_error *err = &fault_;                                                 \
		if ((call) != BETON_OK)                                                     \
			fail_msg("%s: %s", beton_status_name(fault_.code), fault_.message); \
	} while (0)

/* The noise that pictures are made of: a function of picture, place and channel alone. */
uint8_t fixture_pixel(uint64_t picture, uint32_t x, uint32_t y, uint32_t channel);

/* Width and height of a picture: 20..83 pixels, different for neighbours. */
void fixture_size(uint64_t picture, uint32_t *width, uint32_t *height);

/* The pixels (height x width x 3), and a JPEG of them; to be freed by the caller. horizontal and vertical: the sampling
 * factors of luma, 1..4. */
uint8_t *fixture_pixels(uint64_t picture, uint32_t width, uint32_t height);
typedef struct fixture_jpeg_options {
	int horizontal;
	int vertical;
	bool progressive;
	bool grey;
	bool cmyk;     /* with the Adobe marker, as Photoshop writes it */
	int restart;   /* MCUs between restart markers; 0: no markers */
	bool unmarked; /* cmyk without it, and without YCCK, which only the marker tells */
	int partial; /* progressive, 1..3: coefficients of AC, bits of them, or bits of DC are never sent; 0: all are */
} fixture_jpeg_options;
uint8_t *fixture_jpeg(const uint8_t *pixels, uint32_t width, uint32_t height, fixture_jpeg_options options,
		      unsigned long *size);

/* The pixels of a JPEG as the JPEG library alone decodes it to RGB; fast: with its less accurate DCT. To be freed by
 * the caller. */
uint8_t *fixture_decode(const uint8_t *bytes, unsigned long size, bool fast);

/* Writes n samples {label INT = 3 * i, image IMAGE (JPEG, every third raw), weight FLOAT = i / 2, note BYTES} to a new
 * file. damaged: the sample whose JPEG is cut in half and whose header is kept, or -1. Returns its path, to be given to
 * fixture_remove. */
char *fixture_write(uint64_t n, int64_t damaged);
void fixture_remove(char *path);

/* Writes the picture, the field image alone, to a new file. */
char *fixture_write_picture(const beton_input *picture);

/* The output of that name; fixture_look: NULL if there is none, where fixture_find fails the test. */
const beton_tensor *fixture_look(const beton_batch *batch, const char *name);
const beton_tensor *fixture_find(const beton_batch *batch, const char *name);

size_t fixture_element_bytes(beton_dtype dtype);

/* Bytes of a sample's part of the output. */
size_t fixture_row_bytes(const beton_tensor *tensor);

/* One output of epoch 2 by sample, which must have rows of `bytes` bytes; to be freed. samples: of the file. sizes:
 * NULL, or options of the iterator. */
uint8_t *fixture_load(const char *path, size_t samples, const beton_loader_options *options,
		      const beton_iterator_options *sizes, const char *name, size_t bytes);

/* The options are refused with INVALID_ARGUMENT and a message that has these words. */
void fixture_refuse(const char *path, const beton_loader_options *options, const char *words);

/* Begins an epoch, and closes the present epoch of *iterator. */
void fixture_start(beton_iterator **iterator, beton_loader *loader, uint64_t epoch, uint64_t position);

/* Closes both, by turns the one and the other first. */
void fixture_close(beton_loader **loader, beton_iterator **iterator);

/* Counts the batches that are allocated now, and overwrites them when they are released. count outlives the loader. */
beton_allocator fixture_allocator(atomic_int *count);

/* How many threads, and open files, the process has. */
int fixture_threads(void);
int fixture_files(void);
/* Sleeps for a millisecond, between two looks at what is waited for. */
void fixture_pause(void);

/* Options for small batches: batch_size, threads, 16 x 12 pixels. */
beton_loader_options fixture_options(uint32_t batch_size, uint32_t num_threads);

#endif
