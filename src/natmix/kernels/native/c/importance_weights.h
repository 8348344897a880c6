/* Sums with the importance weights of N x K pairs, which are formed where they are used. Included once per type.

   Rows of K numbers are read by whole vectors, also beyond their end: into the next row, which is there but
   for the last one. */

/* Components whose weights one task forms, at most. */
#ifndef COMPONENT_BLOCK
#define COMPONENT_BLOCK 16
#endif

/* Weights w = exp(log_components - log_background - top) [N, K] of the first `count` samples. */
typedef struct {
  int64_t N, K, C, D, count, chunks;
  int64_t each; /* components of one task, a divisor of COMPONENT_BLOCK */
  const REAL *log_components; /* [N, K] */
  const REAL *log_background; /* [N] */
  const uint8_t *valid;       /* [N] */
  const REAL *top;            /* [K] */
  const REAL *x, *mean, *v;   /* [N, D], [K, D], [N, D] */
  const REAL *L, *W;          /* [K, D, D] */
  const REAL *columns;        /* [N, C], or what each is multiplied with: [K] */
  REAL *partial;              /* sums of each chunk */
  REAL *out, *gradient, *sums; /* the last two of Stein's sums: [K, D], [K, C] */
} T(weighting);

/* Samples are shared among threads in chunks. */
static T(weighting) T(weighting_of)(const array *log_components, const array *count, array *out) {
  enum { MOST_CHUNKS = 16, CHUNK = 256 };
  T(weighting) p = {.N = log_components->dims[0], .K = log_components->dims[1], .log_components = log_components->data,
                    .out = out->data};
  p.count = used_samples(count, p.N);
  p.chunks = (p.count + CHUNK - 1) / CHUNK;
  if (p.chunks > MOST_CHUNKS) p.chunks = MOST_CHUNKS;
  if (p.chunks < 1) p.chunks = 1;
  return p;
}

/* Chunk i of the samples. */
static void T(chunk)(const T(weighting) *p, int64_t i, int64_t *from, int64_t *to) {
  int64_t size = (p->count + p->chunks - 1) / p->chunks;
  *from = i * size < p->count ? i * size : p->count;
  *to = *from + size < p->count ? *from + size : p->count;
}

/* Numbers k to k + LANES of a row of K, and `fill` beyond its end. */
static inline T(vec) T(part)(const REAL *row, int64_t k, int64_t K, int last, REAL fill) {
  int64_t some = K - k;
  if (some >= LANES) return T(load)(row + k);
  if (some <= 0) return T(all)(fill);
  if (last || some + K < LANES) return T(load_some)(row + k, some, fill);
  return T(choose)(T(first)(some), T(load)(row + k), T(all)(fill));
}

/* K numbers, and `fill` up to whole vectors. */
static void T(padded)(const REAL *from, int64_t K, REAL fill, REAL *to) {
  for (int64_t k = 0; k < T(whole)(K); k++) to[k] = k < K ? from[k] : fill;
}

static int T(largest_log_weights_chunk)(const void *data, int64_t i) {
  const T(weighting) *p = data;
  const REAL *lc = p->log_components, *background = p->log_background;
  int64_t K = p->K, from, to;
  T(chunk)(p, i, &from, &to);
  REAL *most = T(allocate)(T(whole)(K));
  if (!most) return NO_MEMORY;
  REAL none = (REAL)-INFINITY;
  for (int64_t k = 0; k < T(whole)(K); k++) most[k] = none;
  for (int64_t n = from; n < to; n++) {
    if (!p->valid[n]) continue;
    for (int64_t k = 0; k < K; k += LANES) {
      T(vec) l = T(part)(lc + n * K, k, K, n + 1 == p->N, none);
      T(store)(most + k, T(larger)(l - background[n], T(load)(most + k)));
    }
  }
  for (int64_t k = 0; k < K; k++) p->partial[i * K + k] = most[k];
  free(most);
  return DONE;
}

/* The parts of the samples are the chunks here; their largest weights go to the result. */
static failure *T(largest_log_weights)(const call *c, const largest_log_weights_arrays *a) {
  T(weighting) p = T(weighting_of)(a->log_components, a->count, a->largest);
  p.log_background = a->log_background->data, p.valid = a->valid->data, p.partial = a->largest->data;
  p.chunks = a->largest->dims[0];
  return parallel(c, p.chunks, T(largest_log_weights_chunk), &p);
}

