#ifndef BALLAST_SERVER_TEXT_SENTENCEPIECE_SENTENCEPIECE_TOKENIZER_H_
#define BALLAST_SERVER_TEXT_SENTENCEPIECE_SENTENCEPIECE_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/helper_pool.h"
#include "common/helper_process.h"
#include "common/mutex.h"
#include "server/text/text_token.h"

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
  // some stretches will be continued, and the model distinguishes them.
  // `patience`: as HelperProcess::Options. Blocks until the model is loaded.
  // Errors: INVALID_ARGUMENT (the library refuses the model, or crashes on it),
  // UNAVAILABLE (no process can be started, or it was killed),
  // FAILED_PRECONDITION (the process cannot run here: is libsentencepiece0
  // installed?).
  static absl::StatusOr<std::unique_ptr<SentencePieceHelper>> Start(
      std::string model, bool with_continued,
      absl::Duration patience = absl::Seconds(30));

  // Encodes all stretches. Blocks. Errors: a data fault (above 1 GiB in all;
  // the library's; the text is at fault for the end of a process, as
  // HelperProcess says), UNAVAILABLE (a process was killed or stopped, got no
  // memory, or cannot be started).
  absl::Status Encode(absl::Span<const Stretch> stretches,
                      Encoded* encoded) const;

 private:
  struct Waiting;

  SentencePieceHelper(std::string model, bool with_continued,
                      absl::Duration patience);

  // Gives the model to a new process.
  absl::Status Load(HelperProcess* holder) const;
  // Has a process forked that encodes.
  absl::StatusOr<HelperChild> Fork() const;
  static absl::Status AskFor(HelperPool::Worker* worker,
                             absl::Span<HelperPool::Job* const> jobs);

  const std::string model_;
  const bool with_continued_;
  const absl::Duration patience_;
  mutable Mutex mutex_;
  // The process that holds the model.
  mutable HelperProcess holder_ ABSL_GUARDED_BY(mutex_);
  mutable HelperPool encoders_;
};

// Creates the tokenizer of a SentencePiece model; `file` is the file's content.
// Its ids equal SentencePieceProcessor.encode's, with two differences
// (docs/text.md): control symbols spelled out in a text are matched first, as
// Hugging Face does; and the space that the model puts before a text is put
// nowhere else, neither after such a symbol nor before a user-defined one. Runs
// libsentencepiece in separate processes (SentencePieceHelper). Errors: as
// ParseSentencePieceModel and SentencePieceHelper::Start.
absl::StatusOr<std::unique_ptr<Tokenizer>> MakeSentencePieceTokenizer(
    std::string file);

}  // namespace ballast

#endif  // BALLAST_SERVER_TEXT_SENTENCEPIECE_SENTENCEPIECE_TOKENIZER_H_
