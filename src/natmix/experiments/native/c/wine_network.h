/* The log density -R MSE(x) - |x|^2 / 2 of the weights x of a network with two hidden layers of sigmoids, each
   point on a minibatch of its own, and its gradient. Included once per type.

   Lanes are rows of data: in[i * M + m] is unit i on row m. A layer's weights are [inputs + 1, outputs], the last
   row being its biases; M is the size of the minibatch up to whole blocks of BLOCK_ROWS. */

/* The numbers of its units, and of its weights. */
#ifndef FEATURES
#define FEATURES 11
#define HIDDEN 8
#define WEIGHTS ((FEATURES + 1) * HIDDEN + (HIDDEN + 1) * HIDDEN + HIDDEN + 1)
_Static_assert(FEATURES == 11 && WEIGHTS == 177, "as the table of kernels says");
#endif

/* Vectors of rows that are done at once. */
#if VECTOR_BYTES == 64
#define NETWORK_BLOCK 2
#else
#define NETWORK_BLOCK 1
#endif
#define BLOCK_ROWS (NETWORK_BLOCK * LANES)

static inline T(vec) T(sigmoid)(T(vec) a) {
  return 1 / (1 + T(exp_within)(-T(at_least)(T(at_most)(a, -EXP_LOW), EXP_LOW)));
}

/* The features and the quality of point n's rows, rows last; those beyond the last are copies of the first. */
static inline void T(gather)(const T(posterior) *p, int64_t n, int64_t M, REAL *features, REAL *quality) {
  const REAL *rows = p->rows;
  int64_t row = p->start[n], stride = p->stride[n];
  for (int64_t m = 0; m < M; m += LANES) {
    int64_t chosen[LANES];
    for (int i = 0; i < LANES; i++) {
      chosen[i] = row;
      quality[m + i] = p->quality[row];
      row += stride;
      if (row >= p->R) row -= p->R;
      if (m + i + 1 >= p->size) row = p->start[n];
    }
    UNROLL for (int c = 0; c < FEATURES; c += LANES) {
      T(vec) a[LANES];
      UNROLL for (int i = 0; i < LANES; i++) {
        const REAL *from = rows + chosen[i] * FEATURES + c;
        /* A row is read beyond its end, into the next one, which is there but for the last one. */
        int beyond = c + LANES > FEATURES && chosen[i] + 1 == p->R;
        a[i] = beyond ? T(load_some)(from, FEATURES - c, 0) : T(load)(from);
      }
      T(turn)(a);
      for (int i = 0; i < LANES && c + i < FEATURES; i++) T(store)(features + (c + i) * M + m, a[i]);
    }
  }
}

static inline void T(hidden_layer)(const REAL *W, int inputs, const REAL *in, int64_t M, REAL *out) {
  for (int64_t m = 0; m < M; m += BLOCK_ROWS) {
    T(vec) a[HIDDEN][NETWORK_BLOCK];
    for (int h = 0; h < HIDDEN; h++)
      for (int b = 0; b < NETWORK_BLOCK; b++) a[h][b] = T(all)(W[inputs * HIDDEN + h]);
    for (int i = 0; i < inputs; i++) {
      T(vec) at[NETWORK_BLOCK];
      for (int b = 0; b < NETWORK_BLOCK; b++) at[b] = T(load)(in + i * M + m + b * LANES);
      for (int h = 0; h < HIDDEN; h++)
        for (int b = 0; b < NETWORK_BLOCK; b++) a[h][b] += W[i * HIDDEN + h] * at[b];
    }
    UNROLL for (int h = 0; h < HIDDEN; h++)
      UNROLL for (int b = 0; b < NETWORK_BLOCK; b++) T(store)(out + h * M + m + b * LANES, T(sigmoid)(a[h][b]));
  }
}

/* What the network predicts less the quality, in its place, zero beyond the last row; returns its squares' sum. */
static inline REAL T(errors)(const REAL *W, const REAL *h, int64_t M, int64_t size, REAL *quality) {
  T(vec) squares = {0};
  for (int64_t m = 0; m < M; m += LANES) {
    T(vec) a = W[HIDDEN] - T(load)(quality + m);
    for (int i = 0; i < HIDDEN; i++) a += W[i] * T(load)(h + i * M + m);
    if (m + LANES > size) a = T(choose)(T(first)(size - m), a, (T(vec)){0});
    T(store)(quality + m, a);
    squares += a * a;
  }
  return T(sum)(squares);
}

/* Errors times the derivatives with respect to what goes into the sigmoids of the second layer and of the first. */
static inline void T(pull_back)(const REAL *W2, const REAL *W3, const REAL *error, const REAL *h1, const REAL *h2,
                                int64_t M, REAL *d1, REAL *d2) {
  for (int64_t m = 0; m < M; m += LANES) {
    T(vec) e = T(load)(error + m), d[HIDDEN];
    for (int i = 0; i < HIDDEN; i++) {
      T(vec) h = T(load)(h2 + i * M + m);
      d[i] = W3[i] * e * (h - h * h);
      T(store)(d2 + i * M + m, d[i]);
    }
    for (int i = 0; i < HIDDEN; i++) {
      T(vec) h = T(load)(h1 + i * M + m), a = W2[i * HIDDEN] * d[0];
      for (int j = 1; j < HIDDEN; j++) a += W2[i * HIDDEN + j] * d[j];
      T(store)(d1 + i * M + m, a * (h - h * h));
    }
  }
}

