/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams of tokens: opens files, and finds and reads their tokens.
 */
#include <beton/tokens.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/error.h"
#include "common/hash.h"
#include "common/sized.h"
#include "common/system.h"
#include "file_access.h"
#include "format.h"
#include "types/types.h"

/* llm.c's header. */
enum { LLMC_HEADER = 1024, LLMC_MAGIC = 20240520, LLMC_VERSION = 1, LLMC_WIDE_MAGIC = 20240801, LLMC_WIDE_VERSION = 7 };

/* Pieces that are hashed of a file without checksums, and their bytes. */
enum { PIECES = 32, PIECE = 4096 };

/* Bytes of a small compressed chunk beyond its tokens. */
enum { PACKED_EXTRA = 1024 };

/* Constant after open. */
struct beton_tokens {
	char *path;
	file_access file;     /* of a .bin */
	beton_reader *reader; /* of a .beton */
	uint32_t field;       /* .beton: of tokens */
	int length_field;     /* .beton: of their number; -1: every chunk is full */
	uint64_t last_length; /* .beton: tokens of the last chunk */
	beton_tokens_info info;
};

void beton_tokens_options_init_sized(beton_tokens_options *options, size_t size)
{
	beton_reader_options reader;
	beton_reader_options_init(&reader);
	const beton_tokens_options defaults = {.struct_size = sizeof(defaults), .cache_bytes = reader.cache_bytes};
	bt_sized_init(options, size, &defaults);
}

/* ---- .bin ---- */

static int read_bytes(const beton_tokens *tokens, void *destination, size_t size, uint64_t offset, beton_error *err)
{
	ssize_t got;
	int result = bt_access_read(&tokens->file, destination, size, offset, &got, err);
	return result == BETON_OK ? bt_access_result(tokens->path, got, size, offset, err) : result;
}

static int open_bin(beton_tokens *tokens, beton_error *err)
{
	struct stat status;
	int result = bt_access_open(&tokens->file, tokens->path, &status, err);
	if (result != BETON_OK)
		return result;
	if (!S_ISREG(status.st_mode))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: not a regular file", tokens->path);
	tokens->info.file_size = tokens->info.data_end = (uint64_t)status.st_size;
	return BETON_OK;
}

static int take_raw(beton_tokens *tokens, beton_error *err)
{
	beton_tokens_info *info = &tokens->info;
	info->token_size = 2;
	info->num_tokens = info->file_size / 2;
	if (info->file_size % 2 != 0)
		return bt_fail(err, BETON_FORMAT, "%s: %llu bytes are not a whole number of 16-bit tokens",
			       tokens->path, (unsigned long long)info->file_size);
	return BETON_OK;
}

static int take_llmc(beton_tokens *tokens, beton_error *err)
{
	beton_tokens_info *info = &tokens->info;
	uint8_t head[12];
	if (info->file_size < LLMC_HEADER)
		return bt_fail(err, BETON_TRUNCATED, "%s: llm.c's header needs %d bytes, the file has %llu",
			       tokens->path, LLMC_HEADER, (unsigned long long)info->file_size);
	int result = read_bytes(tokens, head, sizeof(head), 0, err);
	if (result != BETON_OK)
		return result;
	uint32_t magic = load_u32(head), version = load_u32(head + 4);
	int32_t count = (int32_t)load_u32(head + 8);
	if (magic != LLMC_MAGIC && magic != LLMC_WIDE_MAGIC)
		return bt_fail(err, BETON_FORMAT, "%s: no token file of llm.c: it begins with %u, not %d or %d",
			       tokens->path, magic, LLMC_MAGIC, LLMC_WIDE_MAGIC);
	bool wide = magic == LLMC_WIDE_MAGIC;
	int expected = wide ? LLMC_WIDE_VERSION : LLMC_VERSION;
	if (version != (uint32_t)expected)
		return bt_fail(err, BETON_UNSUPPORTED_VERSION, "%s: llm.c's token file %u has version %u, not %d",
			       tokens->path, magic, version, expected);
	if (count < 0)
		return bt_fail(err, BETON_FORMAT, "%s: the header counts %d tokens", tokens->path, count);
	info->data_offset = LLMC_HEADER;
	info->token_size = wide ? 4 : 2;
	info->num_tokens = (uint64_t)count;
	uint64_t needed = LLMC_HEADER + info->num_tokens * info->token_size;
	if (info->file_size < needed)
		return bt_fail(err, BETON_TRUNCATED, "%s: %d tokens of %u bytes need %llu bytes, the file has %llu",
			       tokens->path, count, info->token_size, (unsigned long long)needed,
			       (unsigned long long)info->file_size);
	if (info->file_size > needed)
		return bt_fail(err, BETON_FORMAT, "%s: %llu extra bytes after the %d tokens declared in the header",
			       tokens->path, (unsigned long long)(info->file_size - needed), count);
	return BETON_OK;
}