/* sum_n w columns_n, and sum_n w^2 as one more column: partial[i][c][k]. */
static int T(weighted_sums_chunk)(const void *data, int64_t i) {
  const T(weighting) *p = data;
  const REAL *lc = p->log_components, *background = p->log_background, *columns = p->columns;
  int64_t K = p->K, C = p->C, stride = T(whole)(K), from, to;
  T(chunk)(p, i, &from, &to);
  REAL *top = T(allocate)((C + 2) * stride);
  if (!top) return NO_MEMORY;
  REAL *sums = top + stride;
  T(padded)(p->top, K, 0, top);
  for (int64_t k = 0; k < (C + 1) * stride; k++) sums[k] = 0;
  for (int64_t n = from; n < to; n++) {
    if (!p->valid[n]) continue;
    const REAL *column = columns + n * C;
    for (int64_t k = 0; k < K; k += LANES) {
      T(vec) l = T(part)(lc + n * K, k, K, n + 1 == p->N, (REAL)-INFINITY);
      T(vec) w = T(share)(l - background[n] - T(load)(top + k));
      REAL *at = sums + k;
      for (int64_t c = 0; c < C; c++, at += stride) T(store)(at, T(load)(at) + w * column[c]);
      T(store)(at, T(load)(at) + w * w);
    }
  }
  REAL *out = p->partial + i * (C + 1) * K;
  for (int64_t c = 0; c <= C; c++)
    for (int64_t k = 0; k < K; k++) out[c * K + k] = sums[c * stride + k];
  free(top);
  return DONE;
}

static failure *T(weighted_sums)(const call *c, const weighted_sums_arrays *a) {
  T(weighting) p = T(weighting_of)(a->log_components, a->count, a->sums);
  p.log_background = a->log_background->data, p.valid = a->valid->data, p.top = a->top->data;
  p.columns = a->columns->data, p.C = a->columns->dims[1], p.partial = a->sums->data;
  p.chunks = a->sums->dims[0];
  return parallel(c, p.chunks, T(weighted_sums_chunk), &p);
}

/* log sum_k exp(l + log weights) of the samples of one chunk. */
static int T(weighted_logsumexp_chunk)(const void *data, int64_t i) {
  const T(weighting) *p = data;
  const REAL *lc = p->log_components;
  int64_t K = p->K, from, to;
  T(chunk)(p, i, &from, &to);
  REAL *log_weights = T(allocate)(T(whole)(K));
  if (!log_weights) return NO_MEMORY;
  REAL none = (REAL)-INFINITY;
  T(padded)(p->columns, K, none, log_weights);
  for (int64_t n = from; n < to; n++) {
    const REAL *row = lc + n * K;
    int last = n + 1 == p->N;
    T(vec) most = T(all)(none), total = {0};
    REAL top = none;
    for (int64_t k = 0; k < K; k += LANES)
      most = T(larger)(T(part)(row, k, K, last, none) + T(load)(log_weights + k), most);
    for (int64_t j = 0; j < LANES; j++) top = !(most[j] <= top) ? most[j] : top;
    if (!(top - top == 0)) top = 0;
    for (int64_t k = 0; k < K; k += LANES)
      total += T(share)(T(part)(row, k, K, last, none) + T(load)(log_weights + k) - top);
    p->out[n] = top + LOG(T(sum)(total));
  }
  free(log_weights);
  return DONE;
}

static failure *T(weighted_logsumexp)(const call *c, const weighted_logsumexp_arrays *a) {
  T(weighting) p = T(weighting_of)(a->log_components, a->count, a->sums);
  p.columns = a->log_weights->data;
  clear_from(a->sums, p.count);
  return parallel(c, p.chunks, T(weighted_logsumexp_chunk), &p);
}

/* sum_k w factors_k of the samples of one chunk. */
static int T(sample_sums_chunk)(const void *data, int64_t i) {
  const T(weighting) *p = data;
  const REAL *lc = p->log_components, *background = p->log_background;
  int64_t K = p->K, stride = T(whole)(K), from, to;
  T(chunk)(p, i, &from, &to);
  REAL *top = T(allocate)(2 * stride);
  if (!top) return NO_MEMORY;
  REAL *factors = top + stride;
  T(padded)(p->top, K, 0, top);
  T(padded)(p->columns, K, 0, factors);
  for (int64_t n = from; n < to; n++) {
    T(vec) total = {0};
    for (int64_t k = 0; p->valid[n] && k < K; k += LANES) {
      T(vec) l = T(part)(lc + n * K, k, K, n + 1 == p->N, (REAL)-INFINITY);
      total += T(load)(factors + k) * T(share)(l - background[n] - T(load)(top + k));
    }
    p->out[n] = T(sum)(total);
  }
  free(top);
  return DONE;
}

static failure *T(sample_sums)(const call *c, const sample_sums_arrays *a) {
  T(weighting) p = T(weighting_of)(a->log_components, a->count, a->sums);
  p.log_background = a->log_background->data, p.valid = a->valid->data, p.top = a->top->data;
  p.columns = a->factors->data;
  clear_from(a->sums, p.count);
  return parallel(c, p.chunks, T(sample_sums_chunk), &p);
}

