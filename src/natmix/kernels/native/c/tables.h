/* What follows from the table of kernels, kernels.def: the arrays of each kernel by name, and a structure of
   functions, one for each kernel, that every set of vector instructions has for either precision. */
#ifndef NATMIX_TABLES_H
#define NATMIX_TABLES_H

#include "call.h"

#define ARG(name, ...) const array *name;
#define RESULT(name, ...) array *name;
#define OPTIONAL_RESULT(name, ...) array *name; /* NULL if the call does not ask for it */
#define KERNEL(kernel, arguments, results) \
  typedef struct {                         \
    arguments results                      \
  } kernel##_arrays;
#include "each_kernel.h"

typedef struct {
#define KERNEL(kernel, arguments, results) failure *(*kernel)(const call *, const kernel##_arrays *);
#include "each_kernel.h"
} kernels;

typedef struct {
  const kernels *singles, *doubles;
} instruction_set;

#endif
