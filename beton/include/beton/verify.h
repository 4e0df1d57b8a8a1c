/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a .beton file is whole, and a new file from what is whole in a damaged one. <beton/beton.h> says which
 * struct_size an options struct may have.
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
	int32_t field;       /* its number, or -1 */
	int64_t sample;      /* its number, or -1 */
	uint64_t offset;     /* in the file, bytes */
	const char *section; /* "header", "fields", "metadata", "pages", "extension block", "allocation table" */
	const char *message; /* one line; valid during the call */
} beton_finding;

/* What a check saw. A sample counts as damaged once, a finding each time. */
typedef struct beton_verify_report {
	uint64_t samples;
	uint64_t damaged_samples;
	uint64_t findings;
	uint64_t bytes;     /* of blobs that were read; 0 without deep */
	uint64_t pictures;  /* that were decoded */
	uint64_t undecoded; /* pictures that were not, because this build has no JPEG decoder */
	uint64_t unread;    /* values in the pages that were not read: all of them, without deep */
	bool checksums; /* header, metadata, allocation table and every value in the pages have one: nothing can change
			   unseen where all is read */
	bool whole;     /* no findings, nothing unread, and checksums: the file is what its writer wrote. Else, without
			   findings, it only has no fault that was looked for, or that can be seen */
} beton_verify_report;

typedef struct beton_verify_options {
	size_t struct_size;   /* sizeof(beton_verify_options), set by beton_verify_options_init */
	bool deep;            /* read every blob too: checksums, pictures, texts, compressed values; default false */
	uint32_t num_threads; /* 0 (default): one for each core this process may use */
	/* Called for each finding, in the file's order, by one thread at a time; false stops the check. May be NULL. */
	bool (*finding)(void *context, const beton_finding *finding);
	/* Called now and then with what was done, by one thread at a time; false stops the check. May be NULL. */
	bool (*progress)(void *context, uint64_t samples, uint64_t total, uint64_t bytes);
	void *context;
	/* deep: pixels of a JPEG. One that has more is a finding, as it is a bad sample to a loader with the
	 * same limit, and is not decoded: a thread holds up to 8 bytes a pixel of a progressive JPEG. 0
	 * (default): 89,478,485. */
	uint64_t max_pixels;
} beton_verify_options;

BETON_API void beton_verify_options_init(beton_verify_options *options);

/* Checks a file: its structure, and that each value of each sample is there; with deep also its content. Goes on after
 * a finding where it can. BETON_OK: the check came to its end, whatever it found (report->findings). options may be
 * NULL. Memory does not grow with the number of samples, but for a table out of order. Errors: NOT_FOUND, ACCESS,
 * INVALID_ARGUMENT, IO, FILE_CHANGED, NO_MEMORY, SYSTEM (a thread), CANCELLED (a callback returned false). */
BETON_API int beton_verify(const char *path, const beton_verify_options *options, beton_verify_report *report,
			   beton_error *err);

/* What beton_repair kept and what it lost. */
typedef struct beton_repair_report {
	uint64_t samples;    /* that the input says it has */
	uint64_t kept;       /* that the output has */
	uint64_t unverified; /* of these: integers, floats and picture sizes are under a damaged checksum */
	uint64_t pictures;   /* found in the pages without any metadata; the output then holds nothing else */
	bool table_lost;     /* sizes of pictures come from the pictures themselves */
	bool metadata_lost;  /* nothing is known of the samples: only their pictures are there */
} beton_repair_report;

typedef struct beton_repair_options {
	size_t struct_size; /* sizeof(beton_repair_options), set by beton_repair_options_init */
	bool strict;        /* leave out unverified samples; default false */
	/* Called for samples that are lost, `count` of them from `first` on, with the reason; false stops the repair.
	 * May be NULL. */
	bool (*lost)(void *context, uint64_t first, uint64_t count, const char *reason);
	/* As that of beton_verify. */
	bool (*progress)(void *context, uint64_t samples, uint64_t total, uint64_t bytes);
	void *context;
	uint64_t max_pixels; /* of a JPEG; one that has more is lost. 0 (default): 89,478,485 */
} beton_repair_options;

BETON_API void beton_repair_options_init(beton_repair_options *options);

/* Writes to output what is whole in input, which may be damaged, cut, or left by a writer that was killed, FFCV's too;
 * nothing is encoded anew. A field whose name is damaged is called field_0, field_1... Pictures are decoded to see that
 * they are whole. If no sample can be kept there is no output. Errors: those of opening input that leave nothing to
 * keep (FORMAT, UNSUPPORTED_VERSION, UNSUPPORTED_FIELD, INCOMPLETE...), those of beton_writer_open and
 * beton_writer_put, UNSUPPORTED (pictures must be found, and this build has no JPEG decoder), CANCELLED. */
BETON_API int beton_repair(const char *input, const char *output, const beton_repair_options *options,
			   beton_repair_report *report, beton_error *err);

#ifdef __cplusplus
}
#endif

#endif
