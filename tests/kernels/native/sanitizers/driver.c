/* Calls every kernel of a library as XLA does, on several threads, with arrays of exactly the sizes that the table
   says: for a sanitizer to find what reads or writes beyond them, or twice at once. See run.py.

   Every kernel is called with reasonable numbers and with wild ones, with arrays that do not fit, which must be
   refused, and without memory, which must be an error. Usage: driver LAST_DIMENSION STEP */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "signature.h"

extern const kernel_entry natmix_kernels[];

enum { THREADS = 4, MOST_RANK = 8, MOST_HELPERS = 4096, MOST_FEATURE_DIMENSIONS = 20 };

/* Memory: the allocation with number `failing` fails, if it is not 0. */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t number, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);

static atomic_int allocations, failing;

static int fails(void) { return failing && atomic_fetch_add(&allocations, 1) + 1 == failing; }
void *__wrap_malloc(size_t bytes) { return fails() ? NULL : __real_malloc(bytes); }
void *__wrap_calloc(size_t number, size_t bytes) { return fails() ? NULL : __real_calloc(number, bytes); }
void *__wrap_aligned_alloc(size_t alignment, size_t bytes) {
  return fails() ? NULL : __real_aligned_alloc(alignment, bytes);
}

/* XLA's side of the interface: errors are messages, and every task has a thread of its own. */
static pthread_t helpers[MOST_HELPERS];
static atomic_int helping, busy;

static failure *create(XLA_FFI_Error_Create_Args *args) {
  char *message = __real_malloc(strlen(args->message) + 1);
  return (failure *)strcpy(message, args->message);
}

static void destroy(XLA_FFI_Error_Destroy_Args *args) { free(args->error); }

static failure *num_threads(XLA_FFI_ThreadPool_NumThreads_Args *args) {
  *args->num_threads = THREADS;
  return NULL;
}

typedef struct {
  XLA_FFI_Task *task;
  void *data;
} scheduled;

static void *begin(void *data) {
  scheduled own = *(scheduled *)data;
  free(data);
  own.task(own.data);
  return NULL;
}

static failure *schedule(XLA_FFI_ThreadPool_Schedule_Args *args) {
  int place = atomic_fetch_add(&helping, 1);
  scheduled *own = __real_malloc(sizeof *own);
  *own = (scheduled){args->task, args->data};
  if (place >= MOST_HELPERS || busy || pthread_create(helpers + place, NULL, begin, own)) {
    atomic_fetch_sub(&helping, 1);
    free(own);
    XLA_FFI_Error_Create_Args error = {.message = "The pool is busy."};
    return create(&error);
  }
  return NULL;
}

static const XLA_FFI_Api api = {.struct_size = sizeof api,
                                .XLA_FFI_Error_Create = create,
                                .XLA_FFI_Error_Destroy = destroy,
                                .XLA_FFI_ThreadPool_NumThreads = num_threads,
                                .XLA_FFI_ThreadPool_Schedule = schedule};

/* Arrays. */
typedef struct {
  array arrays[MOST_ARRAYS];
  void *values[MOST_ARRAYS];
  int64_t dims[MOST_ARRAYS][MOST_RANK];
  XLA_FFI_ArgType types[MOST_ARRAYS];
  int arguments, results;
} arrays_of_call;

typedef struct {
  int64_t size[26];
  int is_double, batch_rank, wild;
  int64_t batch[2], rest[2];
} setting;

static uint64_t seed = 1;

static uint64_t random_bits(void) {
  seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
  return seed;
}

static int64_t below(int64_t n) { return n > 0 ? (int64_t)(random_bits() % (uint64_t)n) : 0; }

static double real_number(int wild) {
  static const double extremes[] = {NAN, INFINITY, -INFINITY, 1e30, -1e30, 1e-40, 0, 3e38};
  if (wild && below(6) == 0) return extremes[below(8)];
  return 4 * ((double)below(1 << 20) / (1 << 20) - 0.5);
}

static int32_t integer(const char *name, const setting *s) {
  int64_t N = s->size['N' - 'A'], K = s->size['K' - 'A'], R = s->size['R' - 'A'], S = s->size['S' - 'A'];
  if (s->wild && below(4) == 0) return (int32_t)random_bits();
  if (!strcmp(name, "count")) return (int32_t)(below(3) ? N : below(N + 2));
  if (!strcmp(name, "start")) return (int32_t)below(S < R ? S : R);
  if (!strcmp(name, "stride")) return (int32_t)below(R);
  if (!strcmp(name, "size")) return (int32_t)(1 + below(2 * R));
  return (int32_t)below(K);
}