/* ---- .beton ---- */

static bool holds_tokens(const beton_field *field)
{
	bool array = bt_form_of(field->type) == BT_FORM_ARRAY;
	return array && field->ndim == 1 && field->shape[0] > 0 && field->shape[0] <= BETON_TOKENS_CHUNK_MAX &&
	       (strcmp(field->dtype, "<u2") == 0 || strcmp(field->dtype, "<u4") == 0);
}

static int find_field(beton_tokens *tokens, const char *name, beton_error *err)
{
	const beton_reader *reader = tokens->reader;
	uint32_t fields = beton_reader_info(reader)->num_fields;
	int named = name ? beton_reader_find_field(reader, name) : -1;
	if (name && named < 0)
		return bt_fail(err, BETON_NOT_FOUND, "%s: no field '%s'", tokens->path, name);
	uint32_t i = name ? (uint32_t)named : 0;
	while (!name && i < fields && !holds_tokens(beton_reader_field(reader, i)))
		i++;
	if (i == fields)
		return bt_fail(err, BETON_UNSUPPORTED_FIELD,
			       "%s: no field holds tokens, an array of one dimension of <u2 or <u4", tokens->path);
	const beton_field *field = beton_reader_field(reader, i);
	if (!holds_tokens(field))
		return bt_fail(err, BETON_UNSUPPORTED_FIELD,
			       "%s: field '%s' is not an array of one dimension of <u2 or <u4", tokens->path,
			       field->name);
	tokens->field = i;
	tokens->length_field = beton_reader_find_field(reader, BETON_TOKENS_LENGTH_FIELD);
	if (tokens->length_field >= 0 &&
	    beton_reader_field(reader, (uint32_t)tokens->length_field)->type != BETON_FIELD_INT)
		tokens->length_field = -1;
	tokens->info.token_size = field->item_size;
	tokens->info.chunk_tokens = field->shape[0];
	return BETON_OK;
}

/* Reads the number of tokens that a chunk says it has. */
static int read_length(const beton_tokens *tokens, uint64_t chunk, uint64_t *length, beton_error *err)
{
	beton_value value;
	*length = tokens->info.chunk_tokens;
	if (tokens->length_field < 0)
		return BETON_OK;
	int result = beton_reader_value(tokens->reader, chunk, (uint32_t)tokens->length_field, &value, err);
	if (result != BETON_OK)
		return result;
	if (value.integer < 1 || (uint64_t)value.integer > *length)
		return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)chunk,
				      "%s: sample %llu: %lld tokens in a chunk of %llu", tokens->path,
				      (unsigned long long)chunk, (long long)value.integer, (unsigned long long)*length);
	*length = (uint64_t)value.integer;
	return BETON_OK;
}

