#include "signature.h"

#include <stdio.h>
#include <string.h>

/* One array of a signature. */
typedef struct {
  char name[32], type[8], sizes[48];
  int optional, open; /* whether it ends with ..., any further sizes */
  int64_t rank;       /* without those */
} declaration;

/* What the declarations so far say about the letters and types of a call. */
typedef struct {
  const call *c;
  const char *kernel;
  int64_t size[26]; /* of each letter; -1 is not known yet */
  XLA_FFI_DataType real, any;
  const array *rest; /* the first with further sizes */
  int64_t rest_rank;
  call_arrays *out;
} matching;

/* Copies up to one of the characters in `end`, which is left out; returns what follows it. */
static const char *copy_to(const char *from, const char *end, char *to, size_t size) {
  size_t length = strcspn(from, end), kept = length < size ? length : size - 1;
  memcpy(to, from, kept);
  to[kept] = 0;
  return from + length + (from[length] != 0);
}

/* The next declaration of a text; returns what follows it, or NULL at the end. */
static const char *next(const char *text, declaration *d) {
  text += strspn(text, " ");
  if (!*text) return NULL;
  d->optional = *text == '?';
  text = copy_to(text + d->optional, ":", d->name, sizeof d->name);
  text = copy_to(text, "[", d->type, sizeof d->type);
  text = copy_to(text, "]", d->sizes, sizeof d->sizes);
  d->rank = d->sizes[0] != 0;
  for (const char *at = d->sizes; *at; at++) d->rank += *at == ',';
  d->open = strstr(d->sizes, "...") != NULL;
  d->rank -= d->open;
  return text;
}

static int64_t number_of(const char *text) {
  declaration d;
  int64_t n = 0;
  while ((text = next(text, &d))) n++;
  return n;
}

static const char *type_name(XLA_FFI_DataType type) {
  switch (type) {
    case XLA_FFI_DataType_PRED: return "bool";
    case XLA_FFI_DataType_S32: return "int32";
    case XLA_FFI_DataType_S64: return "int64";
    case XLA_FFI_DataType_U32: return "uint32";
    case XLA_FFI_DataType_F16: return "float16";
    case XLA_FFI_DataType_BF16: return "bfloat16";
    case XLA_FFI_DataType_F32: return "float32";
    case XLA_FFI_DataType_F64: return "float64";
    default: return "another type";
  }
}

static XLA_FFI_DataType fixed_type(const char *type) {
  if (!strcmp(type, "F32")) return XLA_FFI_DataType_F32;
  if (!strcmp(type, "S32")) return XLA_FFI_DataType_S32;
  if (!strcmp(type, "U32")) return XLA_FFI_DataType_U32;
  if (!strcmp(type, "BOOL")) return XLA_FFI_DataType_PRED;
  return XLA_FFI_DataType_INVALID;
}

static failure *match_type(matching *m, const declaration *d, const array *a) {
  int is_real = a->dtype == XLA_FFI_DataType_F32 || a->dtype == XLA_FFI_DataType_F64;
  XLA_FFI_DataType *common = !strcmp(d->type, "T") ? &m->real : !strcmp(d->type, "ANY") ? &m->any : NULL;
  XLA_FFI_DataType wanted = common ? *common : fixed_type(d->type);
  if (common == &m->real && wanted == XLA_FFI_DataType_INVALID && !is_real)
    return invalid(m->c, "natmix_%s: %s must be of type float32 or float64, got %s.", m->kernel, d->name,
                   type_name(a->dtype));
  if (common == &m->any && !size_of(a))
    return invalid(m->c, "natmix_%s: %s is of a type that the kernel does not know.", m->kernel, d->name);
  if (common && wanted == XLA_FFI_DataType_INVALID) wanted = *common = a->dtype;
  if (a->dtype == wanted) return NULL;
  return invalid(m->c, "natmix_%s: %s must be of type %s%s, got %s.", m->kernel, d->name, type_name(wanted),
                 common ? " like the arrays before it" : "", type_name(a->dtype));
}

/* The size that a declaration has at `text`: a letter whose number may not be known yet plus a constant, or a
   constant; returns what follows. */
static const char *size_at(const char *text, int *letter, int64_t *plus) {
  *letter = -1, *plus = 0;
  for (; *text && *text != ','; text++) {
    if (*text >= 'A' && *text <= 'Z') *letter = *text - 'A';
    if (*text >= '0' && *text <= '9') *plus = 10 * *plus + (*text - '0');
  }
  return *text ? text + 1 : text;
}

static failure *wrong_size(const matching *m, const declaration *d, const array *a) {
  char wanted[128] = "", got[128] = "";
  int64_t batch = m->out->batch_rank, plus;
  const char *text = d->sizes;
  size_t used = 0, filled = 0;
  for (int64_t i = 0; i < d->rank && used < sizeof wanted && filled < sizeof got; i++) {
    int letter;
    text = size_at(text, &letter, &plus);
    const char *comma = i ? ", " : "";
    if (letter >= 0 && m->size[letter] < 0)
      used += snprintf(wanted + used, sizeof wanted - used, "%s%c", comma, 'A' + letter);
    else
      used += snprintf(wanted + used, sizeof wanted - used, "%s%lld", comma,
                       (long long)(plus + (letter < 0 ? 0 : m->size[letter])));
    filled += snprintf(got + filled, sizeof got - filled, "%s%lld", comma, (long long)a->dims[batch + i]);
  }
  return invalid(m->c, "natmix_%s: %s must have the shape [%s] = [%s], got [%s].", m->kernel, d->name, d->sizes,
                 wanted, got);
}

