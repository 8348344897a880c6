#include "batch.h"

#include <stdlib.h>

#include "parallel.h"

typedef struct {
  const call_arrays *all;
  single_call *one;
  const int64_t *shape; /* of the batch */
  call each;
  failure **errors; /* [elements] */
} batch;

/* An element's part of an array. */
static array part(const array *whole, const int64_t *shape, int64_t batch_rank, int64_t element) {
  array own = *whole;
  int64_t stride = size_of(whole) * numbers_from(whole, batch_rank), offset = 0;
  own.dims = whole->dims + batch_rank;
  own.rank = whole->rank - batch_rank;
  for (int64_t i = batch_rank - 1; i >= 0; i--) {
    offset += (whole->dims[i] > 1 ? element % shape[i] : 0) * stride;
    stride *= whole->dims[i];
    element /= shape[i];
  }
  own.data = (char *)whole->data + offset;
  return own;
}

static int do_element(const void *data, int64_t element) {
  const batch *b = data;
  array own[MOST_ARRAYS], *arrays[MOST_ARRAYS] = {NULL};
  for (int64_t i = 0; i < b->all->number; i++) {
    if (!b->all->arrays[i]) continue;
    own[i] = part(b->all->arrays[i], b->shape, b->all->batch_rank, element);
    arrays[i] = own + i;
  }
  b->errors[element] = b->one(&b->each, arrays, b->all->is_double);
  return DONE;
}

/* Of the last array that is there: all results have the whole shape of the batch. */
static const int64_t *batch_shape(const call_arrays *all) {
  int64_t i = all->number - 1;
  while (!all->arrays[i]) i--;
  return all->arrays[i]->dims;
}

failure *for_each_in_batch(const call *c, single_call *one, const call_arrays *all) {
  if (!all->batch_rank) return one(c, all->arrays, all->is_double);
  batch b = {.all = all, .one = one, .shape = batch_shape(all), .each = *c};
  int64_t elements = 1;
  for (int64_t i = 0; i < all->batch_rank; i++) elements *= b.shape[i];
  if (!elements) return NULL;
  b.errors = calloc(elements, sizeof *b.errors);
  if (!b.errors) return out_of_memory(c);
  /* A batch of at least as many elements as threads keeps all threads busy. */
  if (elements >= threads_of(c)) b.each.most_threads = 1;
  failure *first = parallel(c, elements, do_element, &b);
  for (int64_t i = 0; i < elements; i++) {
    if (first) forget(c->api, b.errors[i]);
    else first = b.errors[i];
  }
  free(b.errors);
  return first;
}
