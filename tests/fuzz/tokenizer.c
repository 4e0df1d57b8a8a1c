/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a vocabulary: refused with a message that names the file, or one whose tokens are the bytes of the text,
 * which is the same input. The first byte chooses the kind of file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exercise.h"
#include "fuzz.h"
#include "tokenizer/tokenizer.h"

typedef struct place {
	const tokenizer *words;
	const uint8_t *text;
	size_t at;
	size_t size;
} place;

static int compare(void *context, const uint32_t *tokens, size_t count, beton_error *err)
{
	(void)err;
	place *self = context;
	for (size_t i = 0; i < count; i++) {
		size_t size;
		const uint8_t *bytes = tokenizer_bytes(self->words, tokens[i], &size);
		require(bytes && tokens[i] < tokenizer_vocabulary(self->words), "a token is one of the vocabulary");
		require(size <= self->size - self->at && memcmp(bytes, self->text + self->at, size) == 0,
			"the tokens are the text");
		self->at += size;
	}
	return BETON_OK;
}

static void put_file(const char *path, const uint8_t *data, size_t size)
{
	FILE *file = fopen(path, "wb");
	require(file && fwrite(data, 1, size, file) == size && fclose(file) == 0, "there is a file");
}

/* The first line is vocab.json, the others are merges.txt. */
static void put_folder(const char *folder, const uint8_t *data, size_t size)
{
	char path[96];
	const uint8_t *line = memchr(data, '\n', size);
	size_t first = line ? (size_t)(line - data) + 1 : size;
	snprintf(path, sizeof(path), "%s/vocab.json", folder);
	put_file(path, data, first);
	snprintf(path, sizeof(path), "%s/merges.txt", folder);
	put_file(path, data + first, size - first);
}

static void remove_file(const char *folder, const char *name)
{
	char path[96];
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	unlink(path); /* not every input has made each file */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char folder[] = "/dev/shm/fuzz-tokenizer-XXXXXX", path[96];
	if (size == 0)
		return 0;
	require(mkdtemp(folder) != NULL, "there is a folder");
	uint8_t kind = data[0] % 3;
	snprintf(path, sizeof(path), "%s%s", folder, kind == 0 ? "" : kind == 1 ? "/a.tiktoken" : "/a.json");
	if (kind == 0)
		put_folder(folder, data + 1, size - 1);
	else
		put_file(path, data + 1, size - 1);
	tokenizer *words;
	beton_error err = {0};
	int result = tokenizer_open(&words, path, &err);
	require(result == BETON_OK || (!words && strstr(err.message, folder)), "a refusal names the file");
	if (result == BETON_OK) {
		place self = {.words = words, .text = data, .size = size};
		result = tokenizer_encode(words, (const char *)data, size, "text", compare, &self, &err);
		require(result != BETON_OK || self.at == size, "the tokens are all of the text");
	}
	tokenizer_close(&words);
	remove_file(folder, "vocab.json");
	remove_file(folder, "merges.txt");
	remove_file(folder, "a.tiktoken");
	remove_file(folder, "a.json");
	require(rmdir(folder) == 0, "nothing else is in the folder");
	return 0;
}
