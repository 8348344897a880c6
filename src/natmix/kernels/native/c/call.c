#include "call.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

size_t size_of(const array *a) {
  switch (a->dtype) {
    case XLA_FFI_DataType_PRED:
    case XLA_FFI_DataType_S8:
    case XLA_FFI_DataType_U8: return 1;
    case XLA_FFI_DataType_S16:
    case XLA_FFI_DataType_U16:
    case XLA_FFI_DataType_F16:
    case XLA_FFI_DataType_BF16: return 2;
    case XLA_FFI_DataType_S32:
    case XLA_FFI_DataType_U32:
    case XLA_FFI_DataType_F32: return 4;
    case XLA_FFI_DataType_S64:
    case XLA_FFI_DataType_U64:
    case XLA_FFI_DataType_F64:
    case XLA_FFI_DataType_C64: return 8;
    case XLA_FFI_DataType_C128: return 16;
    default: return 0;
  }
}

int64_t numbers_from(const array *a, int64_t first) {
  int64_t numbers = 1;
  for (int64_t i = first; i < a->rank; i++) numbers *= a->dims[i];
  return numbers;
}

int64_t used_samples(const array *count, int64_t N) {
  int64_t n = *(const int32_t *)count->data;
  return n < 0 ? 0 : n < N ? n : N;
}

void clear_from(array *a, int64_t row) {
  size_t each = numbers_from(a, 1) * size_of(a), bytes = (a->dims[0] - row) * each;
  if (bytes) memset((char *)a->data + row * each, 0, bytes);
}

static failure *failed(const call *c, const char *message, XLA_FFI_Error_Code code) {
  XLA_FFI_Error_Create_Args create = {
      .struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE, .message = message, .errc = code};
  return c->api->XLA_FFI_Error_Create(&create);
}

failure *invalid(const call *c, const char *format, ...) {
  char message[1024];
  va_list values;
  va_start(values, format);
  vsnprintf(message, sizeof message, format, values);
  va_end(values);
  return failed(c, message, XLA_FFI_Error_Code_INVALID_ARGUMENT);
}

failure *out_of_memory(const call *c) {
  return failed(c, "natmix's native kernels could not allocate memory.", XLA_FFI_Error_Code_RESOURCE_EXHAUSTED);
}

void forget(const XLA_FFI_Api *api, failure *error) {
  XLA_FFI_Error_Destroy_Args destroy = {.struct_size = XLA_FFI_Error_Destroy_Args_STRUCT_SIZE, .error = error};
  if (error) api->XLA_FFI_Error_Destroy(&destroy);
}
