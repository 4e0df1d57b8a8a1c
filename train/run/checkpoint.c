/* SPDX-License-Identifier: Apache-2.0 */
#include <dtrain/checkpoint.h>

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "checkpoint_folder.h"
#include "common/sized.h"
#include "common/system.h"
#include "core/shape.h"
#include "safetensors.h"

#define STATE_VERSION 1
#define STATE_BYTES_MAX (1 << 20)
#define HEX_DIGITS 16
#define SLOW_SUFFIX ".slow"

/* One safetensors file's tensors: what it is called, and where it lies. device: an array on the device; NULL: the whole
 * number `value` (batch norm's step counters). */
typedef struct tensor_source {
	void *device;
	int64_t value;
} tensor_source;

typedef struct tensor_list {
	safetensors_entry *entries; /* names are owned */
	tensor_source *sources;
	size_t count;
	const dtrain_device_api *api;
	dtrain_stream *stream;
} tensor_list;

static void list_free(tensor_list *list)
{
	for (size_t i = 0; i < list->count; i++)
		free((void *)list->entries[i].name);
	free(list->entries);
	free(list->sources);
	*list = (tensor_list){0};
}

static int list_reserve(tensor_list *list, const dtrain_params *params, dtrain_stream *stream, size_t capacity,
			beton_error *err)
{
	*list = (tensor_list){.entries = calloc(capacity + 1, sizeof(*list->entries)),
			      .sources = calloc(capacity + 1, sizeof(*list->sources)),
			      .api = dtrain_device_get_api(dtrain_params_device(params)),
			      .stream = stream};
	if (list->entries && list->sources)
		return BETON_OK;
	list_free(list);
	return bt_fail(err, BETON_NO_MEMORY, "out of memory for a list of %zu tensors", capacity);
}

/* Takes name over; NULL = out of memory. */
static int list_add(tensor_list *list, char *name, dtrain_dtype dtype, const dtrain_shape *shape, tensor_source source,
		    beton_error *err)
{
	if (!name)
		return bt_fail(err, BETON_NO_MEMORY, "out of memory for the name of a tensor");
	list->entries[list->count] = (safetensors_entry){.name = name, .dtype = dtype, .shape = *shape};
	list->sources[list->count++] = source;
	return BETON_OK;
}

static void *flat_at(const dtrain_params *params, void *flat, int64_t offset)
{
	return (char *)flat + (size_t)offset * dtrain_dtype_size(dtrain_params_dtype(params));
}

/* torchvision counts batches beside each running mean. */
static int add_batch_counter(tensor_list *list, const char *buffer, int64_t step, beton_error *err)
{
	static const char suffix[] = ".running_mean";
	size_t length = strlen(buffer);
	if (length < sizeof(suffix) || strcmp(buffer + length - strlen(suffix), suffix) != 0)
		return BETON_OK;
	char *name = bt_format("%.*s.num_batches_tracked", (int)(length - strlen(suffix)), buffer);
	return list_add(list, name, DTRAIN_I64, &(dtrain_shape){0}, (tensor_source){.value = step}, err);
}

static int list_model(tensor_list *list, const dtrain_params *params, int64_t step, dtrain_stream *stream,
		      beton_error *err)
{
	int buffers = dtrain_params_buffer_count(params);
	size_t capacity = (size_t)dtrain_params_count(params) + 2 * (size_t)buffers;
	int result = list_reserve(list, params, stream, capacity, err);
	for (int i = 0; i < dtrain_params_count(params) && result == BETON_OK; i++) {
		const dtrain_param *param = dtrain_params_at(params, i);
		tensor_source source = {.device = flat_at(params, dtrain_params_values(params), param->offset)};
		result = list_add(list, strdup(param->name), dtrain_params_dtype(params), &param->shape, source, err);
	}
	for (int i = 0; i < buffers && result == BETON_OK; i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(params, i);
		result = list_add(list, strdup(buffer->name), dtrain_params_dtype(params), &buffer->shape,
				  (tensor_source){.device = buffer->data}, err);
		if (result == BETON_OK)
			result = add_batch_counter(list, buffer->name, step, err);
	}
	return result;
}

