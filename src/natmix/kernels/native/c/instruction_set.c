/* All kernels of the library for one set of vector instructions: BUILD is its name. */
#include "tables.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "parallel.h"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

#if defined(__AVX512F__)
#define VECTOR_BYTES 64
#define VECTORS 4
#define OUTER_ROWS 8
#elif defined(__AVX2__)
#define VECTOR_BYTES 32
#define VECTORS 2
#define OUTER_ROWS 6
#else
#define VECTOR_BYTES 16
#define VECTORS 2
#define OUTER_ROWS 6
#endif
#define ROWS 4
#define UNROLL _Pragma("GCC unroll 16")

#define T(name) JOIN(name, _single)
#define REAL float
#define REAL_BYTES 4
#define INTEGER int32_t
#define MANTISSA 23
#define ROUNDING 12582912.0f
#define LOG2_HIGH 0.693359375f
#define LOG2_LOW -2.12194440e-4f
#define EXP_LOW -87.33f
#define EXP_HIGH 88.72f
#define EXP_COEFFICIENTS {1.f / 5040, 1.f / 720, 1.f / 120, 1.f / 24, 1.f / 6, 0.5f, 1.f, 1.f}
#define NEGLIGIBLE_SHARE 1e-12f
#define LOG_NEGLIGIBLE -27.64f
#define EPSILON 1.1920929e-7f
#define LOG logf
#define SQRT sqrtf
#include "real_type.h"

#define T(name) JOIN(name, _double)
#define REAL double
#define REAL_BYTES 8
#define INTEGER int64_t
#define MANTISSA 52
#define ROUNDING 6755399441055744.0
#define LOG2_HIGH 6.93145751953125e-1
#define LOG2_LOW 1.42860682030941723212e-6
#define EXP_LOW -708.39
#define EXP_HIGH 709.78
#define EXP_COEFFICIENTS                                                                                 \
  {1. / 6227020800, 1. / 479001600, 1. / 39916800, 1. / 3628800, 1. / 362880, 1. / 40320, 1. / 5040,     \
   1. / 720, 1. / 120, 1. / 24, 1. / 6, 0.5, 1., 1.}
#define NEGLIGIBLE_SHARE 2e-21
#define LOG_NEGLIGIBLE -47.67
#define EPSILON 2.220446049250313e-16
#define LOG log
#define SQRT sqrt
#include "real_type.h"

const instruction_set JOIN(natmix_, BUILD) = {&kernels_single, &kernels_double};
