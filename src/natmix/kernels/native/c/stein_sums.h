/* Stein's sums. Included once per type.

   Of every component: sum_n w (x - m) v^T [D, D], then sum_n w v [D], then sum_n w c [C] with given columns c.
   Samples whose weight is negligible are left out. */

#define SUB 256
/* Samples that are gathered at once. */

/* Task i: one chunk of the samples and `each` components. partial[chunk][k] has D + 1 rows, filled up to whole
   vectors: the first D are of (x - m) v^T, the last of v; then come the sums of the columns. */
static int T(stein_sums_block)(const void *data, int64_t task) {
  const T(weighting) *p = data;
  int64_t K = p->K, D = p->D, C = p->C, blocks = (K + p->each - 1) / p->each;
  int64_t width = T(whole)(D), height = D + 1, each = height * width + C;
  int64_t k0 = task % blocks * p->each, kb = K - k0 < p->each ? K - k0 : p->each, from, to;
  T(chunk)(p, task / blocks, &from, &to);
  const REAL *lc = p->log_components, *background = p->log_background, *top = p->top, *columns = p->columns;
  const REAL *x = p->x, *mean = p->mean, *v = p->v;
  REAL *partial = p->partial + (task / blocks * K + k0) * each;
  for (int64_t at = 0; at < kb * each; at++) partial[at] = 0;
  REAL *w = T(allocate)(SUB * (2 * COMPONENT_BLOCK + width + height));
  if (!w) return NO_MEMORY;
  REAL *by_component = w + SUB * COMPONENT_BLOCK;
  REAL *right = by_component + SUB * COMPONENT_BLOCK, *left = right + SUB * width;
  int32_t list[SUB + 1];
  REAL tops[COMPONENT_BLOCK];
  for (int64_t k = 0; k < COMPONENT_BLOCK; k++) tops[k] = k < kb ? top[k0 + k] : 0;
  for (int64_t start = from; start < to; start += SUB) {
    int64_t size = to - start < SUB ? to - start : SUB;
    for (int64_t s = 0; s < size; s++) {
      int64_t n = start + s;
      for (int64_t k = 0; k < kb; k += LANES) {
        T(vec) value = T(part)(lc + n * K, k0 + k, K, n + 1 == p->N, (REAL)-INFINITY);
        value = p->valid[n] ? T(share)(value - background[n] - T(load)(tops + k)) : (T(vec)){0};
        T(store)(w + s * COMPONENT_BLOCK + k, value);
      }
      if (p->each > 1) T(fill_row)(v + n * D, D, width, 1, right + s * width);
    }
    for (int64_t s = size * COMPONENT_BLOCK; s < SUB * COMPONENT_BLOCK; s++) w[s] = 0;
    T(transpose)(w, SUB, COMPONENT_BLOCK, COMPONENT_BLOCK, by_component, SUB);
    for (int64_t k = 0; k < kb; k++) {
      REAL *M = partial + k * each, *sums = M + height * width;
      const REAL *m = mean + (k0 + k) * D;
      const REAL *weights = by_component + k * SUB;
      int64_t samples = 0;
      for (int64_t s = 0; s < SUB; s += LANES) {
        T(ivec) matters = ~(T(ivec))(T(load)(weights + s) <= NEGLIGIBLE_SHARE);
        for (int i = 0; T(any)(matters) && i < LANES; i++) {
          list[samples] = (int32_t)(s + i);
          samples -= matters[i];
        }
      }
      for (int64_t s = 0; s < samples; s++) {
        REAL weight = weights[list[s]], *row = left + s * height;
        const REAL *at = x + (start + list[s]) * D, *column = columns + (start + list[s]) * C;
        if (p->each == 1) T(fill_row)(v + (start + list[s]) * D, D, width, 1, right + list[s] * width);
        for (int64_t j = 0; j < D; j++) row[j] = weight * (at[j] - m[j]);
        row[D] = weight;
        for (int64_t c = 0; c < C; c++) sums[c] += weight * column[c];
      }
      if (samples) T(outer)(M, width, height, width, left, height, right, width, list, samples, 0);
    }
  }
  free(w);
  return DONE;
}

