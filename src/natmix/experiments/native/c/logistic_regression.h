/* sum_r log sigmoid(s_r . x) - precision |x|^2 / 2 and its gradient sum_r sigmoid(-s_r . x) s_r - precision x.
   Included once per type.

   log sigmoid(z) = min(z, 0) - log(1 + exp(-|z|)). The logarithms of GROUP rows are that of one product, which
   is at most 2^GROUP. */

#define GROUP 64

/* Adds min(z, 0) and multiplies 1 + exp(-|z|) up; returns the slope sigmoid(-z). Where z is NaN `low` is too, and
   nothing else need be. */
static inline T(vec) T(log_sigmoid)(T(vec) z, T(vec) * low, T(vec) * product) {
  T(vec) minus = (T(vec))((T(ivec))z | (T(ivec))T(all)((REAL)-0.0));
  T(vec) e = T(exp_within)(T(at_least)(minus, EXP_LOW)), above = e + 1;
  *low += T(at_most)(z, 0);
  *product *= above;
  return T(choose)((T(ivec))(z >= 0), e, T(all)(1)) / above;
}

/* Rows i to i + rows of the data for a tile of points. */
#define LOGISTIC_ROWS(rows)                                                 \
  T(vec) z[rows][VECTORS] = {{{0}}};                                        \
  for (int64_t j = 0; j < D; j++) {                                         \
    T(vec) at[VECTORS];                                                     \
    for (int v = 0; v < VECTORS; v++) at[v] = T(load)(x + j * TILE + v * LANES); \
    for (int r = 0; r < rows; r++)                                          \
      for (int v = 0; v < VECTORS; v++) z[r][v] += S[(i + r) * D + j] * at[v]; \
  }                                                                         \
  UNROLL for (int r = 0; r < rows; r++)                                     \
    UNROLL for (int v = 0; v < VECTORS; v++) z[r][v] = T(log_sigmoid)(z[r][v], &low[v], &product[v]); \
  for (int64_t j = 0; with_gradient && j < D; j++) {                        \
    T(vec) at[VECTORS];                                                     \
    for (int v = 0; v < VECTORS; v++) at[v] = T(load)(g + j * TILE + v * LANES); \
    for (int r = 0; r < rows; r++)                                          \
      for (int v = 0; v < VECTORS; v++) at[v] += S[(i + r) * D + j] * z[r][v]; \
    for (int v = 0; v < VECTORS; v++) T(store)(g + j * TILE + v * LANES, at[v]); \
  }

/* A tile of points, all rows. */
static inline __attribute__((always_inline)) int T(logistic_tile)(const T(posterior) *p, int64_t tile,
                                                                   int with_gradient) {
  const REAL *S = p->rows, precision = *p->precision;
  int64_t D = p->D, R = p->R, from = tile * TILE, points = p->count - from < TILE ? p->count - from : TILE;
  REAL *x = T(allocate)(2 * D * TILE);
  if (!x) return NO_MEMORY;
  REAL *g = x + D * TILE, *value = p->value + from;
  T(vec) total[VECTORS] = {{0}};
  T(tile_of)(p->x + from * D, points, D, x);
  for (int64_t at = 0; with_gradient && at < D * TILE; at++) g[at] = 0;
  for (int64_t i = 0; i < R;) {
    int64_t to = R - i < GROUP ? R : i + GROUP;
    T(vec) low[VECTORS], product[VECTORS];
    for (int v = 0; v < VECTORS; v++) low[v] = (T(vec)){0}, product[v] = T(all)(1);
    for (; i + ROWS <= to; i += ROWS) {
      LOGISTIC_ROWS(ROWS)
    }
    SWITCH_REST(to - i, LOGISTIC_ROWS)
    for (int v = 0; v < VECTORS; v++) total[v] += low[v] - T(vlog)(product[v]);
    i = to;
  }
  for (int v = 0; v < VECTORS; v++) {
    T(vec) squares = {0}, none = T(choose)((T(ivec))(total[v] != total[v]), total[v], (T(vec)){0});
    for (int64_t j = 0; j < D; j++) {
      T(vec) here = T(load)(x + j * TILE + v * LANES);
      REAL *at = g + j * TILE + v * LANES;
      squares += here * here;
      if (with_gradient) T(store)(at, T(load)(at) - precision * here + none);
    }
    T(store)(x + v * LANES, total[v] - (REAL)0.5 * precision * squares);
  }
  for (int64_t n = 0; n < points; n++) value[n] = x[n];
  if (with_gradient) T(transpose)(g, D, points, TILE, p->gradient + from * D, D);
  free(x);
  return DONE;
}

static int T(logistic_regression_tile)(const void *data, int64_t tile) {
  const T(posterior) *p = data;
  return p->gradient ? T(logistic_tile)(p, tile, 1) : T(logistic_tile)(p, tile, 0);
}

