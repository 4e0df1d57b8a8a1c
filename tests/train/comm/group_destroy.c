/* SPDX-License-Identifier: Apache-2.0
 *
 * A group that is destroyed at the moment at which its thread has taken an operation from the queue: the thread is held
 * there, between two uses of the group's lock, until destroy has asked it to stop. Needs no store and no other rank.
 */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "comm/group/group.h"

static struct {
	pthread_mutex_t *mutex; /* the group's; NULL: no thread is held */
	pthread_t main;
	bool destroying; /* by the main thread, which alone reads and writes it */
	atomic_bool held;
	sem_t taken;    /* the thread has let go of the lock, and the operation is no longer in the queue */
	sem_t stopping; /* destroy has let go of the lock after asking the thread to stop */
} window;

int __real_pthread_mutex_unlock(pthread_mutex_t *mutex);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex);

static void wait_for(sem_t *semaphore)
{
	while (sem_wait(semaphore) != 0)
		;
}

/* The linker puts this in the place of each call in the library. */
int __wrap_pthread_mutex_unlock(pthread_mutex_t *mutex)
{
	bool watched = mutex == window.mutex, is_main = watched && pthread_equal(pthread_self(), window.main);
	dtrain_group *group = watched ? (void *)((char *)mutex - offsetof(dtrain_group, mutex)) : NULL;
	bool taken = watched && !is_main && !group->head && !group->stopping;
	int result = __real_pthread_mutex_unlock(mutex);

	if (taken && !atomic_exchange(&window.held, true)) {
		sem_post(&window.taken);
		wait_for(&window.stopping);
	} else if (is_main && window.destroying) {
		window.destroying = false;
		sem_post(&window.stopping);
	}
	return result;
}

static void operation_that_was_just_taken_ends(void **state)
{
	dtrain_group *group = NULL;
	dtrain_work *work = NULL;
	beton_error err = {0};
	double x = 4;
	int status;

	(void)state;
	assert_int_equal(dtrain_group_create(NULL, 0, 1, NULL, &group, &err), BETON_OK);
	window.main = pthread_self();
	sem_init(&window.taken, 0, 0);
	sem_init(&window.stopping, 0, 0);
	window.mutex = &group->mutex;
	assert_int_equal(dtrain_allreduce(group, &x, 1, DTRAIN_F64, DTRAIN_SUM, NULL, &work, &err), BETON_OK);
	wait_for(&window.taken);
	window.destroying = true;
	dtrain_group_destroy(&group);
	window.mutex = NULL;
	/* Waiting would tell it too, by never ending. */
	assert_true(dtrain_work_done(work));
	status = dtrain_work_wait(&work, &err);
	assert_true(status == BETON_OK || status == BETON_CANCELLED);
	sem_destroy(&window.taken);
	sem_destroy(&window.stopping);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(operation_that_was_just_taken_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
