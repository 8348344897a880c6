#include "parallel.h"

#include <stdatomic.h>
#include <stdlib.h>

typedef struct {
  task *work;
  const void *data;
  int64_t tasks;
  atomic_llong next, done;
  atomic_int users, failed;
} job;

static void take_part(job *j) {
  for (int64_t i; (i = atomic_fetch_add(&j->next, 1)) < j->tasks;) {
    if (!atomic_load(&j->failed) && j->work(j->data, i) != DONE) atomic_store(&j->failed, 1);
    atomic_fetch_add(&j->done, 1);
  }
}

static void leave(job *j) {
  if (atomic_fetch_sub(&j->users, 1) == 1) free(j);
}

static void help(void *data) {
  take_part(data);
  leave(data);
}

int64_t threads_of(const call *c) {
  int64_t threads = 1;
  XLA_FFI_ThreadPool_NumThreads_Args ask = {.struct_size = XLA_FFI_ThreadPool_NumThreads_Args_STRUCT_SIZE,
                                            .ctx = c->context, .num_threads = &threads};
  failure *error = c->api->XLA_FFI_ThreadPool_NumThreads(&ask);
  forget(c->api, error);
  if (error) return 1;
  return threads < c->most_threads ? threads : c->most_threads;
}

static int asked_for_help(const call *c, job *j) {
  XLA_FFI_ThreadPool_Schedule_Args schedule = {.struct_size = XLA_FFI_ThreadPool_Schedule_Args_STRUCT_SIZE,
                                               .ctx = c->context, .task = help, .data = j};
  failure *error = c->api->XLA_FFI_ThreadPool_Schedule(&schedule);
  forget(c->api, error);
  return !error;
}

static failure *one_after_another(const call *c, int64_t tasks, task *work, const void *data) {
  for (int64_t i = 0; i < tasks; i++)
    if (work(data, i) != DONE) return out_of_memory(c);
  return NULL;
}

failure *parallel(const call *c, int64_t tasks, task *work, const void *data) {
  int64_t helpers = tasks > 1 && c->most_threads > 1 ? threads_of(c) - 1 : 0;
  if (helpers > tasks - 1) helpers = tasks - 1;
  job *j = helpers > 0 ? malloc(sizeof *j) : NULL;
  if (!j) return one_after_another(c, tasks, work, data);
  j->work = work, j->data = data, j->tasks = tasks;
  atomic_init(&j->next, 0), atomic_init(&j->done, 0), atomic_init(&j->users, 1), atomic_init(&j->failed, 0);
  for (int64_t h = 0; h < helpers; h++) {
    atomic_fetch_add(&j->users, 1);
    if (!asked_for_help(c, j)) {
      atomic_fetch_sub(&j->users, 1);
      break;
    }
  }
  take_part(j);
  while (atomic_load(&j->done) < tasks) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  int failed = atomic_load(&j->failed);
  leave(j);
  return failed ? out_of_memory(c) : NULL;
}