static int list_slow(tensor_list *list, const dtrain_params *params, const dtrain_lookahead *lookahead,
		     beton_error *err)
{
	int64_t count;
	void *slow = dtrain_lookahead_slow(lookahead, &count);
	int result = BETON_OK;
	for (int i = 0; i < dtrain_params_count(params) && result == BETON_OK; i++) {
		const dtrain_param *param = dtrain_params_at(params, i);
		result = list_add(list, bt_format("%s" SLOW_SUFFIX, param->name), dtrain_params_dtype(params),
				  &param->shape, (tensor_source){.device = flat_at(params, slow, param->offset)}, err);
	}
	for (int i = 0; i < dtrain_params_buffer_count(params) && result == BETON_OK; i++) {
		const dtrain_buffer *buffer = dtrain_params_buffer_at(params, i);
		result = list_add(list, bt_format("%s" SLOW_SUFFIX, buffer->name), dtrain_params_dtype(params),
				  &buffer->shape, (tensor_source){.device = dtrain_lookahead_slow_buffer(lookahead, i)},
				  err);
	}
	return result;
}

static int list_optimizer(tensor_list *list, const dtrain_params *params, const dtrain_sgd *sgd,
			  const dtrain_lookahead *lookahead, dtrain_stream *stream, beton_error *err)
{
	void *momentum = sgd ? dtrain_sgd_momentum(sgd) : NULL;
	size_t capacity = 2 * (size_t)dtrain_params_count(params) + (size_t)dtrain_params_buffer_count(params);
	int result = list_reserve(list, params, stream, capacity, err);
	for (int i = 0; momentum && i < dtrain_params_count(params) && result == BETON_OK; i++) {
		const dtrain_param *param = dtrain_params_at(params, i);
		result = list_add(list, bt_format("%s.momentum", param->name), dtrain_params_dtype(params),
				  &param->shape, (tensor_source){.device = flat_at(params, momentum, param->offset)},
				  err);
	}
	return result == BETON_OK && lookahead ? list_slow(list, params, lookahead, err) : result;
}

static int fetch(void *context, size_t index, void *destination, size_t bytes, beton_error *err)
{
	tensor_list *list = context;
	tensor_source *source = &list->sources[index];
	if (!source->device) {
		memcpy(destination, &source->value, bytes);
		return BETON_OK;
	}
	int result = list->api->copy(list->stream, destination, source->device, bytes, DTRAIN_DEVICE_TO_HOST, err);
	return result == BETON_OK ? list->api->stream_synchronize(list->stream, err) : result;
}

/* ---- state.json ---- */

static json_t *hex(uint64_t value)
{
	char text[HEX_DIGITS + 1];
	snprintf(text, sizeof(text), "%016" PRIx64, value);
	return json_string(text);
}

