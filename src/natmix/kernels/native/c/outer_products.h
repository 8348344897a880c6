/* Sums of outer products of rows. Included once per type. */

/* M[i : i + rows, j : j + cols vectors] += sum_s left[s, i + r] right[list[s], j]; what is summed here is added to M
   only at the end, so that roundings of M are few. */
#define OUTER(rows, cols)                                                           \
  T(vec) a[rows][cols] = {{{0}}};                                                   \
  for (int64_t s = 0; s < samples; s++) {                                           \
    const REAL *from = right + list[s] * right_stride + j, *factor = left + s * left_stride + i; \
    T(vec) at[cols];                                                                \
    for (int c = 0; c < cols; c++) at[c] = T(load)(from + c * LANES);               \
    for (int r = 0; r < rows; r++)                                                  \
      for (int c = 0; c < cols; c++) a[r][c] += factor[r] * at[c];                  \
  }                                                                                 \
  for (int r = 0; r < rows; r++)                                                    \
    for (int c = 0; c < cols; c++) {                                                \
      REAL *to = M + (i + r) * stride + j + c * LANES;                              \
      T(store)(to, T(load)(to) + a[r][c]);                                          \
    }

/* Rows i up to `end`. */
#define OUTER_ROWS_TO(end, cols)                     \
  for (; i + OUTER_ROWS <= end; i += OUTER_ROWS) {   \
    OUTER(OUTER_ROWS, cols)                          \
  }                                                  \
  for (; i + 4 <= end; i += 4) {                     \
    OUTER(4, cols)                                   \
  }                                                  \
  for (; i < end; i++) {                             \
    OUTER(1, cols)                                   \
  }

/* M [height, width] += sum_s left[s] right[list[s]]^T, `width` being whole vectors; if `lower`, what lies above
   M's diagonal may be anything. Rows are so many numbers apart as their strides say. */
static void T(outer)(REAL *M, int64_t stride, int64_t height, int64_t width, const REAL *left, int64_t left_stride,
                     const REAL *right, int64_t right_stride, const int32_t *list, int64_t samples, int lower) {
  int64_t j = 0;
  for (; j + 2 * LANES <= width; j += 2 * LANES) {
    int64_t i = lower ? j : 0, above = i + LANES < height ? i + LANES : height;
    if (lower) { /* the second vector lies above the diagonal */
      OUTER_ROWS_TO(above, 1)
    }
    OUTER_ROWS_TO(height, 2)
  }
  for (; j < width; j += LANES) {
    int64_t i = lower ? j : 0;
    OUTER_ROWS_TO(height, 1)
  }
}