static int take_beton(beton_tokens *tokens, const beton_tokens_options *options, beton_error *err)
{
	beton_tokens_info *info = &tokens->info;
	beton_reader_options how;
	beton_reader_options_init(&how);
	how.cache_bytes = options->cache_bytes;
	how.read = options->read;
	how.context = options->context;
	how.cache = options->cache;
	how.borrow = options->borrow;
	how.give_back = options->give_back;
	int result = beton_reader_open_with(&tokens->reader, tokens->path, &how, err);
	if (result == BETON_OK)
		result = find_field(tokens, options->field, err);
	if (result != BETON_OK)
		return result;
	const beton_file_info *file = beton_reader_info(tokens->reader);
	info->file_size = file->file_size;
	info->data_end = file->data_end;
	info->chunk_bytes = info->chunk_tokens * info->token_size;
	/* ZSTD_compressBound is smaller. A blob lies in one page. */
	if (beton_reader_field(tokens->reader, tokens->field)->compression != BETON_COMPRESSION_NONE)
		info->chunk_bytes += info->chunk_bytes / 256 + PACKED_EXTRA;
	if (info->chunk_bytes > file->page_size)
		info->chunk_bytes = file->page_size;
	if (file->num_samples == 0)
		return BETON_OK;
	result = read_length(tokens, file->num_samples - 1, &tokens->last_length, err);
	if (result == BETON_OK &&
	    (__builtin_mul_overflow(file->num_samples - 1, info->chunk_tokens, &info->num_tokens) ||
	     info->num_tokens > INT64_MAX - tokens->last_length))
		return bt_fail(err, BETON_FORMAT, "%s: %llu chunks of %llu tokens are 2^63 tokens or more",
			       tokens->path, (unsigned long long)file->num_samples,
			       (unsigned long long)info->chunk_tokens);
	info->num_tokens += tokens->last_length;
	return result;
}

/* ---- opening ---- */

/* The other files of llm.c that end in .bin: model, debug state, tokenizer, evaluation, optimizer state. */
static bool is_other_file_of_llmc(uint32_t magic)
{
	return magic == 20240326 || magic == 20240327 || magic == 20240328 || magic == 20240522 || magic == 20240527;
}

/* Decides between the formats. */
static int recognize(beton_tokens *tokens, beton_error *err)
{
	uint8_t head[4] = {0};
	beton_tokens_format *format = &tokens->info.format;
	if (bt_ends_with(tokens->path, ".beton")) {
		*format = BETON_TOKENS_BETON;
		return BETON_OK;
	}
	int result = open_bin(tokens, err);
	if (result == BETON_OK && tokens->info.file_size >= sizeof(head))
		result = read_bytes(tokens, head, sizeof(head), 0, err);
	if (result != BETON_OK)
		return result;
	uint32_t magic = load_u32(head);
	if (is_other_file_of_llmc(magic))
		return bt_fail(err, BETON_FORMAT,
			       "%s: a file of llm.c, but of another kind than tokens (it begins with "
			       "%u)",
			       tokens->path, magic);
	if (magic == LLMC_MAGIC || magic == LLMC_WIDE_MAGIC) {
		*format = BETON_TOKENS_LLMC;
		return BETON_OK;
	}
	*format = BETON_TOKENS_RAW;
	return bt_ends_with(tokens->path, ".bin")
		       ? BETON_OK
		       : bt_fail(err, BETON_INVALID_ARGUMENT,
				 "%s: the format of its tokens cannot be told from its name, which ends neither in "
				 ".bin nor in .beton, and must be given",
				 tokens->path);
}

static int open_tokens(beton_tokens *tokens, const beton_tokens_options *options, beton_error *err)
{
	tokens->info.format = options->format;
	int result = BETON_OK;
	if (options->format == BETON_TOKENS_AUTO)
		result = recognize(tokens, err);
	else if (options->format != BETON_TOKENS_BETON)
		result = open_bin(tokens, err);
	if (result != BETON_OK)
		return result;
	if (tokens->info.format == BETON_TOKENS_BETON)
		return take_beton(tokens, options, err);
	return tokens->info.format == BETON_TOKENS_LLMC ? take_llmc(tokens, err) : take_raw(tokens, err);
}