static failure *T(logistic_regression)(const call *c, const logistic_regression_arrays *a) {
  T(posterior) p = T(posterior_of)(a->x, a->rows, a->count, a->value, a->gradient);
  p.precision = a->precision->data;
  return parallel(c, T(tiles_of)(p.count), T(logistic_regression_tile), &p);
}

/* Where vector number c of a row of D numbers starts: the last one ends with the row, and may hold numbers of the
   one before it once more. A row of less than one vector is filled up with zeros. */
static inline int64_t T(begin)(int64_t c, int64_t D) {
  return (c + 1) * LANES <= D ? c * LANES : D < LANES ? 0 : D - LANES;
}

static inline T(vec) T(row_part)(const REAL *from, int64_t D) {
  return D < LANES ? T(load_some)(from, D, 0) : T(load)(from);
}

/* The same with R / size times the sum over the rows of each point's minibatch; lanes are coordinates, but rows for
   the sigmoids. */
static int T(minibatch_group)(const void *data, int64_t task) {
  const T(posterior) *p = data;
  const REAL *S = p->rows, precision = *p->precision;
  int64_t D = p->D, size = p->size, vectors = (D + LANES - 1) / LANES, height = T(whole)(size);
  REAL scale = (REAL)p->R / (REAL)size;
  REAL *x = T(allocate)(vectors * LANES + height);
  if (!x) return NO_MEMORY;
  REAL *slope = x + vectors * LANES;
  const REAL **rows = malloc(height * sizeof *rows);
  if (!rows) {
    free(x);
    return NO_MEMORY;
  }
  for (int64_t n = task * POINTS; n < p->count && n < (task + 1) * POINTS; n++) {
    const REAL *point = p->x + n * D;
    int64_t row = p->start[n], stride = p->stride[n];
    for (int64_t r = 0; r < height; r++) {
      rows[r] = S + row * D;
      row += stride;
      if (row >= p->R) row -= p->R;
    }
    T(vec) total = {0}, low = {0}, product = T(all)(1), squares = {0};
    for (int64_t c = 0; c < vectors; c++) {
      T(ivec) seen = T(first)(c * LANES - T(begin)(c, D));
      T(vec) at = T(choose)(seen, (T(vec)){0}, T(row_part)(point + T(begin)(c, D), D));
      T(store)(x + c * LANES, at);
      squares += at * at;
    }
    for (int64_t r = 0; r < height; r += LANES) {
      T(vec) a[LANES], at = T(load)(x);
      UNROLL for (int i = 0; i < LANES; i++) a[i] = at * T(row_part)(rows[r + i], D);
      for (int64_t c = 1; c < vectors; c++) {
        at = T(load)(x + c * LANES);
        UNROLL for (int i = 0; i < LANES; i++) a[i] += at * T(load)(rows[r + i] + T(begin)(c, D));
      }
      T(vec) here = {0}, above = T(all)(1), s = T(log_sigmoid)(T(lane_sums)(a), &here, &above);
      T(ivec) real = T(first)(size - r);
      T(store)(slope + r, T(choose)(real, s, (T(vec)){0}));
      low += T(choose)(real, here, (T(vec)){0});
      product *= T(choose)(real, above, T(all)(1));
      if (r / LANES % GROUP == GROUP - 1) {
        total -= T(vlog)(product);
        product = T(all)(1);
      }
    }
    total = scale * (total + low - T(vlog)(product)) - (REAL)0.5 * precision * squares;
    REAL value = p->value[n] = T(sum)(total);
    if (!p->gradient) continue;
    REAL none = value != value ? value : 0, *out = p->gradient + n * D;
    for (int64_t c = 0; c < vectors; c++) {
      int64_t begin = T(begin)(c, D);
      T(vec) a[4] = {{0}};
      for (int64_t r = 0; r < height; r += LANES)
        UNROLL for (int i = 0; i < LANES; i++) a[i % 4] += slope[r + i] * T(row_part)(rows[r + i] + begin, D);
      T(vec) g = scale * ((a[0] + a[1]) + (a[2] + a[3])) - precision * T(row_part)(point + begin, D) + none;
      if (D >= LANES)
        T(store)(out + begin, g);
      else
        for (int64_t j = 0; j < D; j++) out[j] = g[j];
    }
  }
  free(rows);
  free(x);
  return DONE;
}

static failure *T(logistic_regression_minibatch)(const call *c, const logistic_regression_minibatch_arrays *a) {
  T(posterior) p = T(posterior_of)(a->x, a->rows, a->count, a->value, a->gradient);
  p.precision = a->precision->data;
  failure *error = T(add_minibatches)(c, &p, a->start, a->stride, a->size);
  return error ? error : parallel(c, T(groups_of)(&p), T(minibatch_group), &p);
}
