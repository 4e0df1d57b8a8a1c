/* SPDX-License-Identifier: Apache-2.0
 *
 * libbeton: files that hold one stream of tokens, for language models.
 *
 *   RAW    nanoGPT's .bin: u16 tokens, little endian, without a header
 *   LLMC   llm.c's .bin: 256 i32 {20240520, 1, tokens}, then u16 tokens; or {20240801, 7, tokens}, then u32 tokens
 *   BETON  a .beton file whose samples are consecutive chunks of the stream: see docs/format.md, "Tokens"
 *
 * Sources: nanoGPT, data/openwebtext/prepare.py; llm.c, dev/data/data_common.py and llmc/dataloader.h.
 *
 * Threads: any number of threads may use an open file at once.
 */
#ifndef BETON_TOKENS_H
#define BETON_TOKENS_H

#include <stdint.h>

#include <beton/beton.h>
#include <beton/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Formats of token files. */
typedef enum beton_tokens_format {
	/* LLMC if the file begins with one of its magic numbers; else BETON or RAW by the name's end, .beton or .bin.
	 * (A raw file of GPT-2's tokens cannot begin with a magic number: its first token would be 55432 or 55713.) */
	BETON_TOKENS_AUTO = 0,
	BETON_TOKENS_RAW = 1,
	BETON_TOKENS_LLMC = 2,
	BETON_TOKENS_BETON = 3,
} beton_tokens_format;

/* Name of the field of a .beton file that has the number of tokens of each chunk. */
#define BETON_TOKENS_LENGTH_FIELD "length"

/* Most tokens of a chunk: 32-bit tokens that fill the smallest page. */
#define BETON_TOKENS_CHUNK_MAX (BETON_PAGE_SIZE_MIN / 4)

/* Initialise with beton_tokens_options_init. */
typedef struct beton_tokens_options {
	size_t struct_size;         /* sizeof(beton_tokens_options) */
	beton_tokens_format format; /* default AUTO */
	const char *field; /* BETON: the field of tokens; NULL (default): the first array of one dimension of "<u2" or
			      "<u4" */
	/* As in beton_reader_options; of RAW and LLMC only the header and what the functions below read. */
	uint64_t cache_bytes;
	int64_t (*read)(void *context, int fd, void *destination, size_t size, uint64_t offset);
	void *context;
	beton_cache *cache;
	int (*borrow)(void *context, int *fd, beton_error *err);
	void (*give_back)(void *context, int fd);
} beton_tokens_options;

/* Facts of an open file. */
typedef struct beton_tokens_info {
	beton_tokens_format format; /* never AUTO */
	uint32_t token_size;        /* bytes: 2 or 4 */
	uint64_t num_tokens;
	uint64_t data_offset;  /* RAW and LLMC: of the first token, in bytes; BETON: 0 */
	uint64_t data_end;     /* the stream ends at or before this byte of the file */
	uint64_t chunk_tokens; /* BETON: tokens of each sample but the last, which may have fewer; RAW and LLMC: 0 */
	uint64_t chunk_bytes;  /* BETON: most stored bytes of a chunk; RAW and LLMC: 0 */
	uint64_t file_size;    /* bytes */
} beton_tokens_info;

typedef struct beton_tokens beton_tokens;

BETON_API void beton_tokens_options_init_sized(beton_tokens_options *options, size_t size);
static inline void beton_tokens_options_init(beton_tokens_options *options)
{
	beton_tokens_options_init_sized(options, sizeof(*options));
}

/* Opens a file and checks its header and size. options may be NULL. The caller closes *out, which is NULL on failure.
 * Errors: as for beton_reader_open; also INVALID_ARGUMENT (options; AUTO and a name that ends otherwise), FORMAT (not
 * the magic number, a negative or too small count, another file of llm.c, half a token at the end), TRUNCATED (the
 * header counts more tokens than the file has), UNSUPPORTED_VERSION, NOT_FOUND and UNSUPPORTED_FIELD (no such field, or
 * none that holds tokens), SAMPLE_CORRUPT (the last chunk's length). */
BETON_API int beton_tokens_open(beton_tokens **out, const char *path, const beton_tokens_options *options,
				beton_error *err);

/* Closes *tokens and sets it to NULL; NULL is allowed. No thread may still use it. */
BETON_API void beton_tokens_close(beton_tokens **tokens);

/* Valid until close. The reader is that of a BETON file, else NULL. The descriptor is for I/O engines: read only; -1
 * with the option borrow. */
BETON_API const beton_tokens_info *beton_tokens_get_info(const beton_tokens *tokens);
BETON_API const char *beton_tokens_path(const beton_tokens *tokens);
BETON_API const beton_reader *beton_tokens_reader(const beton_tokens *tokens);
BETON_API int beton_tokens_fd(const beton_tokens *tokens);

/* The most values that beton_tokens_locate fills for `count` > 0 tokens. */
BETON_API uint64_t beton_tokens_parts(const beton_tokens *tokens, uint64_t count);

/* Finds the stored bytes of tokens first .. first + count - 1: sets values[0 .. beton_tokens_parts(count) - 1], in the
 * order of the stream; the last may be empty (blob.size 0). RAW and LLMC: one value, exactly these tokens.
 * BETON: whole chunks; the first begins at token first - first % chunk_tokens; a chunk of fewer tokens than
 * its row ends with zeros. Errors: INVALID_ARGUMENT (no such tokens), SAMPLE_CORRUPT (also: a chunk that is not
 * full, but not the last one), IO, FILE_CHANGED, NO_MEMORY. */
BETON_API int beton_tokens_locate(const beton_tokens *tokens, uint64_t first, uint64_t count, beton_value *values,
				  beton_error *err);

/* Reads tokens first .. first + count - 1, and compares chunks with their checksums. Errors: as for
 * beton_tokens_locate, FORMAT (the field's dictionary is damaged). */
BETON_API int beton_tokens_read(const beton_tokens *tokens, uint64_t first, uint64_t count, uint32_t *out,
				beton_error *err);

/* A hash of the stream. BETON: beton_reader_fingerprint. RAW and LLMC: of the number of tokens, their size and 32
 * evenly spread pieces of 4 KiB; files that differ elsewhere have the same hash. Errors: IO, FILE_CHANGED, NO_MEMORY.
 */
BETON_API int beton_tokens_fingerprint(const beton_tokens *tokens, uint64_t *out, beton_error *err);

#ifdef __cplusplus
}
#endif

#endif
