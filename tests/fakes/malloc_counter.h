#ifndef BALLAST_TESTS_FAKES_MALLOC_COUNTER_H_
#define BALLAST_TESTS_FAKES_MALLOC_COUNTER_H_

#include <cstdint>

// Counts what this process, its libraries included, takes from the allocator:
// linking this in replaces malloc and its relatives by glibc's own with a
// count.
namespace ballast {

struct MallocCount {
  uint64_t calls = 0;  // since StartMallocCount
  int64_t bytes = 0;   // taken and not given back, since then
  int64_t peak = 0;    // the most of that
};

// False where a sanitizer has malloc for itself: then nothing is counted.
bool CanCountMalloc();

// Of all threads together.
void StartMallocCount();
MallocCount ReadMallocCount();

}  // namespace ballast

#endif  // BALLAST_TESTS_FAKES_MALLOC_COUNTER_H_
