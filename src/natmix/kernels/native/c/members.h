/* Calls within a `jax.vmap`: all arrays then have further dimensions in front, of size 1 where they are the same for
   all members. */
#ifndef NATMIX_MEMBERS_H
#define NATMIX_MEMBERS_H

#include "frame.h"

typedef void *handler(const xla_frame *f);

/* What XLA calls: `one` for every member of the call, whose argument number `which` has `rank` dimensions alone. */
void *for_each_member(xla_frame *f, handler *one, int which, int64_t rank);

/* Begins the handler of this name. */
#define HANDLER(name, which, rank)                                                          \
  static void *one_##name(const xla_frame *f);                                              \
  void *natmix_##name(xla_frame *f) { return for_each_member(f, one_##name, which, rank); } \
  static void *one_##name(const xla_frame *f)

#endif
