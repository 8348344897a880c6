/* Sums of outer products of rows. Included once per type. */

/* M[i : i + rows, j : j + cols vectors] += sum_s left[s, i + r] right[list[s], j]; what is summed here meets M
   only at the end, so that roundings of M are few. */
#define OUTER(rows, cols)                                                           \
  T(vec) a[rows][cols] = {{{0}}};                                                   \
  for (int64_t s = 0; s < samples; s++) {                                           \
    const REAL *from = right + list[s] * width + j, *factor = left + s * left_width + i; \
    T(vec) at[cols];                                                                \
    for (int c = 0; c < cols; c++) at[c] = T(load)(from + c * LANES);               \
    for (int r = 0; r < rows; r++)                                                  \
      for (int c = 0; c < cols; c++) a[r][c] += factor[r] * at[c];                  \
  }                                                                                 \
  for (int r = 0; r < rows; r++)                                                    \
    for (int c = 0; c < cols; c++) {                                                \
      REAL *to = M + (i + r) * width + j + c * LANES;                               \
      T(store)(to, T(load)(to) + a[r][c]);                                          \
    }

#define OUTER_PANEL(cols)                                  \
  int64_t i = lower ? j : 0;                               \
  for (; i + OUTER_ROWS <= height; i += OUTER_ROWS) {      \
    OUTER(OUTER_ROWS, cols)                                \
  }                                                        \
  for (; i + 4 <= height; i += 4) {                        \
    OUTER(4, cols)                                         \
  }                                                        \
  for (; i < height; i++) {                                \
    OUTER(1, cols)                                         \
  }

/* M [height, width] += sum_s left[s] right[list[s]]^T; if `lower`, no more is sure to be right than what does not
   lie above M's diagonal. */
static void T(outer)(REAL *M, int64_t height, int64_t width, const REAL *left, int64_t left_width,
                     const REAL *right, const int32_t *list, int64_t samples, int lower) {
  int64_t j = 0;
  for (; j + 2 * LANES <= width; j += 2 * LANES) {
    OUTER_PANEL(2)
  }
  for (; j < width; j += LANES) {
    OUTER_PANEL(1)
  }
}
