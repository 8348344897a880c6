/* Tasks shared among the threads of XLA's pool. */
#ifndef NATMIX_PARALLEL_H
#define NATMIX_PARALLEL_H

#include "xla.h"

/* Calls work(data, i) once for every i below `tasks`, in any order and on any thread; returns when all are done.

   The caller does its share and never waits for a task that has not begun, so that it does not matter how busy
   the pool is. */
void parallel(const xla_frame *frame, int64_t tasks, void (*work)(const void *data, int64_t i), const void *data);

/* How many threads there are. */
int64_t threads_of(const xla_frame *frame);

#endif
