/* SPDX-License-Identifier: Apache-2.0 */
#include "escape.h"

#include <stdarg.h>

#include <jerror.h>

#include "common/jpeg.h"

/* The kinds of JPEG that libjpeg knows by the number of their marker alone. */
static const char *process_name(int marker)
{
	switch (marker) {
	case 0xc3:
	case 0xcb:
		return "lossless JPEG";
	case 0xc5:
	case 0xc6:
	case 0xc7:
	case 0xcd:
	case 0xce:
	case 0xcf:
		return "hierarchical JPEG";
	default:
		return "a kind of JPEG that is not known";
	}
}

static void leave(j_common_ptr jpeg)
{
	bt_jpeg_escape *escape = (bt_jpeg_escape *)jpeg->err;
	const struct jpeg_error_mgr *errors = &escape->errors;
	if (errors->msg_code == JERR_OUT_OF_MEMORY)
		bt_jpeg_escape_leave_no_memory(escape);
	if (errors->msg_code == JERR_SOF_UNSUPPORTED)
		bt_jpeg_escape_leave(escape, "%s is not supported", process_name(errors->msg_parm.i[0]));
	if (errors->msg_code == JERR_BAD_PRECISION)
		bt_jpeg_escape_leave(escape, "JPEG with %d bits a sample is not supported, only 8",
				     errors->msg_parm.i[0]);
	escape->code = BETON_SAMPLE_CORRUPT;
	errors->format_message(jpeg, escape->message);
	longjmp(escape->target, 1);
}

static void leave_on_warning(j_common_ptr jpeg, int level)
{
	if (level < 0)
		leave(jpeg);
}

static void leave_on_many_scans(j_common_ptr jpeg)
{
	if (((j_decompress_ptr)jpeg)->input_scan_number > BT_JPEG_SCANS_MAX)
		bt_jpeg_escape_leave((bt_jpeg_escape *)jpeg->err, "more than %d scans", BT_JPEG_SCANS_MAX);
}

struct jpeg_error_mgr *bt_jpeg_escape_init(bt_jpeg_escape *escape)
{
	jpeg_std_error(&escape->errors);
	escape->errors.error_exit = leave;
	escape->errors.emit_message = leave_on_warning;
	escape->code = BETON_OK;
	escape->message[0] = 0;
	return &escape->errors;
}

void bt_jpeg_escape_open_decoder(bt_jpeg_escape *escape, struct jpeg_decompress_struct *jpeg)
{
	jpeg_create_decompress(jpeg);
	escape->progress.progress_monitor = leave_on_many_scans;
	jpeg->progress = &escape->progress;
}

void bt_jpeg_escape_leave(bt_jpeg_escape *escape, const char *format, ...)
{
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(escape->message, sizeof(escape->message), format, arguments);
	va_end(arguments);
	escape->code = BETON_SAMPLE_CORRUPT;
	longjmp(escape->target, 1);
}

void bt_jpeg_escape_leave_no_memory(bt_jpeg_escape *escape)
{
	escape->code = BETON_NO_MEMORY;
	snprintf(escape->message, sizeof(escape->message), "out of memory");
	longjmp(escape->target, 1);
}
