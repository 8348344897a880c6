/* What all handlers ask of a call. */
#ifndef NATMIX_FRAME_H
#define NATMIX_FRAME_H

#include "xla.h"

static inline xla_buffer *arg(const xla_frame *f, int i) { return f->args.values[i]; }
static inline xla_buffer *ret(const xla_frame *f, int i) { return f->rets.values[i]; }

/* Bytes of a number; 0 for types that nobody uses. */
static inline size_t size_of(const xla_buffer *b) {
  switch (b->dtype) {
    case XLA_F64: return 8;
    case XLA_F32:
    case XLA_S32:
    case XLA_U32: return 4;
    default: return b->dtype == XLA_PRED;
  }
}

static inline void *problem(const xla_frame *f, const char *message) {
  xla_error_create create = {sizeof create, NULL, message, XLA_INVALID_ARGUMENT};
  return f->api->error_create(&create);
}

/* Whether XLA only asks which version of its interface this was written for. */
static inline int asks_for_version(xla_frame *f) {
  if (!f->extension || f->extension->type != XLA_METADATA) return 0;
  xla_metadata *m = ((xla_metadata_extension *)f->extension)->metadata;
  m->version = (xla_version){sizeof(xla_version), NULL, 0, 1};
  m->traits = 0;
  return 1;
}

#endif