static XLA_FFI_DataType type_of(const char *type, const setting *s) {
  if (!strcmp(type, "S32")) return XLA_FFI_DataType_S32;
  if (!strcmp(type, "U32")) return XLA_FFI_DataType_U32;
  if (!strcmp(type, "BOOL")) return XLA_FFI_DataType_PRED;
  if (!strcmp(type, "F32")) return XLA_FFI_DataType_F32;
  return s->is_double ? XLA_FFI_DataType_F64 : XLA_FFI_DataType_F32;
}

static void fill(array *a, const char *name, const setting *s) {
  int64_t numbers = numbers_from(a, 0);
  a->data = malloc(numbers * size_of(a));
  for (int64_t i = 0; i < numbers; i++) {
    if (a->dtype == XLA_FFI_DataType_F64) ((double *)a->data)[i] = real_number(s->wild);
    if (a->dtype == XLA_FFI_DataType_F32) ((float *)a->data)[i] = (float)real_number(s->wild);
    if (a->dtype == XLA_FFI_DataType_S32) ((int32_t *)a->data)[i] = integer(name, s);
    if (a->dtype == XLA_FFI_DataType_U32) ((uint32_t *)a->data)[i] = (uint32_t)random_bits();
    if (a->dtype == XLA_FFI_DataType_PRED) ((uint8_t *)a->data)[i] = (uint8_t)(below(5) > 0);
  }
}

/* The sizes of a text such as "K, D + 1" or "S, ...". */
static int add_sizes(const char *text, const setting *s, int64_t *dims, int rank) {
  while (*text) {
    int64_t size = 0;
    int open = 0;
    for (; *text && *text != ','; text++) {
      if (*text >= 'A' && *text <= 'Z') size += s->size[*text - 'A'];
      if (*text >= '0' && *text <= '9') {
        size += strtol(text, (char **)&text, 10);
        text--;
      }
      open |= *text == '.';
    }
    if (*text) text++;
    if (!open) dims[rank++] = size;
    else dims[rank++] = s->rest[0], dims[rank++] = s->rest[1];
  }
  return rank;
}

/* Adds the arrays of a text to a call; results have the whole batch, arguments sometimes share one. */
static int add_arrays(const char *text, const setting *s, arrays_of_call *call, int first, int result) {
  char name[32], type[8], sizes[48];
  int read, i = first;
  for (; *text; text += read, i++) {
    int mark = *text == '?';
    sizes[0] = 0;
    if (sscanf(text + mark, "%31[^:]:%7[^[][%47[^]]] %n", name, type, sizes, &read) < 3)
      sscanf(text + mark, "%31[^:]:%7[^[][] %n", name, type, &read);
    read += mark;
    array *a = call->arrays + i;
    int rank = 0, shared = !result && below(3) == 0;
    for (int b = 0; b < s->batch_rank; b++) call->dims[i][rank++] = shared ? 1 : s->batch[b];
    *a = (array){.struct_size = sizeof *a, .dtype = type_of(type, s), .dims = call->dims[i]};
    a->rank = add_sizes(sizes, s, call->dims[i], rank);
    fill(a, name, s);
    call->values[i] = a;
    call->types[i] = XLA_FFI_ArgType_BUFFER;
  }
  return i - first;
}

static void build(const signature *kernel, const setting *s, arrays_of_call *call) {
  call->arguments = add_arrays(kernel->arguments, s, call, 0, 0);
  call->results = add_arrays(kernel->results, s, call, call->arguments, 1);
  for (int i = call->arguments + call->results; i < MOST_ARRAYS; i++) call->arrays[i].data = NULL;
}

static void discard(arrays_of_call *call) {
  for (int i = 0; i < call->arguments + call->results; i++) free(call->arrays[i].data);
}

static failure *run(const kernel_entry *kernel, arrays_of_call *call, int results) {
  XLA_FFI_CallFrame frame = {.struct_size = sizeof frame, .api = &api, .stage = XLA_FFI_ExecutionStage_EXECUTE};
  frame.args = (XLA_FFI_Args){.size = call->arguments, .types = call->types, .args = call->values};
  frame.rets = (XLA_FFI_Rets){.size = results, .rets = call->values + call->arguments};
  helping = 0;
  failure *error = kernel->handler(&frame);
  for (int i = 0; i < helping; i++) pthread_join(helpers[i], NULL);
  return error;
}

/* Checks. */
static long calls, errors;