/* Of the state's members in sorted order, "xxh3" left out. 0 when out of memory, which no saved state has. */
static uint64_t hash_of_state(const json_t *state)
{
	json_t *rest = json_copy((json_t *)state);
	if (rest)
		json_object_del(rest, "xxh3");
	char *text = rest ? json_dumps(rest, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
	uint64_t hash = text ? XXH3_64bits(text, strlen(text)) : 0;
	free(text);
	json_decref(rest);
	return hash;
}

/* Takes value over; false without memory. */
static bool add_member(json_t *state, const char *name, json_t *value)
{
	return state && json_object_set_new(state, name, value) == 0;
}

static json_t *state_to_json(const dtrain_position *position, const json_t *options, const safetensors_digest *model,
			     const safetensors_digest *optimizer)
{
	char seed[24];
	snprintf(seed, sizeof(seed), "%" PRIu64, position->seed); /* JSON's integers end at 2^63 here */
	json_t *state = json_pack("{s:i, s:I, s:I, s:I, s:s, s:i, s:i, s:s, s:I, s:I, s:{s:{s:I, s:o}, s:{s:I, s:o}}}",
				  "version", STATE_VERSION, "step", (json_int_t)position->step, "epoch",
				  (json_int_t)position->epoch, "position", (json_int_t)position->position, "seed", seed,
				  "world_size", (int)position->world_size, "batch_size", (int)position->batch_size,
				  "model", position->model, "classes", (json_int_t)position->classes, "data_samples",
				  (json_int_t)position->data_samples, "files", CHECKPOINT_MODEL_FILE, "size",
				  (json_int_t)model->size, "xxh3", hex(model->hash), CHECKPOINT_OPTIMIZER_FILE, "size",
				  (json_int_t)optimizer->size, "xxh3", hex(optimizer->hash));
	bool complete = state != NULL;
	if (complete && position->scaler[DTRAIN_SCALER_SCALE] > 0)
		complete = add_member(state, "loss_scaler",
				      json_pack("[f, f]", (double)position->scaler[DTRAIN_SCALER_SCALE],
						(double)position->scaler[DTRAIN_SCALER_GOOD_STEPS]));
	if (complete && position->data_fingerprint)
		complete = add_member(state, "data_fingerprint", hex(position->data_fingerprint));
	if (complete && position->data_class_names)
		complete = add_member(state, "data_class_names", hex(position->data_class_names));
	if (complete && options)
		complete = add_member(state, "options", json_deep_copy(options));
	if (complete && add_member(state, "xxh3", hex(hash_of_state(state))))
		return state;
	json_decref(state);
	return NULL;
}

static int write_state(const char *path, const dtrain_position *position, const json_t *options,
		       const safetensors_digest *model, const safetensors_digest *optimizer, beton_error *err)
{
	json_t *state = state_to_json(position, options, model, optimizer);
	char *text = state ? json_dumps(state, JSON_INDENT(2)) : NULL;
	json_decref(state);
	if (!text)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	int result = BETON_OK;
	if (strlen(text) + 1 >= STATE_BYTES_MAX) {
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "%s: %zu bytes, most of them options; %d are possible",
				 path, strlen(text) + 1, STATE_BYTES_MAX - 1);
		free(text);
		return result;
	}
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (fd < 0 || bt_write_full(fd, text, strlen(text)) != 0 || bt_write_full(fd, "\n", 1) != 0 || fsync(fd) != 0)
		result = bt_fail_errno(err, errno, "%s: cannot write", path);
	if (fd >= 0 && close(fd) != 0 && result == BETON_OK)
		result = bt_fail_errno(err, errno, "%s: cannot close", path);
	free(text);
	return result;
}

static int read_state(const char *path, json_t **out, beton_error *err)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return bt_fail_errno(err, errno, "%s: cannot open", path);
	char *text = malloc(STATE_BYTES_MAX);
	ssize_t size = text ? bt_pread_full(fd, text, STATE_BYTES_MAX, 0) : 0;
	int result = BETON_OK;
	json_error_t problem;
	json_t *state = NULL;
	if (!text)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	else if (size < 0)
		result = bt_fail_errno(err, errno, "%s: cannot read", path);
	else if (size == STATE_BYTES_MAX || !(state = json_loadb(text, (size_t)size, JSON_REJECT_DUPLICATES, &problem)))
		result = bt_fail(err, BETON_FORMAT, "%s: is not the state of a checkpoint", path);
	close(fd);
	free(text);
	const char *stored = json_string_value(json_object_get(state, "xxh3"));
	if (result == BETON_OK && (!stored || strtoull(stored, NULL, 16) != hash_of_state(state)))
		result = bt_fail(err, BETON_FORMAT, "%s: is damaged (its checksum is wrong)", path);
	if (result != BETON_OK)
		json_decref(state);
	else
		*out = state;
	return result;
}

