/* SPDX-License-Identifier: Apache-2.0
 *
 * A PMIx library whose answers a test chooses by MADE_PMIX, a list like "size=4,lsize=2,lrank=1,fence=-157".
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct made_proc {
	char space[256];
	uint32_t rank;
} made_proc;

typedef struct made_value {
	uint16_t type;
	union {
		char *string;
		uint16_t uint16;
		uint32_t uint32;
		uint64_t room[8];
	} data;
} made_value;

#define EXPORT __attribute__((visibility("default")))

static long choice(const char *name, long otherwise)
{
	const char *all = getenv("MADE_PMIX"), *found = all ? strstr(all, name) : NULL;

	return found ? strtol(found + strlen(name), NULL, 10) : otherwise;
}

EXPORT int PMIx_Init(made_proc *self, void *infos, size_t count)
{
	(void)infos;
	(void)count;
	memset(self, 0, sizeof(*self));
	self->rank = (uint32_t)choice("rank=", 0);
	return (int)choice("init=", 0);
}

EXPORT int PMIx_Finalize(const void *infos, size_t count)
{
	(void)infos;
	(void)count;
	return 0;
}

EXPORT int PMIx_Put(uint8_t scope, const char *key, const made_value *value)
{
	(void)scope;
	(void)key;
	return value->type == 3 ? 0 : -1;
}

EXPORT int PMIx_Commit(void)
{
	return 0;
}

/* OPERATION-SUCCEEDED promises not to call. */
EXPORT int PMIx_Fence_nb(const void *procs, size_t count, const void *infos, size_t infos_count,
			 void (*done)(int, void *), void *context)
{
	int answer = (int)choice("fence=", 0);

	(void)procs;
	(void)count;
	(void)infos;
	(void)infos_count;
	if (answer == 0)
		done((int)choice("met=", 0), context);
	return answer;
}

EXPORT int PMIx_Get(const made_proc *proc, const char *key, const void *infos, size_t count, made_value **value)
{
	made_value *made = calloc(1, sizeof(*made));

	(void)proc;
	(void)infos;
	(void)count;
	*value = made;
	if (!made)
		return -1;
	made->type = (uint16_t)choice("type=", 14);
	if (strcmp(key, "pmix.job.size") == 0) {
		made->data.uint32 = (uint32_t)choice(",size=", 4);
	} else if (strcmp(key, "pmix.local.size") == 0) {
		made->data.uint32 = (uint32_t)choice("lsize=", 2);
	} else if (strcmp(key, "pmix.lrank") == 0) {
		made->type = 13;
		made->data.uint16 = (uint16_t)choice("lrank=", 0);
	} else {
		made->type = (uint16_t)choice("text=", 3);
		made->data.string = made->type == 3 ? strdup("1|address") : NULL;
	}
	return 0;
}

EXPORT const char *PMIx_Error_string(int status)
{
	static char text[32];

	snprintf(text, sizeof(text), "made error %d", status);
	return text;
}