int beton_tokens_open(beton_tokens **out, const char *path, const beton_tokens_options *options, beton_error *err)
{
	beton_tokens_options own;
	beton_tokens_options_init(&own);
	if (out)
		*out = NULL;
	if (BT_MISSING(err, out, path))
		return BETON_INVALID_ARGUMENT;
	int result = options ? bt_sized_take(&own, options, "tokens options", err) : BETON_OK;
	if (result != BETON_OK)
		return result;
	if ((uint32_t)own.format > BETON_TOKENS_BETON)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "tokens options: format is %d, not 0 to %d", own.format,
			       BETON_TOKENS_BETON);
	beton_tokens *tokens = calloc(1, sizeof(*tokens));
	*out = tokens;
	if (tokens) {
		tokens->file = (file_access){.fd = -1,
					     .read = own.read,
					     .borrow = own.borrow,
					     .give_back = own.give_back,
					     .context = own.context};
		tokens->path = strdup(path);
	}
	if (!tokens || !tokens->path)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	else
		result = open_tokens(tokens, &own, err);
	if (result != BETON_OK)
		beton_tokens_close(out);
	return result;
}

void beton_tokens_close(beton_tokens **out)
{
	if (!out || !*out)
		return;
	beton_tokens *tokens = *out;
	*out = NULL;
	beton_reader_close(&tokens->reader);
	bt_access_close(&tokens->file);
	free(tokens->path);
	free(tokens);
}

const beton_tokens_info *beton_tokens_get_info(const beton_tokens *tokens)
{
	if (!tokens)
		return NULL;
	return &tokens->info;
}

const char *beton_tokens_path(const beton_tokens *tokens)
{
	if (!tokens)
		return NULL;
	return tokens->path;
}

const beton_reader *beton_tokens_reader(const beton_tokens *tokens)
{
	if (!tokens)
		return NULL;
	return tokens->reader;
}

int beton_tokens_fd(const beton_tokens *tokens)
{
	if (!tokens)
		return -1;
	return tokens->reader ? beton_reader_fd(tokens->reader) : tokens->file.fd;
}

/* ---- reading ---- */

uint64_t beton_tokens_parts(const beton_tokens *tokens, uint64_t count)
{
	if (!tokens)
		return 0;
	/* The worst case begins at the last token of a chunk. */
	uint64_t chunk = tokens->info.chunk_tokens;
	return chunk == 0 ? 1 : 1 + (count - 1) / chunk + ((count - 1) % chunk > 0);
}

static int locate_chunk(const beton_tokens *tokens, uint64_t chunk, beton_value *value, beton_error *err)
{
	uint64_t length, last = beton_reader_info(tokens->reader)->num_samples - 1;
	int result = beton_reader_value(tokens->reader, chunk, tokens->field, value, err);
	if (result == BETON_OK && value->blob.size > tokens->info.chunk_bytes)
		result = bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)chunk,
					"%s: sample %llu: a compressed chunk of %llu bytes, larger than %llu",
					tokens->path, (unsigned long long)chunk, (unsigned long long)value->blob.size,
					(unsigned long long)tokens->info.chunk_bytes);
	if (result == BETON_OK)
		result = read_length(tokens, chunk, &length, err);
	if (result == BETON_OK && chunk < last && length < tokens->info.chunk_tokens)
		result = bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)chunk,
					"%s: sample %llu: only the last chunk may have fewer than %llu tokens, and "
					"this one has %llu",
					tokens->path, (unsigned long long)chunk,
					(unsigned long long)tokens->info.chunk_tokens, (unsigned long long)length);
	return result;
}

