/* Everything for one type, whose constants the including file has defined; they are forgotten afterwards.

   NEGLIGIBLE_SHARE is the share of a sum that changes no digit of it, 1e-5 roundings, and LOG_NEGLIGIBLE is its
   logarithm. It is a share of the weights: what they multiply is taken to differ by less than that. */
#define LANES (VECTOR_BYTES / REAL_BYTES)
#include "vectors.h"

#include "densities.h"
#include "weights.h"
#include "outer.h"
#include "triangles.h"
#include "moments.h"
#include "ridge.h"
#include "regressions.h"
#include "trust_region.h"
#include "logistic.h"
#include "network.h"
#if REAL_BYTES == 4
#include "draws.h"
#endif

#define TABLE                                                                                            \
  {                                                                                                      \
    TILE, T(log_prob), T(relevant), T(unseen), T(nearest_means), T(mixture_log_prob), T(meet), T(score), \
        T(pulled), T(moments), T(gather_moments), T(largest), T(sums), T(log_sums), T(sample_sums),      \
        T(regressions), T(solve_regressions), T(trust_region), T(logistic), T(logistic_minibatch), T(network)                             \
  }
static const kernels T(table) = TABLE;

#undef LANES
#undef LOW_TURNS
#undef HIGH_TURNS
#undef SHUFFLE
#undef TABLE
#undef T
#undef REAL_BYTES
#undef REAL
#undef INTEGER
#undef MANTISSA
#undef ROUNDING
#undef LOG2_HIGH
#undef LOG2_LOW
#undef EXP_LOW
#undef EXP_HIGH
#undef EXP_COEFFICIENTS
#undef NEGLIGIBLE_SHARE
#undef LOG_NEGLIGIBLE
#undef EPSILON
#undef LOG
#undef SQRT
