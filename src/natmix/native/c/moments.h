/* Stein's sums. Included once per type.

   Of every component: sum_n w (x - m) v^T [D, D], then sum_n w v [D], then sum_n w c [C] with given columns c.
   Samples whose weight changes no digit of them are left out. */

#define SUB 256
/* Samples that are gathered at once. */

/* Task i: one chunk of the samples and COMPONENT_BLOCK components. partial[chunk][k] has D + 1 rows, filled up to whole
   vectors: the first D are of (x - m) v^T, the last of v; then come the sums of the columns. */
static void T(moments)(const void *data, int64_t task) {
  const weighted_samples *p = data;
  int64_t K = p->K, D = p->D, C = p->C, blocks = (K + COMPONENT_BLOCK - 1) / COMPONENT_BLOCK;
  int64_t width = (D + LANES - 1) / LANES * LANES, height = D + 1, each = height * width + C;
  int64_t k0 = task % blocks * COMPONENT_BLOCK, kb = K - k0 < COMPONENT_BLOCK ? K - k0 : COMPONENT_BLOCK, from, to;
  T(chunk)(p, task / blocks, &from, &to);
  const REAL *lc = p->log_components, *background = p->log_background, *top = p->top, *columns = p->columns;
  const REAL *x = p->x, *mean = p->mean, *v = p->v;
  REAL *partial = (REAL *)p->partial + (task / blocks * K + k0) * each;
  for (int64_t at = 0; at < kb * each; at++) partial[at] = 0;
  REAL *w = T(room)(SUB * (2 * COMPONENT_BLOCK + width + height)), *by_component = w + SUB * COMPONENT_BLOCK;
  REAL *right = by_component + SUB * COMPONENT_BLOCK, *left = right + SUB * width;
  int32_t list[SUB + 1];
  REAL tops[COMPONENT_BLOCK];
  for (int64_t k = 0; k < COMPONENT_BLOCK; k++) tops[k] = k < kb ? top[k0 + k] : 0;
  for (int64_t start = from; start < to; start += SUB) {
    int64_t size = to - start < SUB ? to - start : SUB;
    for (int64_t s = 0; s < size; s++) {
      int64_t n = start + s;
      for (int64_t k = 0; k < COMPONENT_BLOCK; k += LANES) {
        T(vec) value = T(part)(lc + n * K, k0 + k, K, n + 1 == p->N, (REAL)-INFINITY);
        value = p->valid[n] ? T(share)(value - background[n] - T(load)(tops + k)) : (T(vec)){0};
        T(store)(w + s * COMPONENT_BLOCK + k, value);
      }
      REAL *row = right + s * width;
      for (int64_t j = 0; j < D; j++) row[j] = v[n * D + j];
      for (int64_t j = D; j < width; j++) row[j] = 0;
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
        for (int64_t j = 0; j < D; j++) row[j] = weight * (at[j] - m[j]);
        row[D] = weight;
        for (int64_t c = 0; c < C; c++) sums[c] += weight * column[c];
      }
      if (samples) T(outer)(M, height, width, left, height, right, list, samples, 0);
    }
  }
  free(w);
}

/* The sums over all chunks of component k: out[k] has D rows of D, then v's D, then the columns. */
static void T(gather_moments)(const void *data, int64_t k) {
  const weighted_samples *p = data;
  int64_t K = p->K, D = p->D, C = p->C, width = (D + LANES - 1) / LANES * LANES, height = D + 1;
  int64_t each = height * width + C;
  const REAL *partial = p->partial;
  REAL *out = (REAL *)p->out + k * (height * D + C);
  for (int64_t chunk = 0; chunk < p->chunks; chunk++) {
    const REAL *M = partial + (chunk * K + k) * each;
    for (int64_t i = 0; i < height; i++)
      for (int64_t j = 0; j < D; j++) out[i * D + j] = (chunk ? out[i * D + j] : 0) + M[i * width + j];
    for (int64_t c = 0; c < C; c++) out[height * D + c] = (chunk ? out[height * D + c] : 0) + M[height * width + c];
  }
}
