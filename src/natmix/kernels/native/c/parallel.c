#include "parallel.h"

#include <stdatomic.h>
#include <stdlib.h>

typedef struct {
  void (*work)(const void *, int64_t);
  const void *data;
  int64_t tasks;
  atomic_llong next, done;
  atomic_int users;
} job;

static void take_part(job *j) {
  for (int64_t i; (i = atomic_fetch_add(&j->next, 1)) < j->tasks;) {
    j->work(j->data, i);
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

int64_t threads_of(const xla_frame *frame) {
  int64_t threads = 1;
  xla_num_threads ask = {sizeof ask, NULL, frame->context, &threads};
  void *error = frame->api->num_threads(&ask);
  if (!error) return threads;
  xla_error_destroy destroy = {sizeof destroy, NULL, error};
  frame->api->error_destroy(&destroy);
  return 1;
}

static int asked_for_help(const xla_frame *frame, job *j) {
  xla_schedule schedule = {sizeof schedule, NULL, frame->context, help, j};
  void *error = frame->api->schedule(&schedule);
  if (!error) return 1;
  xla_error_destroy destroy = {sizeof destroy, NULL, error};
  frame->api->error_destroy(&destroy);
  return 0;
}

void parallel(const xla_frame *frame, int64_t tasks, void (*work)(const void *, int64_t), const void *data) {
  int64_t helpers = tasks > 1 ? threads_of(frame) - 1 : 0;
  if (helpers > tasks - 1) helpers = tasks - 1;
  job *j = helpers > 0 ? malloc(sizeof *j) : NULL;
  if (!j) {
    for (int64_t i = 0; i < tasks; i++) work(data, i);
    return;
  }
  j->work = work, j->data = data, j->tasks = tasks;
  atomic_init(&j->next, 0), atomic_init(&j->done, 0), atomic_init(&j->users, 1);
  for (int64_t h = 0; h < helpers; h++) {
    atomic_fetch_add(&j->users, 1);
    if (!asked_for_help(frame, j)) {
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
  leave(j);
}
