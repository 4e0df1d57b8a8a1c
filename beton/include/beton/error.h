/* SPDX-License-Identifier: Apache-2.0
 *
 * Status codes and the error record that every public function of libbeton, libbeton-loader and libdtrain fills.
 *
 * Functions return BETON_OK (0) or a negative code of the list below, and never print, exit or abort on bad input. The
 * caller passes the address of a beton_error, or NULL if the code is enough; functions write it only on failure. The
 * record belongs to the caller, holds no pointers, and may be copied and reused.
 *
 * NULL where a function needs an object, an array or a place for its result is INVALID_ARGUMENT, and the message names
 * the argument. A function without a code then gives NULL, 0, false or -1, or does nothing. An array or buffer of 0
 * elements may be NULL.
 */
#ifndef BETON_ERROR_H
#define BETON_ERROR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Marks what a library exports, and functions that take a format as printf does. */
#if defined(__GNUC__)
#define BETON_API __attribute__((visibility("default")))
#define BETON_PRINTF(format_index, first_argument) __attribute__((format(printf, format_index, first_argument)))
#else
#define BETON_API
#define BETON_PRINTF(format_index, first_argument)
#endif

/* The one list of codes: X(name, value, meaning). Values never change; a new code takes a free number of its group. */
#define BETON_STATUS_LIST(X)                                                               \
	X(OK, 0, "success")                                                                \
	/* 1..9: the caller */                                                             \
	X(INVALID_ARGUMENT, -1, "an argument or option is out of its range")               \
	X(NO_MEMORY, -2, "out of memory")                                                  \
	X(STATE, -3, "the call does not fit the object's state")                           \
	X(UNSUPPORTED, -4, "valid, but not supported by this build or device")             \
	X(SYSTEM, -5, "the operating system refused a thread, process or descriptor")      \
	/* 10..19: files */                                                                \
	X(IO, -10, "reading or writing a file failed")                                     \
	X(NOT_FOUND, -11, "no such file, folder, field or key")                            \
	X(ACCESS, -12, "permission denied")                                                \
	X(NO_SPACE, -13, "no space left, or a size limit was reached")                     \
	X(EXISTS, -14, "the target exists already")                                        \
	/* 20..39: the content of a file */                                                \
	X(TRUNCATED, -20, "the file ends before the data that it promises")                \
	X(UNSUPPORTED_VERSION, -21, "not a version of the format that this library reads") \
	X(FORMAT, -22, "the file's structure is wrong")                                    \
	X(INCOMPLETE, -23, "the writer of the file did not finish")                        \
	X(UNSUPPORTED_FIELD, -24, "a field type that this library does not know")          \
	X(SAMPLE_CORRUPT, -25, "one sample is damaged")                                    \
	X(FILE_CHANGED, -26, "the file changed while it was open")                         \
	/* 40..49: the loader */                                                           \
	X(END, -40, "end of the epoch; not a failure")                                     \
	X(TIMEOUT, -41, "the deadline passed")                                             \
	X(CANCELLED, -42, "the operation was given up because its owner stopped")          \
	X(USER_ERROR, -43, "a function that the user supplied failed")                     \
	/* 60..79: the trainer */                                                          \
	X(PEER_LOST, -60, "another rank died or can no longer be reached")                 \
	X(MISMATCH, -61, "ranks or files that must agree do not")                          \
	X(DEVICE, -62, "the device failed")                                                \
	X(DIVERGED, -63, "a loss or gradient is not finite")

/* The codes of BETON_STATUS_LIST with the prefix BETON_. */
enum beton_status {
#define BETON_STATUS_ENUM(name, value, text) BETON_##name = (value),
	BETON_STATUS_LIST(BETON_STATUS_ENUM)
#undef BETON_STATUS_ENUM
};

/* Bytes of a message, with its NUL. */
#define BETON_ERROR_MESSAGE_SIZE 496

/* An error. message: one line of UTF-8 without a newline, NUL terminated, that names the file, the place and the value.
 * sample: the sample concerned, or -1. The size of the struct (512 bytes) is part of the ABI. */
typedef struct beton_error {
	int32_t code;
	int32_t reserved;
	int64_t sample;
	char message[BETON_ERROR_MESSAGE_SIZE];
} beton_error;

/* The code's name without prefix ("NOT_FOUND"), or "UNKNOWN"; the code's meaning. Static strings. */
BETON_API const char *beton_status_name(int code);
BETON_API const char *beton_status_text(int code);

#ifdef __cplusplus
}
#endif

#endif
