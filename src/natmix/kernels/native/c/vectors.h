/* Vectors of REAL, as wide as the instructions of this build, and their exponential. Included once per type. */

typedef REAL T(vec) __attribute__((vector_size(VECTOR_BYTES)));
typedef REAL T(loose) __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(REAL)), may_alias));
typedef INTEGER T(ivec) __attribute__((vector_size(VECTOR_BYTES)));

static inline T(vec) T(load)(const REAL *p) { return *(const T(loose) *)p; }
static inline void T(store)(REAL *p, T(vec) v) { *(T(loose) *)p = v; }
static inline T(vec) T(all)(REAL a) { return a - (T(vec)){0}; }
static inline T(vec) T(choose)(T(ivec) mask, T(vec) a, T(vec) b) {
  return (T(vec))((mask & (T(ivec))a) | (~mask & (T(ivec))b));
}
/* NaN if one of them is. */
static inline T(vec) T(larger)(T(vec) a, T(vec) b) { return T(choose)((T(ivec))(a < b) | (T(ivec))(b != b), b, a); }

static inline T(vec) T(size)(T(vec) a) { return T(choose)((T(ivec))(a < 0), -a, a); }

/* Whether a comparison holds anywhere. */
static inline int T(any)(T(ivec) mask) {
#if VECTOR_BYTES == 64
  return _mm512_movepi32_mask((__m512i)mask) != 0;
#elif VECTOR_BYTES == 32
  return _mm256_movemask_epi8((__m256i)mask) != 0;
#else
  INTEGER some = 0;
  for (int i = 0; i < LANES; i++) some |= mask[i];
  return some != 0;
#endif
}

/* One bit for each lane of a comparison. */
static inline uint32_t T(bits)(T(ivec) mask) {
#if VECTOR_BYTES == 64 && REAL_BYTES == 4
  return _mm512_movepi32_mask((__m512i)mask);
#elif VECTOR_BYTES == 64
  return _mm512_movepi64_mask((__m512i)mask);
#elif VECTOR_BYTES == 32 && REAL_BYTES == 4
  return (uint32_t)_mm256_movemask_ps((__m256)mask);
#elif VECTOR_BYTES == 32
  return (uint32_t)_mm256_movemask_pd((__m256d)mask);
#else
  uint32_t bits = 0;
  for (int i = 0; i < LANES; i++) bits |= (uint32_t)(mask[i] & 1) << i;
  return bits;
#endif
}

/* True in the first n lanes. */
static inline T(ivec) T(first)(int64_t n) {
  T(ivec) lane;
  for (int i = 0; i < LANES; i++) lane[i] = i;
  return (T(ivec))(lane < (INTEGER)n);
}

/* The first n < LANES numbers, and `fill`. */
static inline T(vec) T(load_some)(const REAL *p, int64_t n, REAL fill) {
  T(vec) v = T(all)(fill);
  for (int64_t i = 0; i < n; i++) v[i] = p[i];
  return v;
}

/* Numbers of a and b in turn, of their first and of their second halves. */
#if LANES == 16
#define LOW_TURNS 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define HIGH_TURNS 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif LANES == 8
#define LOW_TURNS 0, 8, 1, 9, 2, 10, 3, 11
#define HIGH_TURNS 4, 12, 5, 13, 6, 14, 7, 15
#elif LANES == 4
#define LOW_TURNS 0, 4, 1, 5
#define HIGH_TURNS 2, 6, 3, 7
#else
#define LOW_TURNS 0, 2
#define HIGH_TURNS 1, 3
#endif
#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (T(ivec)){__VA_ARGS__})
#endif

/* A square of LANES x LANES numbers: shuffling rows of two halves log2(LANES) times is to transpose. */
static inline void T(turn)(T(vec) * a) {
  T(vec) b[LANES];
  UNROLL for (int step = 1; step < LANES; step *= 2) {
    UNROLL for (int i = 0; i < LANES / 2; i++) {
      b[2 * i] = SHUFFLE(a[i], a[i + LANES / 2], LOW_TURNS);
      b[2 * i + 1] = SHUFFLE(a[i], a[i + LANES / 2], HIGH_TURNS);
    }
    UNROLL for (int i = 0; i < LANES; i++) a[i] = b[i];
  }
}

static inline void T(transpose_square)(const REAL *from, int64_t from_stride, REAL *to, int64_t to_stride) {
  T(vec) a[LANES];
  for (int i = 0; i < LANES; i++) a[i] = T(load)(from + i * from_stride);
  T(turn)(a);
  for (int i = 0; i < LANES; i++) T(store)(to + i * to_stride, a[i]);
}

