/* SPDX-License-Identifier: Apache-2.0 */
#include "tensorboard.h"

#include "common/error.h"

#ifdef HAVE_TENSORBOARD

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <isa-l/crc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/system.h"
#include "event.pb-c.h"

/* A file is a series of frames: length, checksum of the length, an event, checksum of the event; little-endian
 * (tensorflow/core/lib/io/record_writer.h). TensorBoard ignores an incomplete frame at the end. */
#define HEAD_BYTES 12
#define TAIL_BYTES 4
#define MASK 0xa282ead8u

struct run_tensorboard {
	int fd;
	char *path;
};

/* CRC-32C, rotated and shifted, so that checksums within the data do not weaken it. */
static uint32_t checksum(void *data, size_t size)
{
	uint32_t crc = crc32_iscsi(data, (int)size, UINT32_MAX) ^ UINT32_MAX;
	return htole32((crc >> 15 | crc << 17) + MASK);
}

static int write_event(const run_tensorboard *self, const Tensorboard__Event *event, beton_error *err)
{
	size_t size = tensorboard__event__get_packed_size(event);
	unsigned char *frame = malloc(HEAD_BYTES + size + TAIL_BYTES);
	if (!frame)
		return bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->path);
	uint64_t length = htole64(size);
	memcpy(frame, &length, sizeof(length));
	uint32_t crc = checksum(frame, sizeof(length));
	memcpy(frame + sizeof(length), &crc, sizeof(crc));
	tensorboard__event__pack(event, frame + HEAD_BYTES);
	crc = checksum(frame + HEAD_BYTES, size);
	memcpy(frame + HEAD_BYTES + size, &crc, sizeof(crc));
	int status = BETON_OK;
	if (bt_write_full(self->fd, frame, HEAD_BYTES + size + TAIL_BYTES) != 0)
		status = bt_fail_errno(err, errno, "%s: cannot write", self->path);
	free(frame);
	return status;
}

int run_tensorboard_check(const char *folder, beton_error *err)
{
	char *path = bt_format("%s/file", folder);
	int status = path ? bt_make_parents(path, err) : bt_fail(err, BETON_NO_MEMORY, "out of memory");
	free(path);
	struct stat info;
	if (status != BETON_OK)
		bt_prefix(err, "--tensorboard");
	else if (stat(folder, &info) == 0 && !S_ISDIR(info.st_mode))
		status = bt_fail_errno(err, ENOTDIR, "--tensorboard: cannot create a file in '%s'", folder);
	else if (access(folder, W_OK | X_OK) != 0)
		status = bt_fail_errno(err, errno, "--tensorboard: cannot create a file in '%s'", folder);
	return status;
}

int run_tensorboard_open(const char *folder, run_tensorboard **out, beton_error *err)
{
	char host[256] = "";
	time_t now = time(NULL);
	*out = NULL;
	run_tensorboard *self = calloc(1, sizeof(*self));
	gethostname(host, sizeof(host) - 1);
	if (self)
		self->path = bt_format("%s/events.out.tfevents.%010lld.%s.%ld.dtrain", folder, (long long)now, host,
				       (long)getpid());
	if (!self || !self->path) {
		free(self);
		return bt_fail(err, BETON_NO_MEMORY, "--tensorboard: out of memory");
	}
	int status = bt_make_parents(self->path, err);
	/* A restarted run has another process or second; TensorBoard joins the files of a folder. */
	self->fd = status == BETON_OK ? open(self->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666) : -1;
	Tensorboard__Event event = TENSORBOARD__EVENT__INIT;
	event.wall_time = (double)now;
	event.what_case = TENSORBOARD__EVENT__WHAT_FILE_VERSION;
	event.file_version = (char *)"brain.Event:2";
	if (self->fd < 0 && status == BETON_OK)
		status = bt_fail_errno(err, errno, "--tensorboard: cannot create '%s'", self->path);
	if (status == BETON_OK)
		status = write_event(self, &event, err);
	*out = self;
	if (status != BETON_OK)
		run_tensorboard_close(out, NULL);
	return status;
}

