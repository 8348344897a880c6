/* What the table says about the arrays of a kernel, and whether those of a call agree with it. */
#ifndef NATMIX_SIGNATURE_H
#define NATMIX_SIGNATURE_H

#include "call.h"

enum { MOST_ARRAYS = 24 };

/* Arrays as text, "name:TYPE[sizes]" one after another, those of optional results with a question mark in front. */
typedef struct {
  const char *kernel, *arguments, *results;
} signature;

/* A line of the library's table, as Python reads it; the last one is all NULL. */
typedef struct {
  const signature *signature;
  XLA_FFI_Handler *handler;
} kernel_entry;

/* The arrays of a call, arguments first, then as many results as the table has: NULL for those not asked for. */
typedef struct {
  array *arrays[MOST_ARRAYS];
  int64_t number;
  int64_t batch_rank; /* dimensions in front of those in the table, of a call within jax.vmap */
  int is_double;      /* the type T */
} call_arrays;

/* Takes the arrays of a frame if they are as the signature says; otherwise an error says in a sentence what is wrong. */
failure *take_arrays(const call *c, const signature *s, const XLA_FFI_CallFrame *frame, call_arrays *out);

#endif