static void wrong(const kernel_entry *kernel, const char *what) {
  fprintf(stderr, "natmix_%s: %s\n", kernel->signature->kernel, what);
  exit(1);
}

/* Whether it was an error; it is forgotten. */
static int is_error(failure *error) {
  int found = error != NULL;
  calls++, errors += found;
  free(error);
  return found;
}

/* A wrong type, a dimension too few, or a wrong size, which only a letter that no other array has may have. */
static void check_refusals(const kernel_entry *kernel, arrays_of_call *call) {
  for (int i = 0; i < call->arguments + call->results; i++) {
    array *a = call->arrays + i, before = *a;
    a->dtype = XLA_FFI_DataType_U8;
    if (!is_error(run(kernel, call, call->results))) wrong(kernel, "a wrong type was taken");
    *a = before;
    if (a->rank) {
      a->rank--;
      if (!is_error(run(kernel, call, call->results))) wrong(kernel, "a wrong rank was taken");
      *a = before;
    }
    for (int64_t d = 0; d < a->rank; d++)
      if (a->dims[d] > 1) {
        a->dims[d]--;
        is_error(run(kernel, call, call->results));
        a->dims[d]++;
      }
  }
  call->arguments--;
  if (!is_error(run(kernel, call, call->results))) wrong(kernel, "a missing argument was not noticed");
  call->arguments++;
}

/* Every allocation fails once: an error, or it is done without. Whether there was such an error. */
static int check_memory(const kernel_entry *kernel, arrays_of_call *call) {
  int said = 0;
  for (int n = 1, all = 0; !all; n++) {
    allocations = 0, failing = n;
    failure *error = run(kernel, call, call->results);
    failing = 0;
    all = allocations < n;
    said |= error && strstr((char *)error, "could not allocate memory") != NULL;
    is_error(error);
  }
  return said;
}

static setting random_setting(int64_t D, int features) {
  setting s = {.is_double = (int)below(2), .wild = (int)below(2), .batch_rank = (int)below(3)};
  int64_t H = 1 + below(3);
  for (int i = 0; i < 26; i++) s.size[i] = 1 + below(20);
  s.size['D' - 'A'] = D;
  s.size['K' - 'A'] = H * (1 + below(below(4) ? 7 : 14));
  s.size['H' - 'A'] = H;
  s.size['N' - 'A'] = 1 + below(D < 16 && !features ? 700 : 150);
  s.size['C' - 'A'] = 1 + below(3);
  s.size['P' - 'A'] = 1 + below(16);
  s.size['R' - 'A'] = 1 + below(140);
  s.size['F' - 'A'] = D * (D + 3) / 2;
  for (int i = 0; i < 2; i++) s.batch[i] = 1 + below(3), s.rest[i] = 1 + below(3);
  return s;
}

int main(int argc, char **argv) {
  int64_t last = argc > 1 ? atoll(argv[1]) : 140, step = argc > 2 ? atoll(argv[2]) : 1;
  long said = 0;
  for (const kernel_entry *kernel = natmix_kernels; kernel->signature; kernel++) {
    int features = strstr(kernel->signature->results, "F]") != NULL;
    long done = 0, out_of_memory = 0, before = calls, before_errors = errors;
    for (int64_t D = 1; D <= (features && last > MOST_FEATURE_DIMENSIONS ? MOST_FEATURE_DIMENSIONS : last);
         D += features ? 1 : step) {
      setting s = random_setting(D, features);
      arrays_of_call call = {0};
      build(kernel->signature, &s, &call);
      busy = below(5) == 0;
      int refused = is_error(run(kernel, &call, call.results));
      done += !refused;
      if (refused && !s.wild && !strstr(kernel->signature->arguments, "start")) wrong(kernel, "was refused");
      if (D % 10 == 1) {
        setting small = s;
        small.batch_rank = small.wild = 0;
        discard(&call);
        build(kernel->signature, &small, &call);
        check_refusals(kernel, &call);
        out_of_memory += check_memory(kernel, &call);
      }
      if (strchr(kernel->signature->results, '?')) is_error(run(kernel, &call, call.results - 1));
      discard(&call);
    }
    if (!done) wrong(kernel, "no call succeeded");
    printf("  %-32s %6ld calls, %6ld errors, %3ld of memory\n", kernel->signature->kernel, calls - before,
           errors - before_errors, out_of_memory);
    said += out_of_memory;
  }
  if (!said) {
    fprintf(stderr, "No kernel said that memory was missing.\n");
    return 1;
  }
  return 0;
}
