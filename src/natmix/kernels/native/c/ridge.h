/* Ridge regressions whose weighted sums are known. Included once per type. Rows are `width` numbers apart, whole
   vectors, and zero beyond their F numbers. */

#define REFINEMENTS 3

/* to += factor from, of numbers from the vector on that holds number `first`. */
static inline void T(add_row)(REAL *to, const REAL *from, REAL factor, int64_t first, int64_t width) {
  for (int64_t j = first / LANES * LANES; j < width; j += LANES)
    T(store)(to + j, T(load)(to + j) + factor * T(load)(from + j));
}

/* The upper triangle U with A = U^T U in place of A's, and 1 / U_ii; whether there is one. Of A's lower half only
   the vectors that its diagonal crosses are touched. */
static int T(cholesky)(REAL *A, int64_t F, int64_t width, REAL *inverse) {
  for (int64_t i = 0; i < F; i++) {
    REAL *row = A + i * width;
    if (!(row[i] > 0)) return 0;
    inverse[i] = 1 / SQRT(row[i]);
    for (int64_t j = i / LANES * LANES; j < i; j++) row[j] = 0;
    for (int64_t j = i / LANES * LANES; j < width; j += LANES) T(store)(row + j, T(load)(row + j) * inverse[i]);
    for (int64_t k = i + 1; k < F; k++) T(add_row)(A + k * width, row, -row[k], k, width);
  }
  return 1;
}

/* b <- (U^T U)^-1 b */
static void T(cholesky_solve)(const REAL *U, int64_t F, int64_t width, const REAL *inverse, REAL *b) {
  for (int64_t i = 0; i < F; i++) {
    REAL solved = b[i] * inverse[i];
    T(add_row)(b, U + i * width, -solved, i, width);
    b[i] = solved;
  }
  for (int64_t i = F - 1; i >= 0; i--) {
    REAL own = b[i];
    T(vec) sum = {0};
    b[i] = 0;
    for (int64_t j = i / LANES * LANES; j < width; j += LANES) sum += T(load)(U + i * width + j) * T(load)(b + j);
    b[i] = (own - T(sum)(sum)) * inverse[i];
  }
}

static int64_t T(ridge_workspace)(int64_t F, int64_t width) { return (2 * F + 3) * width; }

/* Coefficients from M, whose rows are the lower half of sum w phi phi^T [F, F], then sum w phi and sum w phi r;
   with `total` = sum w the constant is eliminated. The normal equations get at least the jitter that REAL can
   resolve, and iterative refinement takes its bias away again wherever the samples determine the answer. NaN if
   they cannot be solved. */
static void T(ridge_regression)(const REAL *M, int64_t F, int64_t width, REAL total, REAL ridge, REAL *workspace,
                                REAL *out) {
  const REAL *mean = M + F * width, *rhs = mean + width;
  REAL *A = workspace, *U = A + F * width, *inverse = U + F * width, *beta = inverse + width, *residual = beta + width;
  REAL largest = 0;
  for (int64_t i = 0; i < T(ridge_workspace)(F, width); i++) workspace[i] = 0;
  for (int64_t i = 0; i < F; i++)
    for (int64_t j = 0; j <= i; j++) A[j * width + i] = A[i * width + j] = M[i * width + j] - mean[i] * mean[j] / total;
  for (int64_t i = 0; i < F; i++) largest = A[i * width + i] > largest ? A[i * width + i] : largest;
  REAL jitter = 10 * EPSILON * largest;
  for (int64_t i = 0; i < F; i++) {
    for (int64_t j = i; j < F; j++) U[i * width + j] = A[i * width + j];
    U[i * width + i] += ridge > jitter ? ridge : jitter;
    A[i * width + i] += ridge;
  }
  int solvable = T(cholesky)(U, F, width, inverse);
  for (int round = 0; solvable && round <= REFINEMENTS; round++) {
    for (int64_t i = 0; i < F; i++) residual[i] = rhs[i];
    for (int64_t i = 0; i < F; i++) T(add_row)(residual, A + i * width, -beta[i], 0, width);
    T(cholesky_solve)(U, F, width, inverse, residual);
    T(add_row)(beta, residual, 1, 0, width);
  }
  for (int64_t i = 0; i < F; i++) out[i] = solvable ? beta[i] : (REAL)NAN;
}
