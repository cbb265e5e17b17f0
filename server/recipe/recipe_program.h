#ifndef BALLAST_SERVER_RECIPE_RECIPE_PROGRAM_H_
#define BALLAST_SERVER_RECIPE_RECIPE_PROGRAM_H_

#include <cstddef>
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
    // Of a record or an image, beside its share by its bytes.
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
  // its file, line and the reason), FAILED_PRECONDITION (no python3, or none
  // with what it imports), UNAVAILABLE (no process can be started).
  static absl::StatusOr<std::unique_ptr<RecipeProgram>> Open(
      const std::string& path, const Kind& kind, const Options& options);

  // Runs jobs with those of other threads. Blocks.
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
