/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/sized.h"
#include "common/system.h"
#include "folder.h"
#include "index.h"
#include "manifest.h"
#include "ranks.h"
#include "safetensors.h"
#include "save.h"
#include "state.h"

/* ---- one file ---- */

typedef struct file_content {
	const checkpoint_piece **pieces;
	safetensors_entry *entries;
	size_t count;
	dtrain_stream *stream;
} file_content;

static void content_free(file_content *content)
{
	free(content->pieces);
	free(content->entries);
}

static int content_init(file_content *content, size_t capacity, dtrain_stream *stream, beton_error *err)
{
	*content = (file_content){.pieces = calloc(capacity + 1, sizeof(*content->pieces)),
				  .entries = calloc(capacity + 1, sizeof(*content->entries)),
				  .stream = stream};
	if (content->pieces && content->entries)
		return BETON_OK;
	content_free(content);
	return bt_fail(err, BETON_NO_MEMORY, "out of memory for a list of %zu tensors", capacity);
}

static void content_add(file_content *content, const checkpoint_piece *piece)
{
	safetensors_entry *entry = &content->entries[content->count];
	*entry = (safetensors_entry){.name = piece->name, .dtype = piece->dtype, .shape = {.ndim = piece->shape.ndim}};
	memcpy(entry->shape.dim, piece->box.extent, sizeof(entry->shape.dim));
	content->pieces[content->count++] = piece;
}

static int fetch(void *context, size_t index, uint64_t at, void *destination, size_t bytes, beton_error *err)
{
	const file_content *content = context;
	const checkpoint_piece *piece = content->pieces[index];
	const char *source = (const char *)piece->memory + at;
	if (!piece->device) {
		memcpy(destination, source, bytes);
		return BETON_OK;
	}
	const dtrain_device_api *api = dtrain_device_get_api(piece->device);
	int status = api->copy(content->stream, destination, source, bytes, DTRAIN_DEVICE_TO_HOST, err);
	return status == BETON_OK ? api->stream_synchronize(content->stream, err) : status;
}

/* Writes a new file in the temporary folder. */
static int write_file(const save_job *job, const char *name, file_content *content, json_t *metadata,
		      uint64_t chunk_bytes, checkpoint_digest *digest, beton_error *err)
{
	char *path = bt_format("%s/%s", job->temporary, name);
	if (!path)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", job->temporary);
	int status = dtrain__digest_begin(digest, chunk_bytes, err);
	int fd = status == BETON_OK ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
	if (fd >= 0)
		status = dtrain__safetensors_write(fd, path, content->entries, content->count, metadata, fetch, content,
						   digest, err);
	else if (status == BETON_OK && errno == ENOENT)
		status = bt_fail_errno(err, errno, "%s: cannot create; the folder has to be the same one for all ranks",
				       path);
	else if (status == BETON_OK)
		status = bt_fail_errno(err, errno, "%s: cannot create", path);
	if (fd >= 0 && close(fd) != 0 && status == BETON_OK)
		status = bt_fail_errno(err, errno, "%s: cannot close", path);
	free(path);
	return status;
}

/* ---- nothing is sharded ---- */

static int write_whole_set(const save_job *job, int set, checkpoint_digest *digest, beton_error *err)
{
	file_content content;
	int status = content_init(&content, job->plan.count, job->content.stream, err);
	if (status != BETON_OK)
		return status;
	for (size_t i = 0; i < job->plan.count; i++)
		if (job->plan.pieces[i].set == set)
			content_add(&content, &job->plan.pieces[i]);
	json_t *metadata = set == DTRAIN_CHECKPOINT_MODEL ? json_object_get(job->state, "metadata") : NULL;
	status = write_file(job, dtrain__set_files[set], &content, metadata, UINT64_MAX, digest, err);
	content_free(&content);
	return status;
}

/* Called on rank 0. */
static int write_whole(const save_job *job, beton_error *err)
{
	checkpoint_digest digests[DTRAIN_CHECKPOINT_SETS] = {0};
	checkpoint_listed files[DTRAIN_CHECKPOINT_SETS];
	int status = BETON_OK;
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS && status == BETON_OK; set++) {
		status = write_whole_set(job, set, &digests[set], err);
		files[set] = (checkpoint_listed){.name = dtrain__set_files[set], .digest = &digests[set]};
	}
	if (status == BETON_OK)
		status = dtrain__state_write(job->temporary, job->state, false, files, DTRAIN_CHECKPOINT_SETS, err);
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS; set++)
		dtrain__digest_free(&digests[set]);
	return status;
}

