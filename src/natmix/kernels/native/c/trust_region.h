/* The longest natural-gradient step of each component within a bound on KL(new || old), by a search like that of
   `component_updaters/_cholesky_search.py`, with three moments for its first guess. Included once per type.

   With whitened curvature A and gradient a the new precision is P = I + A / eta = R^T R with a lower R, and with
   V = R^-1 the mean moves by s = -V V^T a / eta; 2 KL = sum_i f(R_ii) + sum_{i > j} V_ij^2 + |s|^2 with
   f(r) = 1 / r^2 - 1 + 2 log r, where roundings of r near 1 hardly matter: short steps keep their digits. */

#define EVALUATIONS 24
#define FEW_DIMENSIONS 48
/* A step is long enough when its KL is 99% of the bound; in so many dimensions, where trying again is cheap, 99.99%. */
#define HALVINGS 20
#define AROUND 6.0
#define APART 0.02
/* The first guess: halvings, half the range of log eta (around short steps), and the distance for its slope. */

#define LEAST_SIZE 1e-30
#define MOST_SIZE 1e30
/* Limits on the size that A is divided by, so that its inverse and A's square are finite in both types. */

/* Steps of K Gaussians with factors L and W = L^-1 along whitened curvatures A and gradients a. */
typedef struct {
  int64_t K, D;
  const REAL *A, *a, *bound; /* [K, D, D], [K, D], [K]: of the KL divergence */
  const uint8_t *usable;     /* [K]: the others stay */
  const REAL *temperature, *most_rounding;
  const REAL *mean, *L, *W;
  REAL *new_mean, *new_L, *new_W;
  uint8_t *ok; /* [K] */
} T(trust_regions);

typedef struct {
  int64_t D, width;
  REAL *A, *a;         /* A over `size`, about its largest number */
  REAL *R, *U, *V;     /* U = R^T */
  REAL *block;         /* workspace for the factors */
  REAL *shift, *rotated;
  double size;
} T(region);

/* The KL divergence of the step with this eta; NaN if its precision is not positive definite. */
static double T(kl)(const T(region) * p, double eta) {
  int64_t D = p->D, width = p->width;
  T(vec) scale = T(all)((REAL)(p->size / eta));
  for (int64_t i = 0; i < D; i++) {
    REAL *row = p->R + i * width;
    for (int64_t j = 0; j <= i; j += LANES) T(store)(row + j, T(load)(p->A + i * width + j) * scale);
    row[i] += 1;
  }
  if (!T(reverse_cholesky)(p->R, D, width, p->block)) return NAN;
  T(transposed)(p->R, width, p->U);
  T(lower_inverse)(p->U, D, width, p->V);
  T(clear)(p->rotated, width);
  for (int64_t i = 0; i < D; i++) T(add_first)(p->rotated, p->V + i * width, (REAL)(p->a[i] / eta), i + 1);
  double twice = 0;
  for (int64_t i = 0; i < D; i++) {
    const REAL *row = p->V + i * width;
    double r = p->U[i * width + i], moved = -T(dot)(row, p->rotated, i + 1);
    p->shift[i] = (REAL)moved;
    twice += 1 / (r * r) - 1 + 2 * log(r) + T(dot)(row, row, i) + moved * moved;
  }
  return 0.5 * twice;
}

/* Of a function of an eigenvalue l of A, summed with weights whose moments 0 to 2 are known: the sum is taken over
   two points of equal weight. Two such sums make the KL divergence, with weights l^2 and, for the mean, b^2 where b
   is a in the eigenbasis. */
typedef struct {
  double point[2], weight;
} T(two_points);

static T(two_points) T(points)(double total, double first, double second) {
  double centre = total > 0 ? first / total : 0, variance = total > 0 ? second / total - centre * centre : 0;
  double deviation = variance > 0 ? sqrt(variance) : 0;
  return (T(two_points)){{centre - deviation, centre + deviation}, 0.5 * total};
}

/* About KL(eta), in units of `size`: f(x) / x^2 with x = l / eta and f(x) = log(1 + x) - x / (1 + x). */
static double T(about)(const T(two_points) *covariance, const T(two_points) *mean, double size, double eta) {
  double twice = 0;
  for (int i = 0; i < 2; i++) {
    double x = size * covariance->point[i] / eta, gap = eta + size * mean->point[i], unit = size / eta;
    if (!(x > -1) || !(gap > 0)) return NAN;
    double f = fabs(x) < 1e-3 ? 0.5 - x * (2. / 3 - x * (0.75 - x * 0.8)) : (log1p(x) - x / (1 + x)) / (x * x);
    twice += covariance->weight * unit * unit * f + mean->weight / (gap * gap);
  }
  return 0.5 * twice;
}

