/* What XLA and Python see of a library of kernels: its table, a handler for each kernel that checks the arrays of a
   call and passes them on to the widest vector instructions that there are, and what the library was built from. */
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "batch.h"
#include "signature.h"
#include "tables.h"

/* All else is hidden: names of other libraries in a process do not clash with these. */
#define EXPORTED __attribute__((visibility("default")))

#ifndef SOURCES
#define SOURCES ""
#endif

extern const instruction_set natmix_plain;
#if defined(__x86_64__)
extern const instruction_set natmix_wide, natmix_widest;
#endif

#if defined(__x86_64__)
/* Whether the processor has these instructions and the system keeps their registers: 0 neither, 1 AVX2 and FMA,
   2 AVX-512 too. */
static int width(void) {
  enum { FMA_AND_XSAVE = 1 << 12 | 1 << 27, AVX2 = 1 << 5, AVX = 0x6, AVX_512 = 0xe6 };
  const unsigned avx_512 = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* F, DQ, BW, VL */
  unsigned a, b, c, d, kept, upper;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & FMA_AND_XSAVE) != FMA_AND_XSAVE) return 0;
  __asm__("xgetbv" : "=a"(kept), "=d"(upper) : "c"(0));
  if ((kept & AVX) != AVX || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & AVX2)) return 0;
  return (kept & AVX_512) == AVX_512 && (b & avx_512) == avx_512 ? 2 : 1;
}
#endif

/* The widest instructions that there are, or those that the environment variable names if narrower. */
static const instruction_set *chosen(void) {
#if defined(__x86_64__)
  const char *limit = getenv("NATMIX_NATIVE");
  int most = !limit ? 2 : !strcmp(limit, "plain") ? 0 : !strcmp(limit, "wide") ? 1 : 2, here = width();
  if (most > 1 && here > 1) return &natmix_widest;
  if (most > 0 && here > 0) return &natmix_wide;
#endif
  return &natmix_plain;
}

/* The same, asked once: virtual machines answer cpuid slowly. Threads that ask at once find the same. */
static const instruction_set *best(void) {
  static _Atomic(const instruction_set *) known;
  const instruction_set *here = known;
  if (!here) known = here = chosen();
  return here;
}

/* Whether XLA only asks which version of its interface this was built for. */
static int asks_for_version(const XLA_FFI_CallFrame *frame) {
  if (!frame->extension_start || frame->extension_start->type != XLA_FFI_Extension_Metadata) return 0;
  XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)frame->extension_start)->metadata;
  metadata->api_version = (XLA_FFI_Api_Version){.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE,
                                                .major_version = XLA_FFI_API_MAJOR,
                                                .minor_version = XLA_FFI_API_MINOR};
  metadata->traits = 0;
  return 1;
}

static XLA_FFI_Error *handle(const XLA_FFI_CallFrame *frame, const signature *s, single_call *one) {
  if (asks_for_version(frame)) return NULL;
  call c = {.api = frame->api, .context = frame->ctx, .most_threads = INT64_MAX};
  call_arrays arrays;
  failure *error = take_arrays(&c, s, frame, &arrays);
  return error ? error : for_each_in_batch(&c, one, &arrays);
}

/* The handler of each kernel. */
#define TEXT(name, type, ...) #name ":" #type "[" #__VA_ARGS__ "] "
#define ARG(...) TEXT(__VA_ARGS__)
#define RESULT(...) TEXT(__VA_ARGS__)
#define OPTIONAL_RESULT(...) "?" TEXT(__VA_ARGS__)
#define HANDLER(name, table, arguments, results)                                           \
  static const signature signature_##name = {#name, arguments, results};                   \
  static failure *single_##name(const call *c, array *const *arrays, int is_double) {      \
    name##_arrays own;                                                                     \
    memcpy(&own, arrays, sizeof own);                                                      \
    (void)is_double;                                                                       \
    return (table)->name(c, &own);                                                         \
  }                                                                                        \
  static XLA_FFI_Error *handle_##name(XLA_FFI_CallFrame *frame) {                          \
    return handle(frame, &signature_##name, single_##name);                                \
  }
#define KERNEL(name, arguments, results) \
  HANDLER(name, is_double ? best()->doubles : best()->singles, arguments, results)
#define KERNEL_SINGLE(name, arguments, results) HANDLER(name, best()->singles, arguments, results)
#include "each_kernel.h"

/* The table, for Python. */
EXPORTED const kernel_entry natmix_kernels[] = {
#define KERNEL(name, arguments, results) {&signature_##name, handle_##name},
#include "each_kernel.h"
    {NULL, NULL}};

/* Which sources, and which version of XLA's interface, this was built from. */
EXPORTED const char natmix_sources[] = SOURCES;
EXPORTED const int natmix_ffi_version[] = {XLA_FFI_API_MAJOR, XLA_FFI_API_MINOR};
