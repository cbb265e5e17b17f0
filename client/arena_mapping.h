#ifndef BALLAST_CLIENT_ARENA_MAPPING_H_
#define BALLAST_CLIENT_ARENA_MAPPING_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/buffer_pool.h"
#include "common/mutex.h"
#include "proto/block/block_layout.h"

namespace ballast {

// A server's arena (proto/block/block_layout.h), mapped for reading. Keeps the
// mapping but no open file, so no file is left, however the client ends, and
// the pages stay valid while mapped, even if the server is gone. Trusts the
// server not to shorten the file.
class ArenaMapping final : public MemoryRegion {
 public:
  // Maps the file at `path`, which must be an arena of `bytes` bytes with `id`.
  // Errors: NOT_FOUND, PERMISSION_DENIED, FAILED_PRECONDITION (the path holds
  // another file), UNAVAILABLE; messages say what to check.
  static absl::StatusOr<std::shared_ptr<const ArenaMapping>> Open(
      const std::string& path, uint64_t bytes, const std::string& id);
  ~ArenaMapping() override;

  absl::Span<const uint8_t> bytes() const override { return {base_, bytes_}; }
  bool read_only() const override { return true; }

  const std::string& id() const { return id_; }
  // Proves to the server that this is its arena.
  const std::string& nonce() const { return nonce_; }

  // The `bytes` bytes at `offset`. Errors: INTERNAL, naming both, if no block
  // can be there.
  absl::StatusOr<absl::Span<const uint8_t>> Block(uint64_t offset,
                                                  uint64_t bytes) const;
  // The stamp of a block that Block returned.
  const ArenaStamp* stamp(uint64_t offset) const {
    return reinterpret_cast<const ArenaStamp*>(base_ + offset -
                                               kArenaStampBytes);
  }

 private:
  ArenaMapping() = default;

  const uint8_t* base_ = nullptr;
  uint64_t bytes_ = 0;
  std::string id_;
  std::string nonce_;
};

// The arena of one server, mapped once and shared by all its current users. If
// it cannot be mapped, logs once why blocks come over the stream. Thread-safe.
class ArenaCache {
 public:
  // Null if the arena cannot be mapped. `server` is for the log.
  std::shared_ptr<const ArenaMapping> Get(const std::string& server,
                                          const std::string& path,
                                          uint64_t bytes,
                                          const std::string& id);

 private:
  Mutex mutex_;
  std::weak_ptr<const ArenaMapping> mapping_ ABSL_GUARDED_BY(mutex_);
  std::string failed_id_ ABSL_GUARDED_BY(mutex_);  // the last one logged
};

}  // namespace ballast

#endif  // BALLAST_CLIENT_ARENA_MAPPING_H_
