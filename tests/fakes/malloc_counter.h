#ifndef BALLAST_TESTS_FAKES_MALLOC_COUNTER_H_
#define BALLAST_TESTS_FAKES_MALLOC_COUNTER_H_

#include <cstdint>

// Counts the allocations of this process, libraries included: linking this
// replaces malloc and its relatives by glibc's own with a count.
namespace ballast {

struct MallocCount {
  uint64_t calls = 0;  // since StartMallocCount
  int64_t bytes = 0;   // allocated and not freed since then
  int64_t peak = 0;    // the maximum of that
};

// False if a sanitizer replaces malloc: then nothing is counted.
bool CanCountMalloc();

// Counts over all threads.
void StartMallocCount();
MallocCount ReadMallocCount();

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_MALLOC_COUNTER_H_
