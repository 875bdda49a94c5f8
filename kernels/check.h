// FLASH_CHECK: for our own bugs (a wrong shape, a broken invariant), never for
// anything that a client, a file or a flag can cause. Says where, and aborts.

#ifndef KERNELS_CHECK_H_
#define KERNELS_CHECK_H_

#include <cstdio>
#include <cstdlib>

#define FLASH_CHECK(condition)                                              \
  do {                                                                      \
    if (!(condition)) [[unlikely]] {                                        \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, \
                   #condition);                                             \
      std::abort();                                                         \
    }                                                                       \
  } while (false)

#endif  // KERNELS_CHECK_H_
