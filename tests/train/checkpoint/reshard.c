/* SPDX-License-Identifier: Apache-2.0
 *
 * reshard STEP_FOLDER DIR RANKS: saves a checkpoint in DIR anew, as that many ranks have it that share each tensor. */
#include <inttypes.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "world.h"

struct source {
	const char *dir;
	const char *state;
	int64_t step;
	dtrain_checkpoint_list lists[DTRAIN_CHECKPOINT_SETS];
};

static dtrain_dtype dtype_of(const char *name)
{
	return strcmp(name, "I64") == 0 ? DTRAIN_I64 : DTRAIN_F32;
}

static int read_all(dtrain_checkpoint *checkpoint, struct source *source, beton_error *err)
{
	const dtrain_checkpoint_list *sets[DTRAIN_CHECKPOINT_SETS];
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS; set++) {
		const dtrain_checkpoint_tensor *tensors;
		size_t count;
		int result = dtrain_checkpoint_tensors(checkpoint, set, &tensors, &count, err);
		if (result != BETON_OK)
			return result;
		dtrain_checkpoint_view *views = calloc(count + 1, sizeof(*views));
		for (size_t i = 0; i < count; i++)
			views[i] = dtrain_checkpoint_view_whole(
				tensors[i].name, dtype_of(tensors[i].dtype), &tensors[i].shape,
				malloc(8 * (size_t)dtrain_shape_count(&tensors[i].shape)), NULL);
		source->lists[set] = (dtrain_checkpoint_list){views, count};
		sets[set] = &source->lists[set];
	}
	return dtrain_checkpoint_load(checkpoint, sets, NULL, err);
}

/* A process of its own: what it changes of the views stays here. */
static int save_part(const dtrain_checkpoint_ranks *ranks, void *context, beton_error *err)
{
	const struct source *source = context;
	const dtrain_checkpoint_content content = {.struct_size = sizeof(content),
						   .step = source->step,
						   .sets = {source->lists[0], source->lists[1]},
						   .state = source->state};
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS; set++)
		for (size_t i = 0; i < source->lists[set].count; i++) {
			dtrain_checkpoint_view *view = (dtrain_checkpoint_view *)&source->lists[set].views[i];
			int64_t whole = view->count;
			view->first = whole * ranks->rank / ranks->size;
			view->count = whole * (ranks->rank + 1) / ranks->size - view->first;
			view->memory = (char *)view->memory + (size_t)view->first * dtrain_dtype_size(view->dtype);
		}
	return dtrain_checkpoint_save(source->dir, 0, &content, ranks, err);
}

int main(int argc, char **argv)
{
	struct source source = {.dir = argc == 4 ? argv[2] : NULL};
	dtrain_checkpoint *checkpoint;
	beton_error err;
	if (argc != 4)
		return 2;
	if (dtrain_checkpoint_open(argv[1], NULL, &checkpoint, &err) != BETON_OK ||
	    read_all(checkpoint, &source, &err) != BETON_OK) {
		fprintf(stderr, "%s\n", err.message);
		return 1;
	}
	source.state = dtrain_checkpoint_state(checkpoint);
	json_t *state = json_loads(source.state, 0, NULL);
	source.step = json_integer_value(json_object_get(state, "step"));
	json_decref(state);
	world_result results[WORLD_MOST];
	int size = atoi(argv[3]), failed = 0;
	world_run(size, save_part, &source, results);
	for (int rank = 0; rank < size; rank++)
		if (results[rank].code != BETON_OK) {
			fprintf(stderr, "rank %d: %s\n", rank, results[rank].err.message);
			failed = 1;
		}
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS; set++) {
		for (size_t i = 0; i < source.lists[set].count; i++)
			free(source.lists[set].views[i].memory);
		free((void *)source.lists[set].views);
	}
	dtrain_checkpoint_close(&checkpoint);
	return failed;
}
