/* SPDX-License-Identifier: Apache-2.0
 *
 * Verifies .beton files, and copies the intact samples of a damaged file to a new one. struct_size: see
 * <beton/beton.h>.
 */
#ifndef BETON_VERIFY_H
#define BETON_VERIFY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <beton/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One fault of a file. */
typedef struct beton_finding {
	int32_t code;        /* FORMAT, SAMPLE_CORRUPT, TRUNCATED, INCOMPLETE, UNSUPPORTED... */
	int32_t field;       /* index, or -1 */
	int64_t sample;      /* index, or -1 */
	uint64_t offset;     /* in the file, bytes */
	const char *section; /* "header", "fields", "metadata", "pages", "extension block", "allocation table" */
	const char *message; /* one line; valid during the call */
} beton_finding;

/* Result of a check. A sample counts as damaged once, a finding each time. */
typedef struct beton_verify_report {
	uint64_t samples;
	uint64_t damaged_samples;
	uint64_t findings;
	uint64_t bytes;     /* read from blobs; 0 without deep */
	uint64_t pictures;  /* decoded */
	uint64_t undecoded; /* pictures that this build cannot decode, for want of a JPEG decoder */
	uint64_t unread;    /* values in the pages that were not read; without deep, all of them */
	bool checksums;     /* header, metadata, allocation table and all values in the pages have one, so a deep check
			       finds any change */
	bool whole; /* no findings, nothing unread, and checksums: the file is as its writer wrote it. Without `whole`,
		       no findings only means no fault that this check can see */
	uint64_t reserved[8]; /* 0 */
} beton_verify_report;

typedef struct beton_verify_options {
	size_t struct_size;   /* sizeof(beton_verify_options), set by beton_verify_options_init */
	bool deep;            /* read every blob too: checksums, pictures, texts, compressed values; default false */
	uint32_t num_threads; /* 0 (default): one for each core this process may use */
	/* Called for each finding, in the file's order, by one thread at a time; false stops the check. May be NULL. */
	bool (*finding)(void *context, const beton_finding *finding);
	/* Called now and then with the progress, by one thread at a time; false stops the check. May be NULL. */
	bool (*progress)(void *context, uint64_t samples, uint64_t total, uint64_t bytes);
	void *context;
	/* deep: most pixels of a JPEG. A JPEG with more is a finding and is not decoded, since decoding takes up to 8
	 * bytes a pixel; a loader with the same limit calls it a bad sample. 0
	 * (default): 89,478,485. */
	uint64_t max_pixels;
} beton_verify_options;

BETON_API void beton_verify_options_init_sized(beton_verify_options *options, size_t size);
static inline void beton_verify_options_init(beton_verify_options *options)
{
	beton_verify_options_init_sized(options, sizeof(*options));
}

/* Checks a file's structure and the place of every value; with deep also the values' content. Continues after a finding
 * where possible. BETON_OK: the check is complete, with report->findings findings. options may be NULL. Memory grows
 * with the number of samples only if the allocation table is out of order. Errors: NOT_FOUND, ACCESS, INVALID_ARGUMENT,
 * IO, FILE_CHANGED, NO_MEMORY, SYSTEM (a thread), CANCELLED (a callback returned false). */
BETON_API int beton_verify(const char *path, const beton_verify_options *options, beton_verify_report *report,
			   beton_error *err);

/* Result of a repair. */
typedef struct beton_repair_report {
	uint64_t samples;     /* number according to the input's header */
	uint64_t kept;        /* samples in the output */
	uint64_t unverified;  /* kept samples whose integers, floats and picture sizes are under a damaged checksum */
	uint64_t pictures;    /* pictures found in the pages without any metadata; the output then has nothing else */
	bool table_lost;      /* the allocation table is lost; sizes of pictures come from the pictures */
	bool metadata_lost;   /* the metadata are lost; only pictures can be saved */
	uint64_t reserved[8]; /* 0 */
} beton_repair_report;

typedef struct beton_repair_options {
	size_t struct_size; /* sizeof(beton_repair_options), set by beton_repair_options_init */
	bool strict;        /* leave out unverified samples; default false */
	/* Called for `count` lost samples from `first` on, with the reason; false stops the repair. May be NULL. */
	bool (*lost)(void *context, uint64_t first, uint64_t count, const char *reason);
	/* As in beton_verify_options. */
	bool (*progress)(void *context, uint64_t samples, uint64_t total, uint64_t bytes);
	void *context;
	uint64_t max_pixels; /* of a JPEG; larger ones are lost. 0 (default): 89,478,485 */
} beton_repair_options;

BETON_API void beton_repair_options_init_sized(beton_repair_options *options, size_t size);
static inline void beton_repair_options_init(beton_repair_options *options)
{
	beton_repair_options_init_sized(options, sizeof(*options));
}

/* Copies the intact samples of input to output. input may be damaged, truncated, or left by a killed writer (also
 * FFCV's). Nothing is encoded again. Fields with damaged names become field_0, field_1... Pictures are decoded to check
 * that they are whole. If no sample is intact, nothing is written. Errors: as for opening input if nothing can be
 * saved (FORMAT, UNSUPPORTED_VERSION, UNSUPPORTED_FIELD, INCOMPLETE...), as for beton_writer_open and
 * beton_writer_put, UNSUPPORTED (pictures must be found, and this build has no JPEG decoder), CANCELLED. */
BETON_API int beton_repair(const char *input, const char *output, const beton_repair_options *options,
			   beton_repair_report *report, beton_error *err);

#ifdef __cplusplus
}
#endif

#endif
