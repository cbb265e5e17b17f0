#ifndef BALLAST_SERVER_TEXT_SENTENCEPIECE_HELPER_PROCESS_H_
#define BALLAST_SERVER_TEXT_SENTENCEPIECE_HELPER_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/mutex.h"
#include "common/owned_fd.h"
#include "server/text/bpe/scratch_pool.h"

namespace ballast {

// Runs libsentencepiece with one model in separate processes (helper.cc): one
// that holds the model, started here, and one for each text that is encoded at
// the same time. They end with this object or with the server, however it ends.
// If one dies, only its text is affected; the next text gets a new process.
// Thread-safe.
class SentencePieceHelper {
 public:
  // A part of a text. `continued`: something precedes it.
  struct Stretch {
    absl::string_view text;
    bool continued = false;
  };
  // The ids of all stretches, concatenated.
  struct Encoded {
    std::vector<uint32_t> counts;  // number of ids, by stretch
    std::vector<int32_t> ids;      // not checked against the model
    // The end of each id in its stretch, in bytes: within the stretch, and not
    // before the previous end.
    std::vector<uint32_t> ends;
  };

  // Starts the process. `model` is a serialised ModelProto. `with_continued`:
  // some stretches will be continued, and the model distinguishes them. Blocks
  // until the model is loaded. Errors: INVALID_ARGUMENT (the library refuses
  // the model, or crashes on it), UNAVAILABLE (no process can be started),
  // FAILED_PRECONDITION (the process cannot run here: is libsentencepiece0
  // installed?).
  static absl::StatusOr<std::unique_ptr<SentencePieceHelper>> Start(
      std::string model, bool with_continued);

  ~SentencePieceHelper();

  // Encodes all stretches. Blocks. Errors: INVALID_ARGUMENT (above 1 GiB in
  // all; the library's; a process died of the text twice), UNAVAILABLE (no
  // process can be started).
  absl::Status Encode(absl::Span<const Stretch> stretches,
                      Encoded* encoded) const;

 private:
  struct Connection {
    OwnedFd socket;
    std::string request;
  };

  SentencePieceHelper(std::string model, bool with_continued)
      : model_(std::move(model)), with_continued_(with_continued) {}

  absl::Status Launch() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Stop() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool HandOver(int socket) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts a new process and returns a socket to it.
  absl::StatusOr<OwnedFd> Connect() const;

  const std::string model_;
  const bool with_continued_;
  mutable Mutex mutex_;
  mutable OwnedFd control_ ABSL_GUARDED_BY(mutex_);
  mutable pid_t process_ ABSL_GUARDED_BY(mutex_) = -1;
  mutable ScratchPool<Connection> connections_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_SENTENCEPIECE_HELPER_PROCESS_H_
