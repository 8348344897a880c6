/* Products, factors and inverses of square matrices. Included once per type.

   They have D rows, `width` numbers apart: whole vectors, zero beyond their D numbers; and workspace for `width` rows.
   "Upper" and "lower" are triangles whose other half is zero. */

#define BLOCK 32
/* Rows that are factored together, a multiple of LANES. */
#define PANEL 64
/* Columns of a triangle that are treated as starting in the same row, a multiple of BLOCK. */
#define TURN 128
/* Rows that are summed at once, so that what they are multiplied with stays in the cache. */

static inline int64_t T(least)(int64_t a, int64_t b) { return a < b ? a : b; }

static inline void T(clear)(REAL *to, int64_t n) {
  for (int64_t j = 0; j < n; j += LANES) T(store)(to + j, (T(vec)){0});
}

/* to += factor from, of n numbers, filled up to whole vectors. */
static inline void T(add_first)(REAL *to, const REAL *from, REAL factor, int64_t n) {
  for (int64_t j = 0; j < n; j += LANES) T(store)(to + j, T(load)(to + j) + factor * T(load)(from + j));
}

/* Of the first n numbers. */
static inline REAL T(dot)(const REAL *a, const REAL *b, int64_t n) {
  T(vec) sum = {0};
  int64_t j = 0;
  for (; j + LANES <= n; j += LANES) sum += T(load)(a + j) * T(load)(b + j);
  if (j < n) sum += T(choose)(T(first)(n - j), T(load)(a + j) * T(load)(b + j), (T(vec)){0});
  return T(sum)(sum);
}

/* M [height, cols] += left^T right, both of so many rows; if `lower`, what lies above M's diagonal may be anything. */
static void T(add_product)(REAL *M, const REAL *left, const REAL *right, int64_t width, int64_t height, int64_t cols,
                           int64_t rows, int lower) {
  int32_t in_order[TURN];
  for (int64_t s = 0; s < T(least)(TURN, rows); s++) in_order[s] = (int32_t)s;
  for (int64_t s = 0; s < rows; s += TURN)
    T(outer)(M, width, height, cols, left + s * width, width, right + s * width, width, in_order,
             T(least)(TURN, rows - s), lower);
}

/* out = left^T right with a lower `right`. */
static void T(times_lower)(const REAL *left, const REAL *right, int64_t D, int64_t width, REAL *out) {
  T(clear)(out, D * width);
  for (int64_t j = 0; j < width; j += PANEL)
    T(add_product)(out + j, left + j * width, right + j * width + j, width, D, T(least)(PANEL, width - j), D - j, 0);
}

/* out = left^T right with an upper `right`. */
static void T(times_upper)(const REAL *left, const REAL *right, int64_t D, int64_t width, REAL *out) {
  T(clear)(out, D * width);
  for (int64_t j = 0; j < width; j += PANEL)
    T(add_product)(out + j, left, right + j, width, D, T(least)(PANEL, width - j), T(least)(j + PANEL, D), 0);
}

/* out = U^T W with an upper U and a lower W: lower. */
static void T(lower_product)(const REAL *U, const REAL *W, int64_t D, int64_t width, REAL *out) {
  T(clear)(out, D * width);
  for (int64_t i = 0; i < D; i += BLOCK) {
    int64_t end = T(least)(i + BLOCK, D);
    for (int64_t j = 0; j < end; j += PANEL)
      T(add_product)(out + i * width + j, U + j * width + i, W + j * width + j, width, end - i,
                     T(least)(PANEL, T(whole)(end) - j), end - j, 0);
  }
}

/* The inverse of U^T for an upper U: lower. */
static void T(lower_inverse)(const REAL *U, int64_t D, int64_t width, REAL *out) {
  T(clear)(out, D * width);
  for (int64_t b = 0; b < D; b += BLOCK) {
    int64_t end = T(least)(b + BLOCK, D);
    for (int64_t j = 0; j < b; j += PANEL)
      T(add_product)(out + b * width + j, U + j * width + b, out + j * width + j, width, end - b,
                     T(least)(PANEL, b - j), b - j, 0);
    for (int64_t i = b; i < end; i++) {
      REAL *row = out + i * width, scale = 1 / U[i * width + i];
      for (int64_t k = b; k < i; k++) T(add_first)(row, out + k * width, U[k * width + i], k + 1);
      for (int64_t j = 0; j < i; j += LANES) T(store)(row + j, T(load)(row + j) * -scale);
      row[i] = scale;
    }
  }
}

/* P's lower half becomes the lower R with R^T R = P; whether there is one. `workspace` is for BLOCK rows. */
static int T(reverse_cholesky)(REAL *P, int64_t D, int64_t width, REAL *workspace) {
  for (int64_t end = D, b; end > 0; end = b) {
    b = (end - 1) / BLOCK * BLOCK;
    for (int64_t i = end - 1; i >= b; i--) {
      REAL *row = P + i * width;
      if (!(row[i] > 0)) return 0;
      REAL scale = 1 / SQRT(row[i]);
      for (int64_t j = i + 1; j < width; j++) row[j] = 0;
      for (int64_t j = 0; j <= i; j += LANES) T(store)(row + j, T(load)(row + j) * scale);
      for (int64_t r = b; r < i; r++) T(add_first)(P + r * width, row, -row[r], r + 1);
    }
    for (int64_t j = 0; j < (end - b) * width; j += LANES) T(store)(workspace + j, -T(load)(P + b * width + j));
    T(add_product)(P, workspace, P + b * width, width, b, b, end - b, 1);
  }
  return 1;
}

/* n numbers of a row, then zeros up to `width`. */
static inline void T(fill_row)(const REAL *from, int64_t n, int64_t width, REAL scale, REAL *to) {
  int64_t j = 0;
  for (; j + LANES <= n; j += LANES) T(store)(to + j, T(load)(from + j) * scale);
  for (; j < n; j++) to[j] = from[j] * scale;
  for (; j < width; j++) to[j] = 0;
}

/* The lower half of rows of D numbers. */
static void T(lower_half)(const REAL *from, int64_t D, int64_t width, REAL *to) {
  for (int64_t i = 0; i < D; i++) T(fill_row)(from + i * D, i + 1, width, 1, to + i * width);
}

static void T(transposed)(const REAL *from, int64_t width, REAL *to) {
  T(transpose)(from, width, width, width, to, width);
}

static int T(all_finite)(const REAL *x, int64_t n) {
  T(vec) zeros = {0};
  REAL zero = 0;
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) zeros += 0 * T(load)(x + i);
  for (; i < n; i++) zero += 0 * x[i];
  return zero + T(sum)(zeros) == 0;
}

/* The largest |x|, of finite numbers. */
static REAL T(largest_of)(const REAL *x, int64_t n) {
  T(vec) most = {0};
  REAL found = 0;
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) most = T(larger)(most, T(size)(T(load)(x + i)));
  for (; i < n; i++) found = x[i] > found ? x[i] : -x[i] > found ? -x[i] : found;
  for (int l = 0; l < LANES; l++) found = most[l] > found ? most[l] : found;
  return found;
}