/* ---- each rank its part ---- */

/* Metadata for PyTorch's readers: the positions of a file's boxes in their tensors. */
static json_t *sharding_metadata(const file_content *content)
{
	json_t *info = json_object();
	for (size_t i = 0; i < content->count && info; i++) {
		const checkpoint_piece *piece = content->pieces[i];
		json_t *offsets = json_array();
		for (int k = 0; k < piece->shape.ndim; k++)
			json_array_append_new(offsets, json_integer(piece->box.offset[k]));
		if (json_array_size(offsets) != (size_t)piece->shape.ndim ||
		    json_object_set_new(info, piece->name, json_pack("{s:o}", "saved_offsets", offsets)) != 0) {
			json_decref(info);
			info = NULL;
		}
	}
	char *text = info ? json_dumps(info, JSON_COMPACT) : NULL;
	json_t *metadata =
		text ? json_pack("{s:s, s:s, s:s}", "format", "pt", "DCP_VERSION", "1.0", "DCP_SHARDING_INFO", text)
		     : NULL;
	free(text);
	json_decref(info);
	return metadata;
}

static int write_shard(const save_job *job, const char *name, file_content *content, json_t *manifest, beton_error *err)
{
	checkpoint_digest digest = {0};
	size_t file = json_array_size(json_object_get(manifest, "files"));
	json_t *metadata = sharding_metadata(content);
	json_t *common =
		content->pieces[0]->set == DTRAIN_CHECKPOINT_MODEL ? json_object_get(job->state, "metadata") : NULL;
	if (metadata && common && json_object_update_missing(metadata, common) != 0) {
		json_decref(metadata);
		metadata = NULL;
	}
	int status = metadata ? write_file(job, name, content, metadata, CHECKPOINT_CHUNK_BYTES, &digest, err)
			      : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", name);
	bool described = status == BETON_OK && dtrain__manifest_add_file(manifest, name, &digest);
	for (size_t i = 0; i < content->count && described; i++) {
		const checkpoint_piece *piece = content->pieces[i];
		described = dtrain__manifest_add_part(manifest, piece->set, piece->name, piece->dtype, &piece->shape,
						      file, content->entries[i].offset, &piece->box);
	}
	if (status == BETON_OK && !described)
		status = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for its description", name);
	json_decref(metadata);
	dtrain__digest_free(&digest);
	return status;
}

/* Numbers the pieces of each tensor on this rank; the number decides the file. Returns the number of files. */
static int number_pieces(const checkpoint_plan *plan, int set, int *numbers)
{
	int files = 0;
	for (size_t i = 0; i < plan->count; i++) {
		const checkpoint_piece *piece = &plan->pieces[i];
		bool again = i > 0 && piece[-1].set == piece->set && strcmp(piece[-1].name, piece->name) == 0;
		numbers[i] = again ? numbers[i - 1] + 1 : 0;
		if (piece->set == set && numbers[i] >= files)
			files = numbers[i] + 1;
	}
	return files;
}

static int write_shards(const save_job *job, int set, int *numbers, json_t *manifest, beton_error *err)
{
	const checkpoint_plan *plan = &job->plan;
	int count = number_pieces(plan, set, numbers), status = BETON_OK;
	for (int file = 0; file < count && status == BETON_OK; file++) {
		char name[CHECKPOINT_SHARD_NAME];
		file_content content;
		dtrain__shard_name(name, dtrain__ranks_self(job->ranks), set, file, count);
		status = content_init(&content, plan->count, job->content.stream, err);
		if (status != BETON_OK)
			break;
		for (size_t i = 0; i < plan->count; i++)
			if (plan->pieces[i].set == set && numbers[i] == file)
				content_add(&content, &plan->pieces[i]);
		status = write_shard(job, name, &content, manifest, err);
		content_free(&content);
	}
	return status;
}

/* text: this rank's manifest, sent to rank 0. */
static int write_part(const save_job *job, char **text, beton_error *err)
{
	int *numbers = calloc(job->plan.count + 1, sizeof(*numbers));
	json_t *manifest = dtrain__manifest_new();
	int status = numbers && manifest
			     ? BETON_OK
			     : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for the manifest", job->temporary);
	for (int set = 0; set < DTRAIN_CHECKPOINT_SETS && status == BETON_OK; set++)
		status = write_shards(job, set, numbers, manifest, err);
	*text = status == BETON_OK ? json_dumps(manifest, JSON_COMPACT) : NULL;
	if (status == BETON_OK && !*text)
		status = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for the manifest", job->temporary);
	json_decref(manifest);
	free(numbers);
	return status;
}

