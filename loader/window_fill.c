/* SPDX-License-Identifier: Apache-2.0 */
#include "window_fill.h"

#include <string.h>

#include "common/error.h"
#include "common/system.h"
#include "io/reads.h"
#include "operations/random.h"
#include "state.h"

/* Tokens of a stream, as they are stored. */
typedef struct stretch {
	const uint8_t *bytes; /* at any address */
	uint64_t count;
	uint32_t size; /* bytes of a token */
} stretch;

static uint32_t token_of(const stretch *from, uint64_t i)
{
	uint16_t narrow;
	uint32_t wide;
	if (from->size == 4) {
		memcpy(&wide, from->bytes + 4 * i, sizeof(wide));
		return wide;
	}
	memcpy(&narrow, from->bytes + 2 * i, sizeof(narrow));
	return narrow;
}

static uint32_t largest(const stretch *from)
{
	uint32_t most = 0;
	if (from->size == 4)
		for (uint64_t i = 0; i < from->count; i++) {
			uint32_t token;
			memcpy(&token, from->bytes + 4 * i, sizeof(token));
			most = token > most ? token : most;
		}
	else
		for (uint64_t i = 0; i < from->count; i++) {
			uint16_t token;
			memcpy(&token, from->bytes + 2 * i, sizeof(token));
			most = token > most ? token : most;
		}
	return most;
}

/* Loops of their own, which compilers vectorize. */
#define WIDEN(row_type, token_type)                                                     \
	do {                                                                            \
		row_type *to = row;                                                     \
		for (uint64_t i = 0; i < from->count; i++) {                            \
			token_type token;                                               \
			memcpy(&token, from->bytes + i * sizeof(token), sizeof(token)); \
			to[i] = (row_type)token;                                        \
		}                                                                       \
	} while (0)

static void widen(void *row, beton_dtype dtype, const stretch *from)
{
	if (dtype == BETON_INT64 && from->size == 2)
		WIDEN(int64_t, uint16_t);
	else if (dtype == BETON_INT64)
		WIDEN(int64_t, uint32_t);
	else if (from->size == 2)
		WIDEN(int32_t, uint16_t);
	else
		WIDEN(int32_t, uint32_t);
}

/* first: the place of the stretch in its stream. */
static int check_range(const beton_loader *loader, const bt_ticket *ticket, const stretch *from, uint64_t first,
		       beton_error *err)
{
	const beton_token_options *options = &loader->options.tokens;
	uint64_t limit = options->dtype == BETON_INT32 ? UINT64_C(1) << 31 : UINT64_C(1) << 32;
	bool named = options->vocabulary > 0 && options->vocabulary < limit;
	limit = named ? options->vocabulary : limit;
	if (limit > (from->size == 2 ? UINT16_MAX : UINT32_MAX) || largest(from) < limit)
		return BETON_OK;
	uint64_t i = 0;
	while (token_of(from, i) < limit)
		i++;
	return bt_fail_sample(err, BETON_SAMPLE_CORRUPT, (int64_t)ticket->sample,
			      "%s: token %llu is %u, not below %llu (option tokens.%s)",
			      loader->dataset.files->list[ticket->file].path, (unsigned long long)(first + i),
			      token_of(from, i), (unsigned long long)limit, named ? "vocabulary" : "dtype");
}

/* The plain bytes of a part that was read. */
static int plain_bytes(bt_tools *tools, const beton_reader *reader, const beton_value *value, const uint8_t **bytes,
		       beton_error *err)
{
	bool verify = tools->loader->options.verify;
	if (!reader)
		return BETON_OK;
	uint64_t begin = bt_now_ns();
	int result = BETON_OK;
	if (value->compression == BETON_COMPRESSION_NONE) {
		result = verify ? beton_reader_check(reader, value, *bytes, err) : BETON_OK;
		tools->stats.verify_ns += bt_now_ns() - begin;
		return result;
	}
	uint8_t *plain = bt_buffer_reserve(&tools->chunk, (size_t)value->size);
	if (!plain)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for %llu bytes", beton_reader_path(reader),
			       (unsigned long long)value->size);
	result = beton_reader_unpack(reader, value, *bytes, verify, plain, err);
	*bytes = plain;
	tools->stats.decode_ns += bt_now_ns() - begin;
	return result;
}

static char *row_of(const bt_ticket *ticket, const bt_output *output, uint32_t number)
{
	return (char *)ticket->slot->tensors[number].data + ticket->index * output->sample_bytes;
}

/* Stores tokens `at`, at + 1... of the window. */
static void store(const bt_tools *tools, const bt_ticket *ticket, const stretch *from, uint64_t at)
{
	const bt_outputs *outputs = tools->loader->outputs;
	uint64_t window = tools->loader->dataset.windows.window;
	for (uint32_t i = 0; i < outputs->count; i++) {
		const bt_output *output = &outputs->list[i];
		stretch part = *from;
		uint64_t to = at;
		if (output->kind == BT_OUTPUT_INPUT && at + part.count > window) {
			part.count = window - at;
		} else if (output->kind == BT_OUTPUT_TARGET && at == 0) {
			part.bytes += part.size;
			part.count--;
		} else if (output->kind == BT_OUTPUT_TARGET) {
			to--;
		}
		if (output->kind == BT_OUTPUT_INPUT || output->kind == BT_OUTPUT_TARGET)
			widen(row_of(ticket, output, i) + to * output->sample_bytes / window, output->tensor.dtype,
			      &part);
	}
}

