/* All kernels of the library for one type of real numbers, whose constants the including file has defined; they are
   forgotten afterwards.

   NEGLIGIBLE_SHARE is the share of a sum that is negligible at working precision, 1e-5 roundings, and LOG_NEGLIGIBLE is
   its logarithm. It is a share of the weights: what they multiply is taken to differ by less than that. */
#define LANES (VECTOR_BYTES / REAL_BYTES)
#include "vectors.h"
#include "tiles.h"

#define INCLUDE_KERNELS
#include <kernels.def>
#undef INCLUDE_KERNELS

static const kernels T(kernels) = {
#define KERNEL(name, arguments, results) .name = T(name),
#if REAL_BYTES == 8
#define KERNEL_SINGLE(name, arguments, results)
#endif
#include "each_kernel.h"
};

#undef LANES
#undef LOW_TURNS
#undef HIGH_TURNS
#undef SHUFFLE
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
