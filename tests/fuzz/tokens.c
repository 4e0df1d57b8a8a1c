/* SPDX-License-Identifier: Apache-2.0
 *
 * Any bytes as a file of tokens, in each format: refused with a message that names the file, or read within its bounds.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <beton/tokens.h>

#include "common/system.h"
#include "exercise.h"
#include "fuzz.h"

enum { STRETCH = 300 };

static void read_stretch(const beton_tokens *tokens, uint64_t first)
{
	const beton_tokens_info *info = beton_tokens_get_info(tokens);
	uint32_t read[STRETCH];
	beton_error err = {0};
	uint64_t left = info->num_tokens - first, count = left < STRETCH ? left : STRETCH;
	int result = beton_tokens_read(tokens, first, count, read, &err);
	require(result == BETON_OK || *err.message, "a failure has a message");
	require(result == BETON_OK || info->format == BETON_TOKENS_BETON, "a .bin that was opened can be read");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char path[64];
	int fd = memfd_create("tokens", MFD_CLOEXEC);
	require(fd >= 0 && bt_write_full(fd, data, size) == 0, "there is a file");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	for (int format = BETON_TOKENS_RAW; format <= BETON_TOKENS_BETON; format++) {
		beton_tokens_options options;
		beton_tokens_options_init(&options);
		options.format = (beton_tokens_format)format;
		beton_tokens *tokens;
		beton_error err = {0};
		if (beton_tokens_open(&tokens, path, &options, &err) != BETON_OK) {
			require(!tokens && strstr(err.message, path), "a refusal names the file");
			continue;
		}
		const beton_tokens_info *info = beton_tokens_get_info(tokens);
		require(info->num_tokens <= INT64_MAX && info->data_end <= size, "the stream is in the file");
		uint64_t sum;
		beton_tokens_fingerprint(tokens, &sum, &err);
		for (uint64_t first = 0; first < info->num_tokens; first += info->num_tokens / 3 + 1)
			read_stretch(tokens, first);
		beton_tokens_close(&tokens);
	}
	close(fd);
	return 0;
}