/* The tag of a record's member, malloc'ed; NULL: out of memory. */
static char *tag_of(const char *type, const char *key)
{
	static const char train[] = "train_", val[] = "val_";
	if (strcmp(type, "step") == 0)
		return bt_format("train/%s", strncmp(key, train, strlen(train)) == 0 ? key + strlen(train) : key);
	if (strcmp(type, "evaluation") == 0 && strncmp(key, val, strlen(val)) == 0)
		return bt_format("val/%s", key + strlen(val));
	return bt_format("%s/%s", type, key);
}

static bool is_scalar(const char *key, const json_t *value)
{
	return json_is_number(value) && strcmp(key, "time") != 0 && strcmp(key, "step") != 0;
}

/* Fills values and what it points to. */
static bool fill(json_t *record, const char *type, Tensorboard__Summary__Value *values,
		 Tensorboard__Summary__Value **pointers, size_t *count)
{
	const char *key;
	json_t *value;
	json_object_foreach(record, key, value)
	{
		Tensorboard__Summary__Value *next = &values[*count];
		if (!is_scalar(key, value))
			continue;
		tensorboard__summary__value__init(next);
		next->value_case = TENSORBOARD__SUMMARY__VALUE__VALUE_SIMPLE_VALUE;
		next->simple_value = (float)json_number_value(value);
		next->tag = tag_of(type, key);
		if (!next->tag)
			return false;
		pointers[(*count)++] = next;
	}
	return true;
}

int run_tensorboard_add(run_tensorboard *self, const json_t *record, beton_error *err)
{
	const char *type = json_string_value(json_object_get(record, "type"));
	if (strcmp(type, "step") != 0 && strcmp(type, "evaluation") != 0 && strcmp(type, "epoch") != 0)
		return BETON_OK;
	size_t most = json_object_size(record), count = 0;
	Tensorboard__Event event = TENSORBOARD__EVENT__INIT;
	Tensorboard__Summary summary = TENSORBOARD__SUMMARY__INIT;
	Tensorboard__Summary__Value *values = calloc(most, sizeof(*values));
	Tensorboard__Summary__Value **pointers = calloc(most, sizeof(*pointers));
	int status = BETON_OK;
	if (!values || !pointers || !fill((json_t *)record, type, values, pointers, &count))
		status = bt_fail(err, BETON_NO_MEMORY, "%s: out of memory", self->path);
	summary.value = pointers;
	summary.n_value = count;
	event.wall_time = json_number_value(json_object_get(record, "time"));
	event.step = json_integer_value(json_object_get(record, "step"));
	event.what_case = TENSORBOARD__EVENT__WHAT_SUMMARY;
	event.summary = &summary;
	if (status == BETON_OK)
		status = write_event(self, &event, err);
	for (size_t i = 0; i < count; i++)
		free(values[i].tag);
	free(pointers);
	free(values);
	return status;
}

int run_tensorboard_close(run_tensorboard **self, beton_error *err)
{
	run_tensorboard *closed = *self;
	int status = BETON_OK;
	*self = NULL;
	if (!closed)
		return BETON_OK;
	if (closed->fd >= 0 && close(closed->fd) != 0)
		status = bt_fail_errno(err, errno, "%s: cannot close", closed->path);
	free(closed->path);
	free(closed);
	return status;
}

#else

int run_tensorboard_check(const char *folder, beton_error *err)
{
	(void)folder;
	return bt_fail(err, BETON_UNSUPPORTED, "--tensorboard: this program was built without protobuf-c and ISA-L");
}

int run_tensorboard_open(const char *folder, run_tensorboard **out, beton_error *err)
{
	*out = NULL;
	return run_tensorboard_check(folder, err);
}

int run_tensorboard_add(run_tensorboard *self, const json_t *record, beton_error *err)
{
	(void)self, (void)record, (void)err;
	return BETON_OK;
}

int run_tensorboard_close(run_tensorboard **self, beton_error *err)
{
	(void)self, (void)err;
	return BETON_OK;
}

#endif
