/* SPDX-License-Identifier: Apache-2.0
 *
 * Checkpoints of memory that the host cannot reach: the device "far"; saved at once, and while the memory changes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "tests/support/temporary.h"
#include "cuts.h"
#include "world.h"

/* The views' memory on a device. */
struct place {
	dtrain_device *device;
	const dtrain_device_api *api;
	dtrain_stream *stream;
	char *memory;
};

static int open_place(struct place *place, beton_error *err)
{
	int result = dtrain_device_open("far", NULL, &place->device, err);
	if (result != BETON_OK)
		return result;
	place->api = dtrain_device_get_api(place->device);
	result = place->api->stream_create(place->device, &place->stream, err);
	return result == BETON_OK ? place->api->alloc(place->device, sizeof(((struct cut *)0)->memory),
						      (void **)&place->memory, err)
				  : result;
}

static void close_place(struct place *place)
{
	place->api->free(place->device, place->memory);
	place->api->stream_destroy(place->stream);
	dtrain_device_close(&place->device);
}

/* The same cut with every second view on the device. */
static void move(struct cut *moved, const struct cut *cut, const struct place *place)
{
	*moved = *cut;
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS; set++) {
		moved->lists[set].views = moved->views[set];
		for (size_t i = 0; i < cut->lists[set].count; i++) {
			dtrain_checkpoint_view *view = &moved->views[set][i];
			size_t at = (size_t)((char *)cut->views[set][i].memory - cut->memory);
			view->device = i % 2 ? NULL : place->device;
			view->memory = (i % 2 ? moved->memory : place->memory) + at;
		}
	}
}

/* The saved memory is gone once its copy is made. */
static int save_copy(const struct place *place, const dtrain_checkpoint_content *content,
		     const dtrain_checkpoint_ranks *ranks, beton_error *err)
{
	dtrain_checkpoint_saver *saver = NULL;
	int result = dtrain_checkpoint_saver_create(place->device, &saver, err);
	if (result == BETON_OK)
		result = dtrain_checkpoint_saver_begin(saver, "c", 0, content, ranks, err);
	if (result == BETON_OK)
		result = place->api->zero(place->stream, place->memory, sizeof(((struct cut *)0)->memory), err);
	if (result == BETON_OK)
		result = place->api->stream_synchronize(place->stream, err);
	if (result == BETON_OK)
		result = dtrain_checkpoint_saver_wait(saver, err);
	dtrain_checkpoint_saver_destroy(&saver);
	return result;
}

struct job {
	enum cut_kind kind;
	bool copies;
};

static int save_and_load(const dtrain_checkpoint_ranks *ranks, void *context, beton_error *err)
{
	static struct cut cut, moved;
	struct place place = {0};
	dtrain_checkpoint *checkpoint = NULL;
	const struct job *job = context;
	int result = open_place(&place, err);
	if (result != BETON_OK)
		return result;
	cut_make(&cut, job->kind, ranks->rank, ranks->size);
	cut_fill(&cut, 1);
	move(&moved, &cut, &place);
	result =
		place.api->copy(place.stream, place.memory, cut.memory, sizeof(cut.memory), DTRAIN_HOST_TO_DEVICE, err);
	const dtrain_checkpoint_content content = {.struct_size = sizeof(content),
						   .step = 120,
						   .sets = {moved.lists[0], moved.lists[1]},
						   .stream = place.stream};
	if (result == BETON_OK)
		result = job->copies ? save_copy(&place, &content, ranks, err)
				     : dtrain_checkpoint_save("c", 0, &content, ranks, err);
	/* Into memory that has nothing of it. */
	memset(moved.memory, 0, sizeof(moved.memory));
	if (result == BETON_OK)
		result = place.api->zero(place.stream, place.memory, sizeof(cut.memory), err);
	if (result == BETON_OK)
		result = dtrain_checkpoint_open("c/step-000000000120", ranks, &checkpoint, err);
	if (result == BETON_OK)
		result = dtrain_checkpoint_load(
			checkpoint, (const dtrain_checkpoint_list *const[]){&moved.lists[0], &moved.lists[1]},
			place.stream, err);
	dtrain_checkpoint_close(&checkpoint);
	memset(cut.memory, 0, sizeof(cut.memory));
	if (result == BETON_OK)
		result = place.api->copy(place.stream, cut.memory, place.memory, sizeof(cut.memory),
					 DTRAIN_DEVICE_TO_HOST, err);
	if (result == BETON_OK)
		result = place.api->stream_synchronize(place.stream, err);
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS; set++)
		for (size_t i = 1; i < cut.lists[set].count; i += 2) {
			size_t at = (size_t)((char *)cut.views[set][i].memory - cut.memory);
			memcpy(cut.memory + at, moved.memory + at,
			       (size_t)cut.views[set][i].count * dtrain_dtype_size(cut.views[set][i].dtype));
		}
	if (result == BETON_OK && !cut_is_filled(&cut, 1, err))
		result = err->code;
	close_place(&place);
	return result;
}

static void far_memory(void **state)
{
	(void)state;
	static const enum cut_kind kinds[] = {CUT_WHOLE, CUT_FLAT, CUT_GRID_FLAT};
	for (int i = 0; i < 6; i++) {
		struct job job = {kinds[i % 3], i / 3};
		temporary_remove("c");
		world_must(2, save_and_load, &job);
	}
}

int main(void)
{
	char folder[256];
	if (temporary_enter(folder) != 0)
		return 1;
	const struct CMUnitTest tests[] = {cmocka_unit_test(far_memory)};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);
	temporary_leave(folder);
	return failed;
}
