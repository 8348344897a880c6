/* Calls within `jax.vmap`: all arrays then have further dimensions in front, of size 1 where they are the same for
   all elements of the batch. */
#ifndef NATMIX_BATCH_H
#define NATMIX_BATCH_H

#include "signature.h"

/* A kernel with the arrays of one element of the batch, in the order of the table. */
typedef failure *single_call(const call *c, array *const *arrays, int is_double);

failure *for_each_in_batch(const call *c, single_call *one, const call_arrays *all);

#endif
