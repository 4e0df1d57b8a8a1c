/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_FUZZ_EXERCISE_H
#define TESTS_FUZZ_EXERCISE_H

/* Aborts with the text if the condition does not hold. */
void require(int condition, const char *what);

/* Opens a file that may be anything, and does all that can be done with it: it must be refused with a message, or read
 * within its bounds. */
void exercise_reader(const char *path);

#endif
