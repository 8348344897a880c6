/* Tiles of samples, and y = W (x - m) of them. Included once per type.

   A tile has TILE samples, its coordinates one after another: x[j * TILE + n]. W is lower triangular: what
   lies above its diagonal is not read. Its rows are done ROWS at a time. */

#define TILE (VECTORS * LANES)

/* Rows of `cols` numbers of the tile's samples, samples last; those beyond the last are its copies. */
static void T(tile_of)(const REAL *from, int64_t rows, int64_t cols, REAL *tile) {
  T(transpose)(from, rows, cols, cols, tile, TILE);
  for (int64_t j = 0; j < cols; j++)
    for (int64_t n = rows; n < TILE; n++) tile[j * TILE + n] = tile[j * TILE + rows - 1];
}

/* d = x - m in coordinates i to end. */
static inline void T(centre_some)(const REAL *tile, const REAL *mean, int64_t i, int64_t end, REAL *d) {
  for (int64_t j = i; j < end; j++)
    for (int v = 0; v < VECTORS; v++) {
      int64_t at = j * TILE + v * LANES;
      T(store)(d + at, T(load)(tile + at) - mean[j]);
    }
}

static inline void T(centre)(const REAL *tile, const REAL *mean, int64_t D, REAL *d) {
  T(centre_some)(tile, mean, 0, D, d);
}

/* a = W[i : i + rows] d: what lies left of the diagonal block, then that block. */
#define WHITEN_ROWS(rows)                                                   \
  T(vec) a[rows][VECTORS] = {{{0}}};                                        \
  for (int64_t j = 0; j < i; j++) {                                         \
    T(vec) at[VECTORS];                                                     \
    for (int v = 0; v < VECTORS; v++) at[v] = T(load)(d + j * TILE + v * LANES); \
    for (int r = 0; r < rows; r++)                                          \
      for (int v = 0; v < VECTORS; v++) a[r][v] += W[(i + r) * D + j] * at[v]; \
  }                                                                         \
  UNROLL for (int j = 0; j < rows; j++) {                                   \
    T(vec) at[VECTORS];                                                     \
    for (int v = 0; v < VECTORS; v++) at[v] = T(load)(d + (i + j) * TILE + v * LANES); \
    UNROLL for (int r = 0; r < rows; r++)                                   \
      if (r >= j) for (int v = 0; v < VECTORS; v++) a[r][v] += W[(i + r) * D + i + j] * at[v]; \
  }

#define SQUARED_ROWS(rows)       \
  WHITEN_ROWS(rows)              \
  for (int r = 0; r < rows; r++) \
    for (int v = 0; v < VECTORS; v++) sum[v] += a[r][v] * a[r][v];

#define KEEP_ROWS(rows)          \
  WHITEN_ROWS(rows)              \
  for (int r = 0; r < rows; r++) \
    for (int v = 0; v < VECTORS; v++) T(store)(y + (i + r) * TILE + v * LANES, factor[v] * a[r][v]);

/* What remains when ROWS do not divide D. */
#define SWITCH_REST(rest, some_rows) \
  switch (rest) {                    \
    case 3: {                        \
      some_rows(3) break;            \
    }                                \
    case 2: {                        \
      some_rows(2) break;            \
    }                                \
    case 1: {                        \
      some_rows(1) break;            \
    }                                \
  }

static inline void T(squared)(const REAL *W, int64_t D, const REAL *d, T(vec) *sum) {
  int64_t i = 0;
  for (int v = 0; v < VECTORS; v++) sum[v] = (T(vec)){0};
  for (; i + ROWS <= D; i += ROWS) {
    SQUARED_ROWS(ROWS)
  }
  SWITCH_REST(D - i, SQUARED_ROWS)
}

/* y = r W d */
static inline void T(whiten)(const REAL *W, int64_t D, const REAL *d, const T(vec) * factor, REAL *y) {
  int64_t i = 0;
  for (; i + ROWS <= D; i += ROWS) {
    KEEP_ROWS(ROWS)
  }
  SWITCH_REST(D - i, KEEP_ROWS)
}

/* z[j : j + cols] += (W^T y)[j : j + cols] */
#define TRANSPOSED_COLUMNS(cols)                                                  \
  T(vec) a[cols][VECTORS];                                                  \
  for (int c = 0; c < cols; c++)                                            \
    for (int v = 0; v < VECTORS; v++) a[c][v] = T(load)(z + (j + c) * TILE + v * LANES); \
  UNROLL for (int i = 0; i < cols; i++) {                                   \
    T(vec) at[VECTORS];                                                     \
    for (int v = 0; v < VECTORS; v++) at[v] = T(load)(y + (j + i) * TILE + v * LANES); \
    UNROLL for (int c = 0; c < cols; c++)                                   \
      if (c <= i) for (int v = 0; v < VECTORS; v++) a[c][v] += W[(j + i) * D + j + c] * at[v]; \
  }                                                                         \
  for (int64_t i = j + cols; i < D; i++) {                                  \
    T(vec) at[VECTORS];                                                     \
    for (int v = 0; v < VECTORS; v++) at[v] = T(load)(y + i * TILE + v * LANES); \
    for (int c = 0; c < cols; c++)                                          \
      for (int v = 0; v < VECTORS; v++) a[c][v] += W[i * D + j + c] * at[v]; \
  }                                                                         \
  for (int c = 0; c < cols; c++)                                            \
    for (int v = 0; v < VECTORS; v++) T(store)(z + (j + c) * TILE + v * LANES, a[c][v]);

/* z += W^T y */
static inline void T(add_transposed_product)(const REAL *W, int64_t D, const REAL *y, REAL *z) {
  int64_t j = 0;
  for (; j + ROWS <= D; j += ROWS) {
    TRANSPOSED_COLUMNS(ROWS)
  }
  SWITCH_REST(D - j, TRANSPOSED_COLUMNS)
}

static inline int64_t T(tiles_of)(int64_t count) { return (count + TILE - 1) / TILE; }

/* Samples of a tile, of `count`. */
static inline int64_t T(samples_in)(int64_t tile, int64_t count) {
  int64_t rest = count - tile * TILE;
  return rest < TILE ? rest : TILE;
}
