/* SPDX-License-Identifier: Apache-2.0 */
#include "bad_samples.h"

#include <inttypes.h>

#include "common/system.h"
#include "launch/status_line.h"

int run_bad_samples_advise(int status, beton_error *err)
{
	if (status == BETON_SAMPLE_CORRUPT && err)
		bt_append(err->message, sizeof(err->message), "; --bad-samples skip goes on without it");
	return status;
}

void run_bad_samples_tell(const run_session *session, int64_t epoch, int64_t count)
{
	enum { TOLD = 8 };
	uint64_t ids[TOLD];
	size_t bad = 0;
	char text[256] = "";
	if (!count)
		return;
	beton_loader_bad_samples(session->train_loader, ids, TOLD, &bad);
	for (size_t i = 0; i < bad && i < TOLD; i++)
		bt_append(text, sizeof(text), "%s%" PRIu64, i ? ", " : "", ids[i]);
	status_line_warn("dtrain-ffcv: rank %d, epoch %" PRId64 ": %" PRId64
			 " bad sample%s replaced; numbers of the samples that were bad so far: %s%s",
			 session->rank, epoch, count, count == 1 ? "" : "s", text, bad > TOLD ? ", ..." : "");
}
