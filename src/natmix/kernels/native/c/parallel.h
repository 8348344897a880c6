/* Tasks shared among the threads of XLA's pool. */
#ifndef NATMIX_PARALLEL_H
#define NATMIX_PARALLEL_H

#include "call.h"

/* What a task returns: a thread cannot create an error, but says that it had no memory. */
enum { DONE = 0, NO_MEMORY = 1 };

typedef int task(const void *data, int64_t i);

/* Calls work(data, i) once for every i below `tasks`, in any order and on any thread; returns when all are done. If
   one has no memory those that have not begun are left out, and an error is returned.

   The caller does its share and never waits for a task that has not begun, so that it does not matter how busy
   the pool is. */
failure *parallel(const call *c, int64_t tasks, task *work, const void *data);

/* How many threads there are. */
int64_t threads_of(const call *c);

#endif
