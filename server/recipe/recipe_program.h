#ifndef BALLAST_SERVER_RECIPE_RECIPE_PROGRAM_H_
#define BALLAST_SERVER_RECIPE_RECIPE_PROGRAM_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/helper_pool.h"
#include "common/mutex.h"
#include "common/python_helper.h"

// The requests to the programs that run recipes (cooker.py, imager.py), and
// their answers, as frames of common/python_helper.h. Their box closes after
// kLoad.
//
//   kLoad    JSON: path and text of the recipe, the limits below
//            -> kDone and JSON {"versions": "python-3.11.7+numpy-1.24.2"}, or
//            kRefused and why; kNoPackage: because of a package that is
//            missing. imager.py adds what the recipe has: {"plans": true,
//            "draws": false, "most_tokens": 0, "pixels": true}
//   kCook    the number of records (uint32_t), a Head for each; then for each
//            its source, a zero and its name, its text, and for each of its
//            parts a Part, its name and its bytes
//            -> kDone: for each record an Outcome, its text, and its media:
//            JSON {"images": [R, ...], "videos": [R or [R, ...], ...]} with R
//            the number of a part or a path; of a document with fields also
//            "fields", an object; empty without any
//   kPlan    the number of images (uint32_t), for each Facts, source and split
//            -> kDone: for each image an Outcome and its plan: JSON {"crops":
//            [[H, W] or [H, W, left, top, right, bottom], ...], "tokens": N or
//            null, "text": ["<img>", 256, ...] or null}
//   kPixels  the same, and the plan and the pixels of each image
//            -> kDone: for each image an Outcome and the pixels of its crops
namespace ballast::recipe_helper {

enum RequestKind : uint32_t { kLoad = 2, kCook, kPlan, kPixels };
enum AnswerKind : uint32_t { kDone, kRefused, kNoPackage };

struct Head {
  uint32_t kind;  // RecipeRecord::Kind
  uint32_t name;  // bytes, with the source
  uint32_t text;
  uint32_t parts;
};

struct Part {
  uint64_t size;
  uint32_t name;   // bytes
  uint32_t bytes;  // kNone: they stay in the data file
};
inline constexpr uint32_t kNone = 0xFFFFFFFF;

struct Facts {
  uint64_t seed;
  uint64_t epoch;
  uint64_t ordinal;
  uint32_t width;
  uint32_t height;
  uint32_t images;
  uint32_t number;
  uint32_t source;  // bytes
  uint32_t split;
  uint32_t plan;
  uint32_t pixels;
};

enum OutcomeKind : uint32_t {
  kGave,  // of kCook a conversation
  kDocument,
  kLeftOut,
  kFault,
  kTooLong,  // it took more processor time than it may
  // Of kCook a conversation as texts with a zero between two: the key of the
  // turns, the two keys of each turn, and the two texts of each.
  kTurns,
};

struct Outcome {
  uint32_t kind;
  uint32_t text;   // bytes; of kFault and kTooLong the reason
  uint32_t media;  // bytes; of kPixels the crops
};

// The most processor time of a record or an image: kBaseSeconds and the time of
// its bytes. The recipe's own beginning may take kBaseSeconds.
inline constexpr double kBaseSeconds = 20;
inline constexpr double kBytesPerSecond = 100'000;
inline constexpr double kPixelBytesPerSecond = 10'000'000;
inline constexpr double kLoadSeconds = 300;
// The most memory of a process, and bytes of what it makes of a record.
inline constexpr uint64_t kMaxMemory = uint64_t{4} << 30;
inline constexpr uint64_t kMaxBytes = uint64_t{64} << 20;

}  // namespace ballast::recipe_helper

namespace ballast {

// A recipe's file in processes of Python that run its functions in boxes
// (helper_pool.h, python_helper.h): the first python3 that has what it imports.
// Thread-safe.
class RecipeProgram {
 public:
  // The longest file.
  static constexpr size_t kMaxFileBytes = size_t{4} << 20;

  struct Options {
    // Most processes; at least 1.
    size_t processes = 1;
    // Of a record or an image, without its share by its bytes.
    double seconds = 20;
    absl::Duration patience = absl::Seconds(60);
  };
  // The program that calls the functions: cooker.py or imager.py.
  struct Kind {
    PythonModule module;
    double bytes_per_second;
    // As HelperPool::Options::ask.
    absl::Status (*ask)(HelperPool::Worker* worker,
                        absl::Span<HelperPool::Job* const> jobs);
  };

  // Reads the file, starts a process and runs the recipe's own beginning in it.
  // Blocks. Errors: as ReadSmallFile; INVALID_ARGUMENT (the recipe is refused:
  // its file, line and the reason), FAILED_PRECONDITION (no python3, or a
  // module that the recipe imports is missing), UNAVAILABLE (no process can be
  // started).
  static absl::StatusOr<std::unique_ptr<RecipeProgram>> Open(
      const std::string& path, const Kind& kind, const Options& options);

  // Runs jobs together with other threads' jobs. Blocks.
  void Run(absl::Span<HelperPool::Job* const> jobs) const { pool_->Run(jobs); }
  // Ends the processes, so that the next jobs meet new ones.
  void Restart() const { pool_->Restart(); }

  // HASH+python-VERSION+PACKAGE-VERSION...: equal names give equal answers.
  const std::string& name() const { return name_; }
  const std::string& text() const { return text_; }
  // The program's answer to kLoad.
  const nlohmann::json& facts() const { return *facts_; }

 private:
  RecipeProgram(std::string path, std::string text, const Kind& kind,
                const Options& options);

  void MakePool(const std::string& python);
  absl::Status Prepare(HelperProcess* helper) const;

  const std::string path_;
  const std::string text_;
  const Kind kind_;
  const Options options_;
  mutable Mutex mutex_;
  // Written once, by Open.
  mutable std::string name_;
  mutable std::shared_ptr<const nlohmann::json> facts_;
  std::unique_ptr<HelperPool> pool_;
};

// The status of kFault and kTooLong, whose reason comes from a process that has
// run untrusted code. False: the outcome is of another kind, or the reason is
// no text.
bool ReadRecipeFault(uint32_t outcome, absl::string_view reason,
                     absl::Status* status);

}  // namespace ballast

#endif  // BALLAST_SERVER_RECIPE_RECIPE_PROGRAM_H_
