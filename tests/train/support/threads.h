/* SPDX-License-Identifier: Apache-2.0
 *
 * How many threads the tests give a device. ThreadSanitizer does not see the barriers of OpenMP's library, which is
 * built without it, and would report every parallel loop as a race: its builds use one thread.
 */
#ifndef TESTS_TRAIN_SUPPORT_THREADS_H
#define TESTS_TRAIN_SUPPORT_THREADS_H

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEST_THREADS 1
#endif
#endif
#if !defined(TEST_THREADS) && defined(__SANITIZE_THREAD__)
#define TEST_THREADS 1
#endif
#ifndef TEST_THREADS
#define TEST_THREADS 2
#endif

#endif