/* A state that was saved before it had the member: 0. False: it is no such number. */
static bool take_hex(const json_t *state, const char *name, uint64_t *out)
{
	const json_t *member = json_object_get(state, name);
	const char *text = json_string_value(member);
	if (text && strlen(text) == HEX_DIGITS && strspn(text, "0123456789abcdef") == HEX_DIGITS)
		*out = strtoull(text, NULL, 16);
	else
		*out = 0;
	return !member || *out;
}

static int state_to_position(const char *path, json_t *state, dtrain_position *out, beton_error *err)
{
	dtrain_position position = {.struct_size = sizeof(position)};
	int version;
	json_int_t step, epoch, consumed, classes, samples;
	const char *seed;
	const char *model;
	if (json_unpack(state, "{s:i, s:I, s:I, s:I, s:s, s:i, s:i, s:s, s:I, s:I}", "version", &version, "step", &step,
			"epoch", &epoch, "position", &consumed, "seed", &seed, "world_size", &position.world_size,
			"batch_size", &position.batch_size, "model", &model, "classes", &classes, "data_samples",
			&samples) != 0)
		return bt_fail(err, BETON_FORMAT, "%s: is not the state of a checkpoint", path);
	if (version != STATE_VERSION)
		return bt_fail(err, BETON_UNSUPPORTED_VERSION, "%s: version %d, this program reads %d", path, version,
			       STATE_VERSION);
	json_t *scaler = json_object_get(state, "loss_scaler");
	double scale = 0, good_steps = 0;
	if (scaler && (json_unpack(scaler, "[F, F!]", &scale, &good_steps) != 0 ||
		       !(scale > 0 && scale <= (double)FLT_MAX) || !(good_steps >= 0 && good_steps < 2000)))
		return bt_fail(err, BETON_FORMAT, "%s: the loss scaler's state is out of its range", path);
	position.scaler[DTRAIN_SCALER_SCALE] = (float)scale;
	position.scaler[DTRAIN_SCALER_GOOD_STEPS] = (float)good_steps;
	if (step < 0 || epoch < 0 || consumed < 0 || classes < 1 || samples < 0 || position.world_size < 1 ||
	    position.batch_size < 1 || strlen(model) >= sizeof(position.model) ||
	    !take_hex(state, "data_fingerprint", &position.data_fingerprint) ||
	    !take_hex(state, "data_class_names", &position.data_class_names))
		return bt_fail(err, BETON_FORMAT, "%s: a value is out of its range", path);
	int result = bt_parse_u64("seed", seed, 0, UINT64_MAX, &position.seed, err);
	if (result != BETON_OK)
		return bt_fail(err, BETON_FORMAT, "%s: the seed is not a number", path);
	position.step = step;
	position.epoch = epoch;
	position.position = consumed;
	position.classes = classes;
	position.data_samples = (uint64_t)samples;
	memcpy(position.model, model, strlen(model));
	if (!bt_sized_give(out, &position))
		return bt_fail(err, BETON_INVALID_ARGUMENT, "checkpoint: position: struct_size is %zu",
			       out->struct_size);
	return BETON_OK;
}

/* ---- saving ---- */