/* The log eta at which moments of the spectrum say that the KL is `aim`, and d log KL / d log eta there. */
static double T(guess)(const T(region) * p, double aim, double *slope) {
  int64_t D = p->D, width = p->width;
  REAL *square = p->R, *Aa = p->rotated;
  double traces[3] = {0}, moments[3] = {0};
  T(clear)(square, D * width);
  T(clear)(Aa, width);
  T(add_product)(square, p->A, p->A, width, D, width, D, 1);
  for (int64_t i = 0; i < D; i++) {
    const REAL *A = p->A + i * width, *B = square + i * width;
    traces[0] += B[i];
    traces[1] += 2 * (double)T(dot)(A, B, i) + (double)A[i] * B[i];
    traces[2] += 2 * (double)T(dot)(B, B, i) + (double)B[i] * B[i];
    Aa[i] = T(dot)(A, p->a, D);
  }
  for (int64_t i = 0; i < D; i++) {
    moments[0] += (double)p->a[i] * p->a[i];
    moments[1] += (double)p->a[i] * Aa[i];
    moments[2] += (double)Aa[i] * Aa[i];
  }
  T(two_points) covariance = T(points)(traces[0], traces[1], traces[2]);
  T(two_points) mean = T(points)(moments[0], moments[1], moments[2]);
  double size = p->size, shortest = sqrt(0.25 * traces[0] * size * size + 0.5 * moments[0]);
  if (!(shortest > 0)) return -INFINITY;
  double low = log(shortest) - 0.5 * log(aim) - AROUND, high = low + 2 * AROUND;
  for (int i = 0; i < HALVINGS; i++) {
    double middle = 0.5 * (low + high);
    if (T(about)(&covariance, &mean, size, exp(middle)) <= aim) high = middle;
    else low = middle;
  }
  double here = T(about)(&covariance, &mean, size, exp(high));
  double ratio = log(T(about)(&covariance, &mean, size, exp(high + APART)) / here);
  *slope = ratio < 0 ? fmin(fmax(ratio / APART, -200), -0.5) : -2;
  return high;
}

/* Finds the step; whether there is one. */
static int T(longest_step)(const T(region) * p, double bound, double temperature) {
  if (!(bound > 0) || !(temperature > 0)) return 0;
  double enough = (p->D <= FEW_DIMENSIONS ? 0.9999 : 0.99) * bound, aim = (bound + 2 * enough) / 3;
  double slope = -2, log_T = log(temperature);
  double t = fmax(T(guess)(p, aim, &slope), log_T), low = log_T - 1, high = INFINITY, tried = NAN;
  double last[2] = {NAN, NAN}; /* log eta and log KL */
  for (int n = 0; n < EVALUATIONS; n++) {
    double kl = T(kl)(p, t <= log_T ? temperature : exp(t)), wanted = INFINITY;
    tried = t;
    if (kl <= bound) high = fmin(high, t);
    else low = fmax(low, t);
    if (kl <= bound && (kl >= enough || t <= log_T)) break;
    if (high - low < EPSILON) break; /* rounding alone decides between them */
    if (isfinite(kl) && kl > 0) {
      double secant = (log(kl) - last[1]) / (t - last[0]);
      if (fabs(secant) < 1e3) slope = fmin(fmax(secant, -200), -0.5);
      last[0] = t, last[1] = log(kl);
      wanted = fmax(t + (log(aim) - last[1]) / slope, log_T);
    }
    int bracketed = isfinite(high);
    if (wanted > low && wanted < (bracketed ? high : t + 10)) t = wanted;
    else t = bracketed ? 0.5 * (low + high) : t + 1;
  }
  if (!isfinite(high)) return 0;
  if (tried != high) T(kl)(p, high <= log_T ? temperature : exp(high));
  return 1;
}

/* How far rounding may move a sample, in standard deviations: eps |W diag(|m| + s)|, s the coordinates' own. */
static double T(rounding)(const REAL *mean, const REAL *L, const REAL *W, int64_t D, int64_t width, REAL *sizes) {
  double total = 0;
  T(clear)(sizes, width);
  for (int64_t j = 0; j < D; j++) sizes[j] = (REAL)fabs(mean[j]) + SQRT(T(dot)(L + j * width, L + j * width, j + 1));
  for (int64_t i = 0; i < D; i++) {
    T(vec) row = {0};
    for (int64_t j = 0; j <= i; j += LANES) {
      T(vec) scaled = T(load)(W + i * width + j) * T(load)(sizes + j);
      row += scaled * scaled;
    }
    total += T(sum)(row);
  }
  return EPSILON * sqrt(total);
}