int beton_tokens_locate(const beton_tokens *tokens, uint64_t first, uint64_t count, beton_value *values,
			beton_error *err)
{
	if (BT_MISSING(err, tokens, values))
		return BETON_INVALID_ARGUMENT;
	const beton_tokens_info *info = &tokens->info;
	if (count == 0 || first > info->num_tokens || count > info->num_tokens - first)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "%s: %llu tokens from token %llu on, of %llu tokens",
			       tokens->path, (unsigned long long)count, (unsigned long long)first,
			       (unsigned long long)info->num_tokens);
	uint64_t parts = beton_tokens_parts(tokens, count);
	memset(values, 0, parts * sizeof(*values));
	if (!tokens->reader) {
		values[0].type = BETON_FIELD_NDARRAY;
		values[0].size = values[0].blob.size = count * info->token_size;
		values[0].blob.offset = info->data_offset + first * info->token_size;
		return BETON_OK;
	}
	uint64_t chunk = first / info->chunk_tokens, last = (first + count - 1) / info->chunk_tokens;
	int result = BETON_OK;
	for (uint64_t i = 0; chunk + i <= last && result == BETON_OK; i++)
		result = locate_chunk(tokens, chunk + i, &values[i], err);
	return result;
}

static void widen(uint32_t *out, const uint8_t *bytes, uint64_t count, uint32_t token_size)
{
	for (uint64_t i = 0; i < count; i++)
		out[i] = token_size == 2 ? load_u16(bytes + 2 * i) : load_u32(bytes + 4 * i);
}

/* `count` tokens of one value, from token `skip` of it on. */
static int read_part(const beton_tokens *tokens, const beton_value *value, uint64_t skip, uint64_t count,
		     uint8_t *buffer, uint32_t *out, beton_error *err)
{
	const beton_tokens_info *info = &tokens->info;
	int result = tokens->reader ? beton_reader_read_value(tokens->reader, value, buffer, err)
				    : read_bytes(tokens, buffer, value->size, value->blob.offset, err);
	if (result == BETON_OK)
		widen(out, buffer + skip * info->token_size, count, info->token_size);
	return result;
}

int beton_tokens_read(const beton_tokens *tokens, uint64_t first, uint64_t count, uint32_t *out, beton_error *err)
{
	if (BT_MISSING(err, tokens))
		return BETON_INVALID_ARGUMENT;
	if (count && BT_MISSING(err, out))
		return BETON_INVALID_ARGUMENT;
	/* In pieces, so that the buffer is small. */
	const uint64_t most = tokens->reader ? tokens->info.chunk_tokens : 65536;
	uint8_t *buffer = malloc(most * tokens->info.token_size);
	if (!buffer)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for %llu tokens", tokens->path,
			       (unsigned long long)most);
	int result = BETON_OK;
	for (uint64_t done = 0, piece; done < count && result == BETON_OK; done += piece) {
		beton_value values[2]; /* a piece lies in one chunk; locate may need room for two */
		uint64_t skip = tokens->reader ? (first + done) % most : 0;
		piece = count - done < most - skip ? count - done : most - skip;
		result = beton_tokens_locate(tokens, first + done, piece, values, err);
		if (result == BETON_OK)
			result = read_part(tokens, &values[0], skip, piece, buffer, out + done, err);
	}
	free(buffer);
	return result;
}

int beton_tokens_fingerprint(const beton_tokens *tokens, uint64_t *out, beton_error *err)
{
	if (BT_MISSING(err, tokens, out))
		return BETON_INVALID_ARGUMENT;
	const beton_tokens_info *info = &tokens->info;
	if (tokens->reader)
		return beton_reader_fingerprint(tokens->reader, out, err);
	uint8_t piece[PIECE];
	uint64_t bytes = info->num_tokens * info->token_size, size = bytes < PIECE ? bytes : PIECE;
	uint64_t room = bytes - size; /* where the last piece begins */
	const uint64_t facts[] = {info->num_tokens, info->token_size};
	uint64_t sum = XXH3_64bits(facts, sizeof(facts));
	int result = BETON_OK;
	for (uint64_t i = 0; i < PIECES && size > 0 && result == BETON_OK; i++) {
		uint64_t from = room / (PIECES - 1) * i + room % (PIECES - 1) * i / (PIECES - 1);
		result = read_bytes(tokens, piece, size, info->data_offset + from, err);
		if (result == BETON_OK)
			sum = XXH3_64bits_withSeed(piece, size, sum);
	}
	*out = sum;
	return result;
}