static int write_files(const char *folder, const dtrain_params *params, const dtrain_sgd *sgd,
		       const dtrain_lookahead *lookahead, const dtrain_position *position, const json_t *options,
		       dtrain_stream *stream, beton_error *err)
{
	tensor_list model = {0};
	tensor_list optimizer = {0};
	safetensors_digest model_digest = {0};
	safetensors_digest optimizer_digest = {0};
	char *model_path = bt_format("%s/" CHECKPOINT_MODEL_FILE, folder);
	char *optimizer_path = bt_format("%s/" CHECKPOINT_OPTIMIZER_FILE, folder);
	char *state_path = bt_format("%s/" CHECKPOINT_STATE_FILE, folder);
	int result = BETON_OK;
	if (!model_path || !optimizer_path || !state_path)
		result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", folder);
	if (result == BETON_OK)
		result = list_model(&model, params, position->step, stream, err);
	if (result == BETON_OK)
		result = safetensors_write(model_path, model.entries, model.count, fetch, &model, &model_digest, err);
	if (result == BETON_OK)
		result = list_optimizer(&optimizer, params, sgd, lookahead, stream, err);
	if (result == BETON_OK)
		result = safetensors_write(optimizer_path, optimizer.entries, optimizer.count, fetch, &optimizer,
					   &optimizer_digest, err);
	if (result == BETON_OK)
		result = write_state(state_path, position, options, &model_digest, &optimizer_digest, err);
	list_free(&model);
	list_free(&optimizer);
	free(model_path);
	free(optimizer_path);
	free(state_path);
	return result;
}

int dtrain_checkpoint_prepare(const char *dir, beton_error *err)
{
	char *probe = NULL;
	int result = checkpoint_folder_prepare(dir, err);
	if (result == BETON_OK)
		result = checkpoint_folder_begin(dir, 0, &probe, err);
	if (result == BETON_OK)
		checkpoint_folder_discard(dir, probe, 0);
	free(probe);
	return result;
}

int dtrain_checkpoint_save(const char *dir, int keep, const dtrain_params *params, const dtrain_sgd *sgd,
			   const dtrain_lookahead *lookahead, const dtrain_position *given, const char *options,
			   dtrain_stream *stream, beton_error *err)
{
	dtrain_position position = {.struct_size = sizeof(position)};
	int result = bt_sized_take(&position, given, "checkpoint: position", err);
	if (result != BETON_OK)
		return result;
	if (keep < 0 || position.step < 0)
		return bt_fail(err, BETON_INVALID_ARGUMENT, "checkpoint: keep %d or step %" PRId64 " is negative", keep,
			       position.step);
	json_error_t problem;
	json_t *parsed = options ? json_loads(options, JSON_REJECT_DUPLICATES, &problem) : NULL;
	char *temporary = NULL;
	if (options && !json_is_object(parsed))
		result = bt_fail(err, BETON_INVALID_ARGUMENT, "checkpoint: the options are no JSON object: %.100s",
				 options);
	if (result == BETON_OK)
		result = checkpoint_folder_prepare(dir, err);
	if (result == BETON_OK)
		result = checkpoint_folder_begin(dir, position.step, &temporary, err);
	if (result == BETON_OK) {
		result = write_files(temporary, params, sgd, lookahead, &position, parsed, stream, err);
		if (result == BETON_OK)
			result = checkpoint_folder_publish(dir, position.step, temporary, err);
		if (result != BETON_OK)
			checkpoint_folder_discard(dir, temporary, position.step);
		free(temporary);
	}
	json_decref(parsed);
	if (result == BETON_OK && keep > 0)
		result = checkpoint_folder_prune(dir, keep, err);
	return result;
}

/* ---- loading ---- */

int dtrain_checkpoint_latest(const char *dir, int64_t before_step, char **path, int64_t *step, beton_error *err)
{
	int64_t *steps = NULL;
	size_t count = 0;
	*path = NULL;
	int result = checkpoint_folder_list(dir, &steps, &count, err);
	if (result != BETON_OK)
		return result;
	while (count > 0 && steps[count - 1] >= before_step)
		count--;
	if (count == 0) {
		result = bt_fail(err, BETON_NOT_FOUND, "%s: holds no checkpoint", dir);
	} else {
		*path = checkpoint_folder_path(dir, steps[count - 1]);
		if (!*path)
			result = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", dir);
		if (step)
			*step = steps[count - 1];
	}
	free(steps);
	return result;
}

