/* Every line of the library's table, by what the including file takes KERNEL, KERNEL_SINGLE (KERNEL if not defined),
   ARG, RESULT and OPTIONAL_RESULT to be; they are forgotten afterwards. Angle brackets: each library has a table of its
   own, which the include path finds first. */
#ifndef KERNEL_SINGLE
#define KERNEL_SINGLE KERNEL
#endif
#include <kernels.def>
#undef KERNEL
#undef KERNEL_SINGLE
#undef ARG
#undef RESULT
#undef OPTIONAL_RESULT