/* The sum over the lanes of each of LANES vectors, which are lost. */
static inline T(vec) T(lane_sums)(T(vec) * a) {
  UNROLL for (int half = LANES / 2; half >= 1; half /= 2)
    UNROLL for (int i = 0; i < half; i++)
      a[i] = SHUFFLE(a[i], a[i + half], LOW_TURNS) + SHUFFLE(a[i], a[i + half], HIGH_TURNS);
  return a[0];
}

/* to[j, i] = from[i, j] */
static void T(transpose)(const REAL *from, int64_t rows, int64_t cols, int64_t from_stride, REAL *to,
                         int64_t to_stride) {
  int64_t whole_rows = rows / LANES * LANES, whole_cols = cols / LANES * LANES;
  for (int64_t i = 0; i < whole_rows; i += LANES)
    for (int64_t j = 0; j < whole_cols; j += LANES)
      T(transpose_square)(from + i * from_stride + j, from_stride, to + j * to_stride + i, to_stride);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = i < whole_rows ? whole_cols : 0; j < cols; j++) to[j * to_stride + i] = from[i * from_stride + j];
}

static inline T(vec) T(at_least)(T(vec) x, REAL low) { return T(choose)((T(ivec))(x < low), T(all)(low), x); }
static inline T(vec) T(at_most)(T(vec) x, REAL high) { return T(choose)((T(ivec))(x > high), T(all)(high), x); }

/* exp of numbers from EXP_LOW to EXP_HIGH: 2^n times a polynomial on [-log 2 / 2, log 2 / 2]. */
static inline T(vec) T(exp_within)(T(vec) x) {
  T(vec) shifted = x * (REAL)1.4426950408889634074 + ROUNDING;
  T(vec) n = shifted - ROUNDING;
  T(vec) r = x - n * LOG2_HIGH;
  r = r - n * LOG2_LOW;
  static const REAL c[] = EXP_COEFFICIENTS;
  T(vec) p = T(all)(c[0]);
  for (int i = 1; i < (int)(sizeof c / sizeof *c); i++) p = p * r + c[i];
  T(ivec) bits = ((T(ivec))shifted) << MANTISSA;
  return (T(vec))((T(ivec))p + bits);
}

/* exp of any numbers; zero where the result would be subnormal. */
static inline T(vec) T(vexp)(T(vec) x) {
  T(vec) result = T(exp_within)(T(at_most)(T(at_least)(x, EXP_LOW), EXP_HIGH));
  result = T(choose)((T(ivec))(x < EXP_LOW), (T(vec)){0}, result);
  result = T(choose)((T(ivec))(x > EXP_HIGH), T(all)((REAL)INFINITY), result);
  return T(choose)((T(ivec))(x != x), x, result);
}

/* exp of numbers, zero for negligible ones: up to LOG_NEGLIGIBLE. */
static inline T(vec) T(share)(T(vec) x) {
  T(ivec) nothing = (T(ivec))(x <= LOG_NEGLIGIBLE);
  return T(any)(~nothing) ? T(choose)(nothing, (T(vec)){0}, T(vexp)(x)) : (T(vec)){0};
}

/* log of positive normal numbers; in single precision that of the mantissa, between sqrt(1/2) and sqrt(2), by a
   polynomial. */
#if REAL_BYTES == 4
static inline T(vec) T(vlog)(T(vec) x) {
  T(ivec) bits = (T(ivec))x;
  T(ivec) exponent = (bits - 0x3f3504f3) >> 23;
  T(vec) m = (T(vec))(bits - (exponent << 23)) - 1.0f, n = __builtin_convertvector(exponent, T(vec));
  T(vec) p = T(all)(7.0376836292e-2f);
  static const float c[] = {-1.1514610310e-1f, 1.1676998740e-1f, -1.2420140846e-1f, 1.4249322787e-1f,
                            -1.6668057665e-1f, 2.0000714765e-1f, -2.4999993993e-1f, 3.3333331174e-1f};
  for (int i = 0; i < 8; i++) p = p * m + c[i];
  T(vec) square = m * m;
  T(vec) y = m * square * p + n * LOG2_LOW;
  return m + (y - 0.5f * square) + n * LOG2_HIGH;
}
#else
static inline T(vec) T(vlog)(T(vec) x) {
  for (int i = 0; i < LANES; i++) x[i] = LOG(x[i]);
  return x;
}
#endif

static inline REAL T(sum)(T(vec) v) {
  REAL s = 0;
  for (int64_t i = 0; i < LANES; i++) s += v[i];
  return s;
}

/* Memory for so many numbers, aligned for vectors; NULL if there is none. */
static REAL *T(allocate)(int64_t numbers) {
  size_t bytes = ((size_t)numbers * sizeof(REAL) + 63) / 64 * 64;
  return aligned_alloc(64, bytes ? bytes : 64);
}

/* Numbers of a row that is filled up to whole vectors. */
static int64_t T(whole)(int64_t numbers) { return (numbers + LANES - 1) / LANES * LANES; }