/* Of a checkpoint that was saved without them: NULL. */
static int state_to_options(const char *path, const json_t *state, char **out, beton_error *err)
{
	const json_t *options = json_object_get(state, "options");
	*out = NULL;
	if (!options)
		return BETON_OK;
	if (!json_is_object(options))
		return bt_fail(err, BETON_FORMAT, "%s: the options are no JSON object", path);
	*out = json_dumps(options, JSON_COMPACT);
	return *out ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
}

int dtrain_checkpoint_read_position(const char *path, dtrain_position *out, char **options, beton_error *err)
{
	char *file = bt_format("%s/" CHECKPOINT_STATE_FILE, path);
	if (!file)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	json_t *state = NULL;
	int result = read_state(file, &state, err);
	if (result == BETON_OK)
		result = state_to_position(file, state, out, err);
	if (result == BETON_OK && options)
		result = state_to_options(file, state, options, err);
	json_decref(state);
	free(file);
	return result;
}

static int check_digest(const char *path, json_t *state, const char *name, beton_error *err)
{
	json_t *stored = json_object_get(json_object_get(state, "files"), name);
	const char *hash = json_string_value(json_object_get(stored, "xxh3"));
	json_int_t size = json_integer_value(json_object_get(stored, "size"));
	safetensors_digest found;
	int result = safetensors_hash(path, &found, err);
	if (result != BETON_OK)
		return result;
	if (!hash || size != (json_int_t)found.size)
		return bt_fail(err, (json_int_t)found.size < size ? BETON_TRUNCATED : BETON_FORMAT,
			       "%s: has %" PRIu64 " bytes, %" JSON_INTEGER_FORMAT " were written", path, found.size,
			       size);
	if (strtoull(hash, NULL, 16) != found.hash)
		return bt_fail(err, BETON_FORMAT, "%s: is damaged (its checksum is wrong)", path);
	return BETON_OK;
}

/* The file must hold the tensors of the list and no others. */
static int check_tensors(const safetensors_file *file, const tensor_list *list, beton_error *err)
{
	for (size_t i = 0; i < list->count; i++) {
		const safetensors_entry *wanted = &list->entries[i];
		const safetensors_entry *found = safetensors_find(file, wanted->name);
		if (!found)
			return bt_fail(err, BETON_MISMATCH, "%s: has no tensor '%s', which the model needs", file->path,
				       wanted->name);
		if (found->dtype != wanted->dtype)
			return bt_fail(err, BETON_MISMATCH, "%s: tensor '%s' is not %s", file->path, wanted->name,
				       dtrain_dtype_name(wanted->dtype));
		if (!dtrain__shape_equal(&found->shape, &wanted->shape)) {
			char theirs[DTRAIN__SHAPE_TEXT];
			char ours[DTRAIN__SHAPE_TEXT];
			return bt_fail(err, BETON_MISMATCH, "%s: tensor '%s' has shape %s, the model needs %s",
				       file->path, wanted->name, dtrain__shape_text(&found->shape, theirs),
				       dtrain__shape_text(&wanted->shape, ours));
		}
	}
	/* Names are unique on both sides and all of ours are there: only a longer list has a stranger. */
	for (size_t i = 0; i < file->count && file->count > list->count; i++) {
		bool known = false;
		for (size_t k = 0; k < list->count && !known; k++)
			known = strcmp(list->entries[k].name, file->entries[i].name) == 0;
		if (!known)
			return bt_fail(err, BETON_MISMATCH, "%s: tensor '%s' is not one of the model's", file->path,
				       file->entries[i].name);
	}
	return BETON_OK;
}