static int join_parts(const save_job *job, const ranks_texts *texts, char **out, beton_error *err)
{
	json_t *manifest = dtrain__manifest_new();
	bool complete = manifest != NULL;
	for (int rank = 0; rank < dtrain__ranks_size(job->ranks) && complete; rank++) {
		json_t *part =
			json_loadb((char *)texts->all + (size_t)rank * texts->stride, texts->lengths[rank], 0, NULL);
		complete = part && dtrain__manifest_join(manifest, part);
		json_decref(part);
	}
	*out = complete ? json_dumps(manifest, JSON_COMPACT) : NULL;
	json_decref(manifest);
	return *out ? BETON_OK : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory for the manifest", job->temporary);
}

/* Checks that the checkpoint can be opened. */
static int check_manifest(const char *path, const char *text, beton_error *err)
{
	checkpoint_index index = {0};
	int status = strlen(text) <= CHECKPOINT_MANIFEST_BYTES_MAX
			     ? dtrain__index_from_manifest(&index, path, text, strlen(text), err)
			     : bt_fail(err, BETON_INVALID_ARGUMENT, "%s: %zu bytes, %" PRIu64 " are possible", path,
				       strlen(text), CHECKPOINT_MANIFEST_BYTES_MAX);
	dtrain__index_free(&index);
	return status;
}

/* Called on rank 0 after all ranks have written. */
static int write_manifest(const save_job *job, const ranks_texts *texts, beton_error *err)
{
	char *text = NULL, *path = bt_format("%s/" CHECKPOINT_MANIFEST_FILE, job->temporary);
	checkpoint_digest digest = {0};
	int status = path ? join_parts(job, texts, &text, err)
			  : bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", job->temporary);
	if (status == BETON_OK)
		status = check_manifest(path, text, err);
	if (status == BETON_OK)
		status = dtrain__digest_begin(&digest, UINT64_MAX, err);
	if (status == BETON_OK)
		status = dtrain__digest_add(&digest, text, strlen(text), err);
	if (status == BETON_OK)
		status = dtrain__digest_end(&digest, err);
	int fd = status == BETON_OK ? open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666) : -1;
	if (status == BETON_OK && (fd < 0 || bt_write_full(fd, text, strlen(text)) != 0 || fsync(fd) != 0))
		status = bt_fail_errno(err, errno, "%s: cannot write", path);
	if (fd >= 0 && close(fd) != 0 && status == BETON_OK)
		status = bt_fail_errno(err, errno, "%s: cannot close", path);
	if (status == BETON_OK)
		status = dtrain__state_write(job->temporary, job->state, true,
					     &(checkpoint_listed){CHECKPOINT_MANIFEST_FILE, &digest}, 1, err);
	dtrain__digest_free(&digest);
	free(text);
	free(path);
	return status;
}

static int write_sharded(const save_job *job, beton_error *err)
{
	ranks_texts texts = {0};
	char *text = NULL;
	int status = write_part(job, &text, err);
	status = dtrain__ranks_agree(job->ranks, 0, "", status, err);
	if (status == BETON_OK)
		status = dtrain__ranks_gather_texts(job->ranks, text, strlen(text), &texts, err);
	if (status == BETON_OK && dtrain__ranks_self(job->ranks) == 0)
		status = write_manifest(job, &texts, err);
	dtrain__ranks_texts_free(&texts);
	free(text);
	return status;
}

/* ---- the whole save ---- */

static int check_arguments(save_job *job, int keep, const dtrain_checkpoint_content *given, beton_error *err)
{
	job->content.struct_size = sizeof(job->content);
	int status = bt_sized_take(&job->content, given, "checkpoint: content", err);
	const char *link = job->content.link;
	if (status == BETON_OK && (keep < 0 || job->content.step < 0))
		status = bt_fail(err, BETON_INVALID_ARGUMENT, "checkpoint: keep %d or step %" PRId64 " is negative",
				 keep, job->content.step);
	if (status == BETON_OK && dtrain__ranks_self(job->ranks) == 0)
		status = dtrain__state_parse(job->content.state, &job->state, err);
	if (status == BETON_OK)
		status = dtrain__state_check_metadata("checkpoint", job->state, err);
	if (status == BETON_OK && (!job->dir || (link && !(job->link = strdup(link)))))
		status = bt_fail(err, BETON_NO_MEMORY, "checkpoint: out of memory for its folder's name");
	return status;
}

