/* What is used of XLA's interface for foreign functions (its C interface, version 0.x).

   Later versions only append to these structures, so one library serves all of them. */
#ifndef NATMIX_XLA_H
#define NATMIX_XLA_H

#include <stddef.h>
#include <stdint.h>

enum { XLA_METADATA = 1, XLA_INVALID_ARGUMENT = 3, XLA_PRED = 1, XLA_S32 = 4, XLA_U32 = 8, XLA_F32 = 11, XLA_F64 = 12 };

typedef struct xla_extension {
  size_t struct_size;
  int type;
  struct xla_extension *next;
} xla_extension;

typedef struct {
  size_t struct_size;
  xla_extension *extension;
  int major, minor;
} xla_version;

typedef struct {
  size_t struct_size;
  xla_version version;
  uint32_t traits;
  int64_t state_type;
} xla_metadata;

typedef struct {
  xla_extension base;
  xla_metadata *metadata;
} xla_metadata_extension;

typedef struct {
  size_t struct_size;
  xla_extension *extension;
  int dtype;
  void *data;
  int64_t rank;
  int64_t *dims;
} xla_buffer;

typedef struct {
  size_t struct_size;
  xla_extension *extension;
  int64_t size;
  int *types;
  void **values;
} xla_values;

typedef struct {
  size_t struct_size;
  xla_extension *extension;
  const char *message;
  int code;
} xla_error_create;

typedef struct {
  size_t struct_size;
  xla_extension *extension;
  void *context;
  void (*task)(void *);
  void *data;
} xla_schedule;

typedef struct {
  size_t struct_size;
  xla_extension *extension;
  void *context;
  int64_t *threads;
} xla_num_threads;

typedef struct {
  size_t struct_size;
  xla_extension *extension;
  void *error;
} xla_error_destroy;

typedef struct {
  size_t struct_size;
  xla_extension *extension;
  xla_version version;
  const void *internal;
  void *(*error_create)(xla_error_create *);
  void *error_message;
  void (*error_destroy)(xla_error_destroy *);
  void *between[8];
  void *(*schedule)(xla_schedule *);
  void *(*num_threads)(xla_num_threads *);
} xla_api;

typedef struct {
  size_t struct_size;
  xla_extension *extension;
  const xla_api *api;
  void *context;
  int stage;
  xla_values args;
  xla_values rets;
} xla_frame;

#endif