static int read_tensors(const safetensors_file *file, const tensor_list *list, beton_error *err)
{
	int result = BETON_OK;
	for (size_t i = 0; i < list->count && result == BETON_OK; i++) {
		const safetensors_entry *entry = safetensors_find(file, list->entries[i].name);
		if (!list->sources[i].device)
			continue;
		void *buffer = malloc(entry->bytes ? entry->bytes : 1);
		if (!buffer)
			return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for tensor '%s'", file->path,
				       entry->name);
		result = safetensors_read(file, entry, buffer, err);
		if (result == BETON_OK)
			result = list->api->copy(list->stream, list->sources[i].device, buffer, entry->bytes,
						 DTRAIN_HOST_TO_DEVICE, err);
		if (result == BETON_OK)
			result = list->api->stream_synchronize(list->stream, err);
		free(buffer);
	}
	return result;
}

/* A tensor is missing, or too many, in both cases; this one is no fault of the file. */
static int check_slow(const safetensors_file *file, const dtrain_lookahead *lookahead, beton_error *err)
{
	bool found = false;
	for (size_t i = 0; i < file->count && !found; i++) {
		size_t length = strlen(file->entries[i].name);
		found = length > strlen(SLOW_SUFFIX) &&
			strcmp(file->entries[i].name + length - strlen(SLOW_SUFFIX), SLOW_SUFFIX) == 0;
	}
	if (found == (lookahead != NULL))
		return BETON_OK;
	return bt_fail(err, BETON_STATE, "%s: was saved %s Lookahead's slow weights", file->path,
		       found ? "with" : "without");
}

static int open_checked(safetensors_file *file, const char *folder, const char *name, json_t *state, beton_error *err)
{
	char *path = bt_format("%s/%s", folder, name);
	if (!path)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", folder);
	int result = check_digest(path, state, name, err);
	if (result == BETON_OK)
		result = safetensors_open(file, path, err);
	free(path);
	return result;
}

int dtrain_checkpoint_load(const char *path, dtrain_params *params, dtrain_sgd *sgd, dtrain_lookahead *lookahead,
			   dtrain_stream *stream, beton_error *err)
{
	tensor_list model = {0};
	tensor_list optimizer = {0};
	safetensors_file model_file = {.fd = -1};
	safetensors_file optimizer_file = {.fd = -1};
	json_t *state = NULL;
	char *state_path = bt_format("%s/" CHECKPOINT_STATE_FILE, path);
	int result = state_path ? read_state(state_path, &state, err)
				: bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	if (result == BETON_OK)
		result = list_model(&model, params, 0, stream, err);
	if (result == BETON_OK)
		result = open_checked(&model_file, path, CHECKPOINT_MODEL_FILE, state, err);
	if (result == BETON_OK)
		result = check_tensors(&model_file, &model, err);
	bool with_optimizer = sgd || lookahead;
	if (result == BETON_OK && with_optimizer) {
		result = list_optimizer(&optimizer, params, sgd, lookahead, stream, err);
		if (result == BETON_OK)
			result = open_checked(&optimizer_file, path, CHECKPOINT_OPTIMIZER_FILE, state, err);
		if (result == BETON_OK)
			result = check_slow(&optimizer_file, lookahead, err);
		if (result == BETON_OK)
			result = check_tensors(&optimizer_file, &optimizer, err);
	}
	if (result == BETON_OK)
		result = read_tensors(&model_file, &model, err);
	if (result == BETON_OK && with_optimizer)
		result = read_tensors(&optimizer_file, &optimizer, err);
	safetensors_close(&model_file);
	safetensors_close(&optimizer_file);
	list_free(&model);
	list_free(&optimizer);
	json_decref(state);
	free(state_path);
	return result;
}

int dtrain_checkpoint_set_aside(const char *path, beton_error *err)
{
	const char *slash = strrchr(path, '/');
	int folder = slash ? (int)(slash + 1 - path) : 0;
	char *name = bt_format("%.*sdamaged-%s", folder, path, path + folder);
	char *moved = NULL;
	if (!name)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", path);
	int result = checkpoint_folder_rename_unused(path, name, &moved, err);
	free(name);
	free(moved);
	return result;
}
