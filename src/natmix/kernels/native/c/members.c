#include "members.h"

#include <stdlib.h>

#include "parallel.h"

enum { MOST_ARRAYS = 24 };

typedef struct {
  const xla_frame *frame;
  handler *one;
  int64_t extra; /* dimensions of the members */
  xla_api api;
  void **errors; /* [members] */
} call;

/* The member's part of an array; `shape` is that of all members. */
static xla_buffer part(const xla_buffer *whole, const int64_t *shape, int64_t extra, int64_t member) {
  xla_buffer own = *whole;
  size_t stride = size_of(whole), offset = 0;
  own.dims = whole->dims + extra;
  own.rank = whole->rank - extra;
  for (int64_t i = 0; i < own.rank; i++) stride *= own.dims[i];
  for (int64_t i = extra - 1; i >= 0; i--) {
    offset += (whole->dims[i] > 1 ? member % shape[i] : 0) * stride;
    stride *= whole->dims[i];
    member /= shape[i];
  }
  own.data = (char *)whole->data + offset;
  return own;
}

static void do_member(const void *data, int64_t member) {
  const call *c = data;
  xla_frame own = *c->frame;
  xla_buffer arrays[MOST_ARRAYS];
  void *values[MOST_ARRAYS];
  const int64_t *shape = ret(c->frame, 0)->dims;
  int64_t given = own.args.size;
  for (int64_t i = 0; i < given + own.rets.size; i++) {
    const xla_buffer *whole = i < given ? arg(c->frame, i) : ret(c->frame, i - given);
    arrays[i] = part(whole, shape, c->extra, member);
    values[i] = arrays + i;
  }
  own.args.values = values;
  own.rets.values = values + given;
  own.api = &c->api;
  c->errors[member] = c->one(&own);
}

static void *one_thread(xla_num_threads *asked) {
  *asked->threads = 1;
  return NULL;
}

void *for_each_member(xla_frame *f, handler *one, int which, int64_t rank) {
  if (asks_for_version(f)) return NULL;
  call c = {.frame = f, .one = one, .extra = arg(f, which)->rank - rank, .api = *f->api};
  if (!c.extra) return one(f);
  int64_t members = 1;
  for (int64_t i = 0; i < c.extra; i++) members *= ret(f, 0)->dims[i];
  if (f->args.size + f->rets.size > MOST_ARRAYS) return problem(f, "There are too many arrays for one call.");
  c.errors = calloc(members ? members : 1, sizeof *c.errors);
  if (!c.errors) return problem(f, "There is not enough memory for the members of a batch.");
  /* As many members as threads, or more, keep them busy by themselves. */
  if (members >= threads_of(f)) c.api.num_threads = one_thread;
  parallel(f, members, do_member, &c);
  void *first = NULL;
  for (int64_t i = 0; i < members; i++) {
    if (!c.errors[i]) continue;
    xla_error_destroy destroy = {sizeof destroy, NULL, c.errors[i]};
    if (first) f->api->error_destroy(&destroy);
    else first = c.errors[i];
  }
  free(c.errors);
  return first;
}
