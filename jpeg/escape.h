/* SPDX-License-Identifier: Apache-2.0
 *
 * How every use of libjpeg here fails: libjpeg calls back on an error, and the callback jumps out of the failing call.
 * A warning of a decoder counts as an error, because it means damaged data.
 */
#ifndef BT_JPEG_ESCAPE_H
#define BT_JPEG_ESCAPE_H

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

#include <beton/error.h>

/* The first member is libjpeg's, which finds the rest by it. All state that cleaning up needs after the jump is to be
 * reachable from the structure that holds the escape. */
typedef struct bt_jpeg_escape {
	struct jpeg_error_mgr errors;
	struct jpeg_progress_mgr progress; /* of bt_jpeg_escape_open_decoder */
	jmp_buf target;                    /* to be set by setjmp before the first call into libjpeg */
	int code;                          /* of the failure: SAMPLE_CORRUPT or NO_MEMORY */
	char message[JMSG_LENGTH_MAX];
} bt_jpeg_escape;

/* Returns the value for the member `err` of a compressor or decompressor. */
struct jpeg_error_mgr *bt_jpeg_escape_init(bt_jpeg_escape *escape);

/* Makes a decompressor whose member `err` is an escape's, and which fails at a picture of more than BT_JPEG_SCANS_MAX
 * scans. */
void bt_jpeg_escape_open_decoder(bt_jpeg_escape *escape, struct jpeg_decompress_struct *jpeg);

/* Fails with SAMPLE_CORRUPT and that message. */
BETON_PRINTF(2, 3) void bt_jpeg_escape_leave(bt_jpeg_escape *escape, const char *format, ...) __attribute__((noreturn));

/* Fails with NO_MEMORY. */
void bt_jpeg_escape_leave_no_memory(bt_jpeg_escape *escape) __attribute__((noreturn));

#endif