/* Task k: component k's update; it stays as it is where that fails. */
static int T(trust_region_component)(const void *data, int64_t k) {
  const T(trust_regions) *q = data;
  int64_t D = q->D, width = T(whole)(D), square = width * width;
  const REAL *A = q->A + k * D * D, *a = q->a + k * D;
  const REAL *mean = q->mean + k * D;
  const REAL *L = q->L + k * D * D, *W = q->W + k * D * D;
  REAL *new_mean = q->new_mean + k * D, *new_L = q->new_L + k * D * D;
  REAL *new_W = q->new_W + k * D * D;
  int ok = q->usable[k] && T(all_finite)(A, D * D) && T(all_finite)(a, D);
  REAL *workspace = ok ? T(allocate)(4 * square + (BLOCK + 4) * width) : NULL;
  if (ok && !workspace) return NO_MEMORY;
  if (ok) {
    T(region) p = {.D = D, .width = width, .A = workspace, .R = workspace + square, .U = workspace + 2 * square};
    p.V = workspace + 3 * square, p.block = workspace + 4 * square, p.a = p.block + BLOCK * width;
    p.shift = p.a + width, p.rotated = p.shift + width;
    REAL *moved = p.rotated + width;
    T(clear)(workspace, 4 * square + (BLOCK + 4) * width);
    p.size = fmin(fmax(T(largest_of)(A, D * D), LEAST_SIZE), MOST_SIZE);
    for (int64_t i = 0; i < D; i++) T(fill_row)(A + i * D, D, width, (REAL)(1 / p.size), p.A + i * width);
    T(fill_row)(a, D, width, 1, p.a);
    ok = T(longest_step)(&p, q->bound[k], *q->temperature);
    if (ok) {
      /* W' = R W is lower, and L' its inverse rather than L V^T: the two never drift apart. */
      REAL *old = p.A, *new = p.R, *inverse = p.V;
      T(lower_half)(L, D, width, old);
      for (int64_t i = 0; i < D; i++) moved[i] = mean[i] + T(dot)(old + i * width, p.shift, i + 1);
      T(lower_half)(W, D, width, old);
      T(lower_product)(p.U, old, D, width, new);
      T(transposed)(new, width, p.U);
      T(lower_inverse)(p.U, D, width, inverse);
      ok = T(all_finite)(new, D * width) && T(all_finite)(inverse, D * width) && T(all_finite)(moved, D);
      for (int64_t i = 0; i < D; i++) ok = ok && inverse[i * width + i] > 0;
      if (ok) {
        double rounding = T(rounding)(moved, inverse, new, D, width, p.a), most = *q->most_rounding;
        if (!(rounding <= most)) {
          T(lower_half)(L, D, width, p.U);
          ok = rounding <= T(rounding)(mean, p.U, old, D, width, p.a);
        }
      }
      for (int64_t i = 0; ok && i < D; i++) {
        new_mean[i] = moved[i];
        memcpy(new_L + i * D, inverse + i * width, D * sizeof(REAL));
        memcpy(new_W + i * D, new + i * width, D * sizeof(REAL));
      }
    }
    free(workspace);
  }
  q->ok[k] = (uint8_t)ok;
  if (ok) return DONE;
  memcpy(new_mean, mean, D * sizeof(REAL));
  memcpy(new_L, L, D * D * sizeof(REAL));
  memcpy(new_W, W, D * D * sizeof(REAL));
  return DONE;
}

static failure *T(trust_region)(const call *c, const trust_region_arrays *a) {
  T(trust_regions) p = {.K = a->a->dims[0], .D = a->a->dims[1], .A = a->A->data, .a = a->a->data,
                        .bound = a->bound->data, .usable = a->usable->data, .temperature = a->temperature->data,
                        .most_rounding = a->most_rounding->data, .mean = a->mean->data, .L = a->L->data,
                        .W = a->W->data, .new_mean = a->new_mean->data, .new_L = a->new_L->data,
                        .new_W = a->new_W->data, .ok = a->ok->data};
  return parallel(c, p.K, T(trust_region_component), &p);
}