int dtrain__save_plan(save_job *job, const char *dir, int keep, const dtrain_checkpoint_content *content,
		      const dtrain_checkpoint_ranks *ranks, beton_error *err)
{
	*job = (save_job){.dir = strdup(dir), .keep = keep};
	if (ranks) {
		job->group = *ranks;
		job->ranks = &job->group;
	}
	int status = check_arguments(job, keep, content, err);
	status = dtrain__ranks_agree(job->ranks, (uint64_t)job->content.step, "checkpoint: the step", status, err);
	if (status == BETON_OK)
		status = dtrain__plan_make(&job->content, job->ranks, &job->plan, err);
	if (status != BETON_OK)
		dtrain__save_free(job);
	return status;
}

/* Rank 0 makes the folder, and sends its name to the other ranks. */
static int begin(save_job *job, beton_error *err)
{
	char name[128] = "", *names = NULL;
	int status = BETON_OK;
	if (dtrain__ranks_self(job->ranks) == 0) {
		status = dtrain__folder_prepare(job->dir, err);
		if (status == BETON_OK)
			status = dtrain__folder_begin(job->dir, job->content.step, &job->temporary, err);
		if (status == BETON_OK)
			strncpy(name, strrchr(job->temporary, '/') + 1, sizeof(name) - 1);
	}
	status = dtrain__ranks_agree(job->ranks, 0, "", status, err);
	if (status == BETON_OK)
		status = dtrain__ranks_gather(job->ranks, name, sizeof(name), (void **)&names, err);
	if (status == BETON_OK && !job->temporary) {
		job->temporary = bt_format("%s/%s", job->dir, names);
		if (!job->temporary)
			status = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", job->dir);
	}
	free(names);
	return dtrain__ranks_agree(job->ranks, 0, "", status, err);
}

static int publish(save_job *job, beton_error *err)
{
	int64_t step = job->content.step;
	int status = dtrain__folder_publish(job->dir, step, job->temporary, err);
	job->published = status == BETON_OK;
	if (status == BETON_OK && job->link)
		status = dtrain__folder_link(job->dir, step, job->link, err);
	return status == BETON_OK && job->keep > 0
		       ? dtrain__folder_prune(job->dir, job->keep, job->content.keep_step, err)
		       : status;
}

/* Writes the ranks' files, and gives the folder its name. */
static int fill(save_job *job, beton_error *err)
{
	bool first = dtrain__ranks_self(job->ranks) == 0;
	int status = BETON_OK;
	if (!job->plan.whole)
		status = write_sharded(job, err);
	else if (first)
		status = write_whole(job, err);
	if (status == BETON_OK && first)
		status = publish(job, err);
	return dtrain__ranks_agree(job->ranks, 0, "", status, err);
}

int dtrain__save_write(save_job *job, beton_error *err)
{
	bool first = dtrain__ranks_self(job->ranks) == 0;
	int status = begin(job, err);
	if (status == BETON_OK)
		status = fill(job, err);
	if (status != BETON_OK && job->temporary && !job->published && first)
		dtrain__folder_discard(job->dir, job->temporary, job->content.step);
	return status;
}

void dtrain__save_free(save_job *job)
{
	dtrain__plan_free(&job->plan);
	json_decref(job->state);
	free(job->temporary);
	free(job->names);
	free(job->link);
	free(job->dir);
	*job = (save_job){0};
}

int dtrain_checkpoint_save(const char *dir, int keep, const dtrain_checkpoint_content *content,
			   const dtrain_checkpoint_ranks *ranks, beton_error *err)
{
	if (BT_MISSING(err, dir))
		return BETON_INVALID_ARGUMENT;
	save_job job;
	beton_error own = {0};
	if (!err)
		err = &own;
	int status = dtrain__save_plan(&job, dir, keep, content, ranks, err);
	if (status != BETON_OK)
		return status;
	status = dtrain__save_write(&job, err);
	dtrain__save_free(&job);
	return status;
}

int dtrain_checkpoint_link(const char *dir, int64_t step, const char *name, beton_error *err)
{
	if (BT_MISSING(err, dir, name))
		return BETON_INVALID_ARGUMENT;
	return dtrain__folder_link(dir, step, name, err);
}
