/* A call of a kernel by XLA: its arrays, its threads and its failure. The interface is that of the header that jaxlib
   ships, of any version from jaxlib 0.10 on. */
#ifndef NATMIX_CALL_H
#define NATMIX_CALL_H

#include <xla/ffi/api/c_api.h>

typedef XLA_FFI_Buffer array;
typedef XLA_FFI_Error failure;

typedef struct {
  const XLA_FFI_Api *api;
  XLA_FFI_ExecutionContext *context;
  int64_t most_threads; /* that it may take, the calling one included */
} call;

/* Bytes of a number; 0 for types that are not known. */
size_t size_of(const array *a);

/* Numbers of an array from dimension `first` on. */
int64_t numbers_from(const array *a, int64_t first);

/* How many of N samples are used. */
int64_t used_samples(const array *count, int64_t N);

/* Sets the rows of an array from this one on to zero. */
void clear_from(array *a, int64_t row);

/* An error that reaches Python as a sentence, as printf writes it. */
__attribute__((format(printf, 2, 3))) failure *invalid(const call *c, const char *format, ...);

failure *out_of_memory(const call *c);

/* An error of XLA's interface that does not matter. */
void forget(const XLA_FFI_Api *api, failure *error);

#endif
