#ifndef BALLAST_TESTS_FAKES_MALLOC_COUNTER_H_
#define BALLAST_TESTS_FAKES_MALLOC_COUNTER_H_

#include <cstdint>

// Counts the allocations of this process, libraries included. Linking this
// replaces malloc and its relatives by glibc's own with a count.
namespace ballast {

struct MallocCount {
  uint64_t calls = 0;  // since StartMallocCount
  int64_t bytes = 0;   // allocated since then and not freed
  int64_t peak = 0;    // the maximum of `bytes`
};

// False if a sanitizer replaces malloc; then nothing is counted.
bool CanCountMalloc();

// Starts counting over all threads.
void StartMallocCount();
MallocCount ReadMallocCount();

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_MALLOC_COUNTER_H_
