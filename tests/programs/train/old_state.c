/* SPDX-License-Identifier: Apache-2.0
 *
 * old-state FILE: makes of a checkpoint's state.json what was written before checkpoints had options and the
 * fingerprint of the data: without them, its checksum set anew. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

int main(int argc, char **argv)
{
	json_t *state = argc == 2 ? json_load_file(argv[1], 0, NULL) : NULL;
	char hex[17];
	if (!state || json_object_del(state, "options") != 0 || json_object_del(state, "xxh3") != 0 ||
	    json_object_del(state, "data_fingerprint") != 0)
		return 1;
	char *text = json_dumps(state, JSON_COMPACT | JSON_SORT_KEYS);
	if (!text)
		return 1;
	snprintf(hex, sizeof(hex), "%016llx", (unsigned long long)XXH3_64bits(text, strlen(text)));
	free(text);
	if (json_object_set_new(state, "xxh3", json_string(hex)) != 0)
		return 1;
	int failed = json_dump_file(state, argv[1], JSON_INDENT(2));
	json_decref(state);
	return failed != 0;
}