static int64_t get_token(const void *row, bool wide, uint64_t i)
{
	return wide ? ((const int64_t *)row)[i] : ((const int32_t *)row)[i];
}

/* Counts the documents of a window whose inputs are stored. */
static void store_documents(const bt_tools *tools, const bt_ticket *ticket)
{
	const bt_outputs *outputs = tools->loader->outputs;
	const beton_loader *loader = tools->loader;
	uint64_t window = loader->dataset.windows.window;
	int64_t end = loader->options.tokens.end_of_text;
	bool wide = outputs->list[0].tensor.dtype == BETON_INT64;
	const void *input = row_of(ticket, &outputs->list[0], 0); /* not masked yet */
	for (uint32_t k = 0; k < outputs->count; k++) {
		bt_output_kind kind = outputs->list[k].kind;
		if (kind != BT_OUTPUT_SEGMENT && kind != BT_OUTPUT_POSITION)
			continue;
		int32_t *segment = (int32_t *)row_of(ticket, &outputs->list[k], k), document = 0;
		int64_t *position = (int64_t *)row_of(ticket, &outputs->list[k], k), place = 0;
		for (uint64_t i = 0; i < window; i++) {
			if (kind == BT_OUTPUT_SEGMENT)
				segment[i] = document;
			else
				position[i] = place;
			bool last = get_token(input, wide, i) == end;
			document += last;
			place = last ? 0 : place + 1;
		}
	}
}

static void set_token(void *row, bool wide, uint64_t i, int64_t token)
{
	if (wide)
		((int64_t *)row)[i] = token;
	else
		((int32_t *)row)[i] = (int32_t)token;
}

static bool is_special(const beton_loader *loader, int64_t token)
{
	for (uint64_t i = 0; i < loader->options.tokens.num_special; i++)
		if (loader->dataset.windows.special[i] == token)
			return true;
	return false;
}

/* Replaces a chosen input. */
static int64_t masked(const beton_token_options *options, int64_t token, bt_random *random)
{
	double u = bt_random_uniform(random, 0, 1);
	if (u < 0.8)
		return (int64_t)options->mask_token;
	return u < 0.9 ? (int64_t)(bt_random_bits(random) % options->vocabulary) : token;
}

/* Call it after the inputs and their documents are stored. */
static void mask(const bt_tools *tools, const bt_ticket *ticket)
{
	enum { IGNORED = -100, DRAWS = 3 };
	const beton_loader *loader = tools->loader;
	const beton_token_options *options = &loader->options.tokens;
	const bt_output *list = loader->outputs->list;
	bool wide = list[0].tensor.dtype == BETON_INT64;
	void *input = row_of(ticket, &list[0], 0), *target = row_of(ticket, &list[1], 1);
	bt_random random = {.seed = loader->options.seed,
			    .epoch = ticket->slot->batch.epoch,
			    .sample = ticket->sample,
			    .operation = BT_OPERATION_MASK};
	for (uint64_t i = 0; i < loader->dataset.windows.window; i++) {
		int64_t token = get_token(input, wide, i);
		random.draw = DRAWS * i;
		bool chosen =
			bt_random_uniform(&random, 0, 1) < options->mask_probability && !is_special(loader, token);
		set_token(target, wide, i, chosen ? token : IGNORED);
		if (chosen)
			set_token(input, wide, i, masked(options, token, &random));
	}
}

int bt_window_fill(bt_tools *tools, bt_ticket *ticket, beton_error *err)
{
	const beton_loader *loader = tools->loader;
	const bt_windows *windows = &loader->dataset.windows;
	const beton_tokens *stream = windows->streams[ticket->file];
	const beton_tokens_info *info = beton_tokens_get_info(stream);
	uint64_t first = ticket->number * windows->stride, wanted = windows->window + 1, done = 0;
	int result = BETON_OK;
	for (uint32_t i = 0; done < wanted && result == BETON_OK; i++) {
		const beton_value *value = &ticket->values[i];
		stretch part = {.size = info->token_size};
		result = bt_reads_wait(tools, ticket, i, &part.bytes, err);
		if (result == BETON_OK)
			result = plain_bytes(tools, beton_tokens_reader(stream), value, &part.bytes, err);
		if (result)
			break;
		uint64_t begin = bt_now_ns();
		uint64_t skip = info->chunk_tokens && i == 0 ? first % info->chunk_tokens : 0;
		part.bytes += skip * part.size;
		part.count = value->size / part.size - skip;
		part.count = part.count < wanted - done ? part.count : wanted - done;
		result = check_range(loader, ticket, &part, first + done, err);
		if (result == BETON_OK)
			store(tools, ticket, &part, done);
		done += part.count;
		tools->stats.transform_ns += bt_now_ns() - begin;
	}
	uint64_t begin = bt_now_ns();
	if (result == BETON_OK)
		store_documents(tools, ticket);
	if (result == BETON_OK && loader->options.tokens.mask_probability > 0)
		mask(tools, ticket);
	tools->stats.transform_ns += bt_now_ns() - begin;
	return result;
}