/* Component k of Stein's sums in whitened coordinates, from those of all chunks: out[k] is the symmetric part of
   W sum_n w (x - m) v^T L, gradient[k] is L^T sum_n w v, sums[k] is sum_n w c. All are zero where the last are: columns
   are such that it takes weights for a sum. */
static int T(stein_sums_component)(const void *data, int64_t k) {
  const T(weighting) *p = data;
  int64_t K = p->K, D = p->D, C = p->C, width = T(whole)(D), height = D + 1;
  int64_t each = height * width + C, square = width * width;
  REAL *M = p->partial + k * each, *sums = M + height * width, *out = p->out + k * D * D;
  REAL *gradient = p->gradient + k * D;
  for (int64_t chunk = 1; chunk < p->chunks; chunk++) {
    const REAL *more = M + chunk * K * each;
    for (int64_t at = 0; at < each; at++) M[at] += more[at];
  }
  int nothing = 1;
  for (int64_t c = 0; c < C; c++) {
    p->sums[k * C + c] = sums[c];
    nothing = nothing && sums[c] == 0;
  }
  if (nothing) {
    for (int64_t i = 0; i < D * D; i++) out[i] = 0;
    for (int64_t i = 0; i < D; i++) gradient[i] = 0;
    return DONE;
  }
  REAL *lower = T(allocate)(3 * square + width);
  if (!lower) return NO_MEMORY;
  REAL *turned = lower + square, *product = turned + square;
  REAL *pulled = product + square;
  T(clear)(lower, 3 * square + width);
  T(lower_half)(p->W + k * D * D, D, width, lower);
  T(transposed)(lower, width, turned);
  T(times_upper)(M, turned, D, width, product);
  T(lower_half)(p->L + k * D * D, D, width, lower);
  for (int64_t i = 0; i < D; i++) T(add_first)(pulled, lower + i * width, M[D * width + i], i + 1);
  for (int64_t i = 0; i < D; i++) gradient[i] = pulled[i];
  T(times_lower)(product, lower, D, width, turned);
  T(transposed)(turned, width, lower);
  for (int64_t i = 0; i < D; i++)
    for (int64_t j = 0; j < D; j++) out[i * D + j] = (turned[i * width + j] + lower[i * width + j]) / 2;
  free(lower);
  return DONE;
}

static failure *T(stein_sums)(const call *c, const stein_sums_arrays *a) {
  enum { TASKS = 32, MEMORY = 1 << 26, LARGE = 1 << 15 }; /* at most; bytes for all sums, and of one component's */
  T(weighting) p = T(weighting_of)(a->log_components, a->count, a->hessian);
  p.log_background = a->log_background->data, p.valid = a->valid->data, p.top = a->top->data;
  p.columns = a->columns->data, p.C = a->columns->dims[1];
  p.x = a->x->data, p.mean = a->mean->data, p.v = a->v->data, p.D = a->x->dims[1];
  p.L = a->L->data, p.W = a->W->data, p.gradient = a->gradient->data, p.sums = a->sums->data;
  if (!p.K) return NULL;
  int64_t width = (p.D + 15) / 16 * 16;
  size_t one = ((p.D + 1) * width + p.C) * sizeof(REAL), all = p.K * one;
  p.each = one > LARGE ? 1 : COMPONENT_BLOCK;
  int64_t blocks = (p.K + p.each - 1) / p.each, chunks = blocks < TASKS ? TASKS / blocks : 1;
  if (chunks * all > MEMORY) chunks = all < MEMORY ? (int64_t)(MEMORY / all) : 1;
  if (chunks < p.chunks) p.chunks = chunks;
  p.partial = malloc(p.chunks * all + 1);
  if (!p.partial) return out_of_memory(c);
  failure *error = parallel(c, p.chunks * blocks, T(stein_sums_block), &p);
  if (!error) error = parallel(c, p.K, T(stein_sums_component), &p);
  free(p.partial);
  return error;
}
