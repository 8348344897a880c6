/* What log densities of points x given rows of data have in common. Included once per type. */

/* Points that one task takes, of those with minibatches. */
#ifndef POINTS
#define POINTS 8
#endif

/* N points x [N, D] and the R rows of data that their log densities are about: all of them for each point, or the
   `size` rows (start + stride j) mod R of a minibatch of its own. */
typedef struct {
  int64_t N, R, D, size, count;
  const REAL *x, *rows;          /* [N, D], [R, .] */
  const REAL *quality;           /* [R] */
  const REAL *precision;         /* of the prior */
  const int32_t *start, *stride; /* [N] */
  REAL *value, *gradient;        /* [N], [N, D]; no gradient if it is NULL */
} T(posterior);

static T(posterior) T(posterior_of)(const array *x, const array *rows, const array *count, array *value,
                                    array *gradient) {
  T(posterior) p = {.N = x->dims[0], .R = rows->dims[0], .D = x->dims[1], .x = x->data, .rows = rows->data};
  p.count = used_samples(count, p.N);
  p.value = value->data;
  clear_from(value, p.count);
  if (gradient) {
    p.gradient = gradient->data;
    clear_from(gradient, p.count);
  }
  return p;
}

/* Adds minibatches, whose rows must be among the data's. */
static failure *T(add_minibatches)(const call *c, T(posterior) * p, const array *start, const array *stride,
                                   const array *size) {
  p->start = start->data, p->stride = stride->data, p->size = *(const int32_t *)size->data;
  if (p->size < 1) return invalid(c, "The minibatches of a posterior have at least one row, got %lld.", (long long)p->size);
  for (int64_t n = 0; n < p->count; n++)
    if (p->start[n] < 0 || p->start[n] >= p->R || p->stride[n] < 0 || p->stride[n] > p->R)
      return invalid(c, "The minibatch of point %lld starts at row %d with the stride %d, of %lld rows.", (long long)n,
                     (int)p->start[n], (int)p->stride[n], (long long)p->R);
  return NULL;
}

static int64_t T(groups_of)(const T(posterior) * p) { return (p->count + POINTS - 1) / POINTS; }
