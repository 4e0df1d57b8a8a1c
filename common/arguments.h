/* SPDX-License-Identifier: Apache-2.0
 *
 * Arguments of programs. */
#ifndef BT_ARGUMENTS_H
#define BT_ARGUMENTS_H

#include <getopt.h>
#include <stdbool.h>
#include <stddef.h>

#include <beton/error.h>

/* getopt_long, whose messages name the argument, and the option that it is most like. It returns '?' after each. Once
 * there are no more options, arguments that are URLs are refused as well, all in one message. */
int bt_getopt(int argc, char **argv, const char *letters, const struct option *options, int *index);

/* The same, and '?' after a message for an option with a value that was given before: `seen`, false at first, has a
 * place for each entry of the list. bt_getopt takes the later one. */
int bt_getopt_once(int argc, char **argv, const char *letters, const struct option *options, bool *seen);

/* INVALID_ARGUMENT for an argument that getopt_long takes for none of the options, or for an abbreviation of several.
 */
int bt_refuse_argument(const char *given, const struct option *options, beton_error *err);

/* Appends an option (NULL: an argument without one) and its path to the list `urls`, "" at first, if the path is a URL:
 * "s3://bucket/train.beton", unless there is a folder "s3:". */
void bt_note_url(char *urls, size_t size, const char *option, const char *path);

/* INVALID_ARGUMENT if the list is not empty. */
int bt_refuse_urls(const char *urls, beton_error *err);

/* A program's exit status after a fault in its arguments: 2. Prints the message after the program's name, if it is not
 * NULL, and the option that gives help, on standard error. */
int bt_usage_error(const char *program, const char *message);

/* Reports a failure, and returns the exit status for it. INVALID_ARGUMENT and MISMATCH: as bt_usage_error. PEER_LOST:
 * the reader of the output has seen enough, so nothing is printed, and the status is that of a program that SIGPIPE
 * ends. Others: prints the message, and returns 1. */
int bt_program_error(const char *program, const beton_error *err);

#endif
