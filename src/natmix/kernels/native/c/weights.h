/* Sums with the weights of N x K pairs, which are formed where they are used. Included once per type.

   Rows of K numbers are read by whole vectors, also beyond their end: into the next row, which is there but
   for the last one. */

/* Chunk i of the samples. */
static void T(chunk)(const weighted_samples *p, int64_t i, int64_t *from, int64_t *to) {
  int64_t size = (p->count + p->chunks - 1) / p->chunks;
  *from = i * size < p->count ? i * size : p->count;
  *to = *from + size < p->count ? *from + size : p->count;
}

static int64_t T(whole)(int64_t K) { return (K + LANES - 1) / LANES * LANES; }

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

static void T(largest)(const void *data, int64_t i) {
  const weighted_samples *p = data;
  const REAL *lc = p->log_components, *background = p->log_background;
  int64_t K = p->K, from, to;
  T(chunk)(p, i, &from, &to);
  REAL *most = T(room)(T(whole)(K)), none = (REAL)-INFINITY;
  for (int64_t k = 0; k < T(whole)(K); k++) most[k] = none;
  for (int64_t n = from; n < to; n++) {
    if (!p->valid[n]) continue;
    for (int64_t k = 0; k < K; k += LANES) {
      T(vec) l = T(part)(lc + n * K, k, K, n + 1 == p->N, none);
      T(store)(most + k, T(larger)(l - background[n], T(load)(most + k)));
    }
  }
  for (int64_t k = 0; k < K; k++) ((REAL *)p->partial)[i * K + k] = most[k];
  free(most);
}

/* sum_n w columns_n, and sum_n w^2 as one more column: partial[i][c][k]. */
static void T(sums)(const void *data, int64_t i) {
  const weighted_samples *p = data;
  const REAL *lc = p->log_components, *background = p->log_background, *columns = p->columns;
  int64_t K = p->K, C = p->C, stride = T(whole)(K), from, to;
  T(chunk)(p, i, &from, &to);
  REAL *top = T(room)((C + 2) * stride), *sums = top + stride;
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
  REAL *out = (REAL *)p->partial + i * (C + 1) * K;
  for (int64_t c = 0; c <= C; c++)
    for (int64_t k = 0; k < K; k++) out[c * K + k] = sums[c * stride + k];
  free(top);
}

/* log sum_k exp(l + log weights) of the samples of one chunk. */
static void T(log_sums)(const void *data, int64_t i) {
  const weighted_samples *p = data;
  const REAL *lc = p->log_components;
  int64_t K = p->K, from, to;
  T(chunk)(p, i, &from, &to);
  REAL *log_weights = T(room)(T(whole)(K)), none = (REAL)-INFINITY;
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
    ((REAL *)p->out)[n] = top + LOG(T(sum)(total));
  }
  free(log_weights);
}

/* sum_k w factors_k of the samples of one chunk. */
static void T(sample_sums)(const void *data, int64_t i) {
  const weighted_samples *p = data;
  const REAL *lc = p->log_components, *background = p->log_background;
  int64_t K = p->K, stride = T(whole)(K), from, to;
  T(chunk)(p, i, &from, &to);
  REAL *top = T(room)(2 * stride), *factors = top + stride;
  T(padded)(p->top, K, 0, top);
  T(padded)(p->columns, K, 0, factors);
  for (int64_t n = from; n < to; n++) {
    T(vec) total = {0};
    for (int64_t k = 0; p->valid[n] && k < K; k += LANES) {
      T(vec) l = T(part)(lc + n * K, k, K, n + 1 == p->N, (REAL)-INFINITY);
      total += T(load)(factors + k) * T(share)(l - background[n] - T(load)(top + k));
    }
    ((REAL *)p->out)[n] = T(sum)(total);
  }
  free(top);
}