static failure *match_sizes(matching *m, const declaration *d, const array *a) {
  int64_t batch = m->out->batch_rank, plus;
  const char *text = d->sizes;
  for (int64_t i = 0; i < d->rank; i++) {
    int letter;
    text = size_at(text, &letter, &plus);
    int64_t size = a->dims[batch + i] - plus;
    if (letter >= 0 && m->size[letter] < 0 && size >= 0) m->size[letter] = size;
    if (size != (letter < 0 ? 0 : m->size[letter])) return wrong_size(m, d, a);
  }
  if (!d->open) return NULL;
  int64_t first = batch + d->rank;
  if (!m->rest) m->rest = a, m->rest_rank = first;
  int same = a->rank - first == m->rest->rank - m->rest_rank;
  for (int64_t i = 0; same && first + i < a->rank; i++) same = a->dims[first + i] == m->rest->dims[m->rest_rank + i];
  if (same) return NULL;
  return invalid(m->c, "natmix_%s: %s must have the same further sizes as the arrays before it.", m->kernel, d->name);
}

/* The dimensions in front: those of the first result, or 1 for an argument that all elements of the batch share. */
static failure *match_batch(const matching *m, const declaration *d, const array *a, const array *first, int result) {
  for (int64_t i = 0; i < m->out->batch_rank; i++)
    if (a->dims[i] != first->dims[i] && (result || a->dims[i] != 1))
      return invalid(m->c, "natmix_%s: %s has a batch of %lld, the first result one of %lld.", m->kernel, d->name,
                     (long long)a->dims[i], (long long)first->dims[i]);
  return NULL;
}

static failure *match(matching *m, const declaration *d, const array *a, const array *first, int result) {
  int64_t rank = a->rank - m->out->batch_rank;
  if (d->open ? rank < d->rank : rank != d->rank)
    return invalid(m->c, "natmix_%s: %s must have %lld dimensions [%s]%s, got %lld.", m->kernel, d->name,
                   (long long)d->rank, d->sizes, m->out->batch_rank ? " after those of the batch" : "",
                   (long long)rank);
  failure *error = match_type(m, d, a);
  if (!error) error = match_sizes(m, d, a);
  return error ? error : match_batch(m, d, a, first, result);
}

/* Dimensions that the first array of a known rank has more than the table says. */
static int64_t batch_rank(const char *text, array *const *arrays) {
  declaration d;
  for (int64_t i = 0; (text = next(text, &d)); i++)
    if (!d.open) return arrays[i]->rank - d.rank;
  return 0;
}

static failure *wrong_number(const matching *m, const char *what, int64_t wanted, int64_t got) {
  return invalid(m->c, "natmix_%s takes %lld %s, got %lld.", m->kernel, (long long)wanted, what, (long long)got);
}

failure *take_arrays(const call *c, const signature *s, const XLA_FFI_CallFrame *frame, call_arrays *out) {
  matching m = {.c = c, .kernel = s->kernel, .out = out};
  memset(m.size, -1, sizeof m.size);
  memset(out, 0, sizeof *out);
  int64_t arguments = number_of(s->arguments), results = number_of(s->results), given = frame->rets.size;
  out->number = arguments + results;
  if (frame->args.size != arguments) return wrong_number(&m, "arguments", arguments, frame->args.size);
  if (given < 1 || given > results) return wrong_number(&m, "results", results, given);
  if (out->number > MOST_ARRAYS) return wrong_number(&m, "arrays at most", MOST_ARRAYS, out->number);
  for (int64_t i = 0; i < arguments; i++) {
    if (frame->args.types[i] != XLA_FFI_ArgType_BUFFER) return invalid(c, "natmix_%s takes arrays.", s->kernel);
    out->arrays[i] = frame->args.args[i];
  }
  for (int64_t i = 0; i < given; i++) out->arrays[arguments + i] = frame->rets.rets[i];
  out->batch_rank = batch_rank(s->arguments, out->arrays);
  const array *first = out->arrays[arguments];
  if (out->batch_rank < 0 || first->rank < out->batch_rank) out->batch_rank = 0; /* a rank is wrong, which is said below */
  declaration d;
  const char *text = s->arguments;
  for (int64_t i = 0; i < out->number; i++) {
    if (i == arguments) text = s->results;
    text = next(text, &d);
    if (!out->arrays[i] && d.optional) continue;
    if (!out->arrays[i]) return wrong_number(&m, "results", results, given);
    failure *error = match(&m, &d, out->arrays[i], first, i >= arguments);
    if (error) return error;
  }
  out->is_double = m.real == XLA_FFI_DataType_F64;
  return NULL;
}