/* The sums over all rows of in_i out_j, for NETWORK_BLOCK inputs at a time. */
static inline void T(outer_sums)(const REAL *in, int inputs, const REAL *out, int64_t M, REAL *sums) {
  for (int i = 0; i < inputs; i += NETWORK_BLOCK) {
    T(vec) a[NETWORK_BLOCK * HIDDEN] = {{0}};
    for (int64_t m = 0; m < M; m += LANES) {
      T(vec) at[NETWORK_BLOCK];
      for (int b = 0; b < NETWORK_BLOCK; b++) at[b] = T(load)(in + (i + b) * M + m);
      UNROLL for (int h = 0; h < HIDDEN; h++)
        UNROLL for (int b = 0; b < NETWORK_BLOCK; b++) a[b * HIDDEN + h] += at[b] * T(load)(out + h * M + m);
    }
    UNROLL for (int k = 0; k < NETWORK_BLOCK * HIDDEN; k += LANES) T(store)(sums + i * HIDDEN + k, T(lane_sums)(a + k));
  }
}

/* The sums over all rows of the second layer's derivatives, then of the errors times its units, then of them. */
static inline void T(last_sums)(const REAL *error, const REAL *h2, const REAL *d2, int64_t M, REAL *sums) {
  T(vec) a[2 * HIDDEN] = {{0}}, total = {0};
  for (int64_t m = 0; m < M; m += LANES) {
    T(vec) e = T(load)(error + m);
    for (int i = 0; i < HIDDEN; i++) a[i] += T(load)(d2 + i * M + m);
    for (int i = 0; i < HIDDEN; i++) a[HIDDEN + i] += e * T(load)(h2 + i * M + m);
    total += e;
  }
  UNROLL for (int k = 0; k < 2 * HIDDEN; k += LANES) T(store)(sums + k, T(lane_sums)(a + k));
  sums[2 * HIDDEN] = T(sum)(total);
}

static inline REAL T(squared_norm)(const REAL *x, int64_t D) {
  T(vec) sum = {0};
  int64_t i = 0;
  for (; i + LANES <= D; i += LANES) sum += T(load)(x + i) * T(load)(x + i);
  if (i < D) sum += T(load_some)(x + i, D - i, 0) * T(load_some)(x + i, D - i, 0);
  return T(sum)(sum);
}

static int T(wine_network_group)(const void *data, int64_t task) {
  const T(posterior) *p = data;
  int64_t M = (p->size + BLOCK_ROWS - 1) / BLOCK_ROWS * BLOCK_ROWS;
  REAL scale = (REAL)p->R / (REAL)p->size;
  REAL *in = T(allocate)((FEATURES + 2 + 4 * HIDDEN) * M);
  if (!in) return NO_MEMORY;
  REAL *error = in + (FEATURES + 1) * M;
  REAL *h1 = error + M, *h2 = h1 + HIDDEN * M, *d1 = h2 + HIDDEN * M, *d2 = d1 + HIDDEN * M;
  for (int64_t m = 0; m < M; m++) in[FEATURES * M + m] = 1;
  for (int64_t n = task * POINTS; n < p->count && n < (task + 1) * POINTS; n++) {
    const REAL *W1 = p->x + n * WEIGHTS, *W2 = W1 + (FEATURES + 1) * HIDDEN;
    const REAL *W3 = W2 + (HIDDEN + 1) * HIDDEN;
    T(gather)(p, n, M, in, error);
    T(hidden_layer)(W1, FEATURES, in, M, h1);
    T(hidden_layer)(W2, HIDDEN, h1, M, h2);
    REAL squares = T(errors)(W3, h2, M, p->size, error);
    REAL value = -scale * squares - (REAL)0.5 * T(squared_norm)(W1, WEIGHTS);
    p->value[n] = value;
    if (!p->gradient) continue;
    REAL sums[WEIGHTS], *out = p->gradient + n * WEIGHTS, none = value != value ? value : 0;
    T(pull_back)(W2, W3, error, h1, h2, M, d1, d2);
    T(outer_sums)(in, FEATURES + 1, d1, M, sums);
    T(outer_sums)(h1, HIDDEN, d2, M, sums + (FEATURES + 1) * HIDDEN);
    T(last_sums)(error, h2, d2, M, sums + (FEATURES + 1 + HIDDEN) * HIDDEN);
    for (int i = 0; i < WEIGHTS; i++) out[i] = -2 * scale * sums[i] - W1[i] + none;
  }
  free(in);
  return DONE;
}

static failure *T(wine_network)(const call *c, const wine_network_arrays *a) {
  T(posterior) p = T(posterior_of)(a->x, a->features, a->count, a->value, a->gradient);
  p.quality = a->quality->data;
  failure *error = T(add_minibatches)(c, &p, a->start, a->stride, a->size);
  return error ? error : parallel(c, T(groups_of)(&p), T(wine_network_group), &p);
}
