/* SPDX-License-Identifier: Apache-2.0 */
#include "pmi.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/error.h"
#include "common/system.h"

#define KEY "dtrain-rank-0"
#define LINE 1280

struct pmi {
	int fd;
	char line[LINE]; /* the answer */
	char space[256]; /* the name of the key-value space */
};

/* Until the descriptor is readable. */
static int wait_answer(const struct pmi *pmi, const struct rank_exchange_job *job, beton_error *err)
{
	struct pollfd in = {.fd = pmi->fd, .events = POLLIN};
	for (;;) {
		uint64_t now = bt_now_ns(), left_ms = job->deadline > now ? (job->deadline - now) / 1000000 + 1 : 0;
		if (!left_ms)
			return bt_fail(err, BETON_TIMEOUT, "PMI: not all ranks came to the launcher in time");
		int ready = poll(&in, 1, left_ms < RANK_WAIT_TELL_MS ? (int)left_ms : RANK_WAIT_TELL_MS);
		if (ready > 0)
			return BETON_OK;
		if (ready < 0 && errno != EINTR)
			return bt_fail_errno(err, errno, "PMI: poll");
		if (ready == 0 && left_ms >= RANK_WAIT_TELL_MS)
			job->waits(job->context);
	}
}

static int receive_line(struct pmi *pmi, const struct rank_exchange_job *job, beton_error *err)
{
	size_t used = 0;
	while (used + 1 < sizeof(pmi->line)) {
		int status = wait_answer(pmi, job, err);
		if (status != BETON_OK)
			return status;
		/* Byte by byte: nothing beyond the line may be taken. */
		ssize_t got = read(pmi->fd, pmi->line + used, 1);
		if (got < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		if (got <= 0)
			return bt_fail(err, BETON_PEER_LOST, "PMI: the launcher has closed the connection PMI_FD");
		if (pmi->line[used] == '\n') {
			pmi->line[used] = '\0';
			return BETON_OK;
		}
		used++;
	}
	return bt_fail(err, BETON_MISMATCH, "PMI: an answer of more than %d bytes", LINE - 2);
}

/* The value of a key in the answer "cmd=... key=value ...". False, and "": it is not there, or too long. */
static bool take_value(const struct pmi *pmi, const char *key, char *out, size_t size)
{
	size_t length = strlen(key);
	*out = '\0';
	for (const char *c = pmi->line; *c; c += strcspn(c, " ")) {
		c += strspn(c, " ");
		if (strncmp(c, key, length) == 0 && c[length] == '=') {
			c += length + 1;
			size_t bytes = strcspn(c, " ");
			if (bytes >= size)
				return false;
			memcpy(out, c, bytes);
			out[bytes] = '\0';
			return true;
		}
	}
	return false;
}

static int fail_answer(struct pmi *pmi, const char *command, beton_error *err)
{
	bt_sanitize(pmi->line);
	return bt_fail(err, BETON_MISMATCH,
		       "PMI: the launcher answers '%.100s' to '%.*s'; set MASTER_ADDR and MASTER_PORT on all ranks",
		       pmi->line, (int)strcspn(command, "\n"), command);
}

/* Sends a command and checks the answer's name and, if it has one, its code. */
static int call(struct pmi *pmi, const struct rank_exchange_job *job, const char *command, const char *answer,
		beton_error *err)
{
	char name[64], code[LINE];
	if (bt_write_full(pmi->fd, command, strlen(command)) != 0)
		return bt_fail_errno(err, errno, "PMI: cannot write to the launcher's descriptor PMI_FD");
	int status = receive_line(pmi, job, err);
	if (status != BETON_OK)
		return status;
	bool good = take_value(pmi, "cmd", name, sizeof(name)) && strcmp(name, answer) == 0;
	if (take_value(pmi, "rc", code, sizeof(code)))
		good = good && strcmp(code, "0") == 0;
	return good ? BETON_OK : fail_answer(pmi, command, err);
}

/* As call; the answer must have the value. */
static int ask(struct pmi *pmi, const struct rank_exchange_job *job, const char *command, const char *answer,
	       const char *key, char *out, size_t size, beton_error *err)
{
	int status = call(pmi, job, command, answer, err);
	return status == BETON_OK && (!take_value(pmi, key, out, size) || !*out) ? fail_answer(pmi, command, err)
										 : status;
}

static int exchange(struct pmi *pmi, struct rank_exchange_job *job, beton_error *err)
{
	char command[LINE];
	int status = call(pmi, job, "cmd=init pmi_version=1 pmi_subversion=1\n", "response_to_init", err);
	if (status == BETON_OK)
		status = ask(pmi, job, "cmd=get_my_kvsname\n", "my_kvsname", "kvsname", pmi->space, sizeof(pmi->space),
			     err);
	if (status == BETON_OK && job->gives) {
		snprintf(command, sizeof(command), "cmd=put kvsname=%s key=%s value=%s\n", pmi->space, KEY, job->value);
		status = call(pmi, job, command, "put_result", err);
	}
	/* The others see the value after a barrier. */
	if (status == BETON_OK)
		status = call(pmi, job, "cmd=barrier_in\n", "barrier_out", err);
	if (status == BETON_OK && !job->gives) {
		snprintf(command, sizeof(command), "cmd=get kvsname=%s key=%s\n", pmi->space, KEY);
		status = ask(pmi, job, command, "get_result", "value", job->value, sizeof(job->value), err);
	}
	/* A process that ends without this counts as failed. */
	return status == BETON_OK ? call(pmi, job, "cmd=finalize\n", "finalize_ack", err) : status;
}

int dtrain__pmi_exchange(struct rank_exchange_job *job, beton_error *err)
{
	const char *text = getenv("PMI_FD");
	struct pmi pmi;
	uint64_t fd;
	int status = bt_parse_u64("environment: PMI_FD", text ? text : "", 0, INT32_MAX, &fd, err);
	if (status != BETON_OK)
		return status;
	pmi.fd = (int)fd;
	return exchange(&pmi, job, err);
}
