#ifndef BALLAST_SERVER_TEXT_BPE_SCRATCH_POOL_H_
#define BALLAST_SERVER_TEXT_BPE_SCRATCH_POOL_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <thread>

namespace ballast {

// Working memory that is expensive to create, lent to one thread at a time
// without a lock. A thread usually gets back the object it returned, still in
// its core's cache. Keeps at most kSlots objects. T is default-constructed.
// Thread-safe.
template <typename T>
class ScratchPool {
 public:
  ScratchPool() = default;
  ~ScratchPool() {
    for (Slot& slot : slots_) delete slot.scratch.load();
  }
  ScratchPool(const ScratchPool&) = delete;
  ScratchPool& operator=(const ScratchPool&) = delete;

  std::unique_ptr<T> Take() {
    std::unique_ptr<T> taken(OwnSlot().exchange(nullptr));
    return taken != nullptr ? std::move(taken) : std::make_unique<T>();
  }

  void Return(std::unique_ptr<T> scratch) {
    // Frees an object that another thread has put in the same slot meanwhile.
    std::unique_ptr<T> other(OwnSlot().exchange(scratch.release()));
  }

 private:
  static constexpr size_t kSlots = 256;
  // One cache line each, to avoid false sharing.
  struct alignas(64) Slot {
    std::atomic<T*> scratch = nullptr;
  };

  std::atomic<T*>& OwnSlot() {
    // Thread ids are addresses, whose low bits are all alike.
    const size_t id = std::hash<std::thread::id>()(std::this_thread::get_id());
    return slots_[(id * 0x9E3779B97F4A7C15u >> 56) % kSlots].scratch;
  }

  std::array<Slot, kSlots> slots_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_BPE_SCRATCH_POOL_H_
