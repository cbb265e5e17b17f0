#include "tests/fakes/malloc_counter.h"

#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>

#if defined(BALLAST_ASAN) || defined(BALLAST_TSAN)
#define BALLAST_COUNT_MALLOC 0
#else
#define BALLAST_COUNT_MALLOC 1
#endif

namespace ballast {
namespace {

std::atomic<uint64_t> calls = 0;
std::atomic<int64_t> bytes = 0;
std::atomic<int64_t> peak = 0;

}  // namespace

bool CanCountMalloc() { return BALLAST_COUNT_MALLOC; }

void StartMallocCount() {
  calls = 0;
  bytes = 0;
  peak = 0;
}

MallocCount ReadMallocCount() { return {calls, bytes, peak}; }

#if BALLAST_COUNT_MALLOC

void* Taken(void* memory) {
  if (memory == nullptr) return nullptr;
  calls.fetch_add(1, std::memory_order_relaxed);
  const auto size = static_cast<int64_t>(malloc_usable_size(memory));
  const int64_t now = bytes.fetch_add(size, std::memory_order_relaxed) + size;
  int64_t most = peak.load(std::memory_order_relaxed);
  while (now > most && !peak.compare_exchange_weak(most, now)) {
  }
  return memory;
}

void GivenBack(void* memory) {
  if (memory == nullptr) return;
  bytes.fetch_sub(static_cast<int64_t>(malloc_usable_size(memory)),
                  std::memory_order_relaxed);
}

#endif

}  // namespace ballast

#if BALLAST_COUNT_MALLOC

extern "C" {

void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* memory);

void* malloc(size_t size) { return ballast::Taken(__libc_malloc(size)); }

void* calloc(size_t count, size_t size) {
  return ballast::Taken(__libc_calloc(count, size));
}

void* realloc(void* memory, size_t size) {
  ballast::GivenBack(memory);
  return ballast::Taken(__libc_realloc(memory, size));
}

void* memalign(size_t alignment, size_t size) {
  return ballast::Taken(__libc_memalign(alignment, size));
}

void* aligned_alloc(size_t alignment, size_t size) {
  return ballast::Taken(__libc_memalign(alignment, size));
}

int posix_memalign(void** memory, size_t alignment, size_t size) {
  *memory = ballast::Taken(__libc_memalign(alignment, size));
  return *memory == nullptr ? ENOMEM : 0;
}

void free(void* memory) {
  ballast::GivenBack(memory);
  __libc_free(memory);
}

}  // extern "C"

#endif
