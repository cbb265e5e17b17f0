#ifndef BALLAST_SERVER_RECIPE_RECIPE_H_
#define BALLAST_SERVER_RECIPE_RECIPE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/helper_pool.h"
#include "common/mutex.h"
#include "server/recipe/recipe_program.h"

namespace ballast {

class ImageRecipe;

// A record as a recipe is given it (trainer_shim/python/ballast/recipe.py).
struct RecipeRecord {
  enum class Kind : uint32_t {
    kLine,     // `text` is an object of JSON
    kMembers,  // `parts` are the members of a tar's sample
    // `text` is an object with the columns; {"$ballast.media": N} in place of
    // bytes is part N.
    kRow,
  };
  struct Part {
    std::string name;
    uint64_t size = 0;
    // Unset: they stay in the data file.
    std::optional<std::string> bytes;
  };
  Kind kind = Kind::kLine;
  // Of its source, and its place: for messages and random numbers.
  std::string source;
  std::string name;
  std::string text;
  std::vector<Part> parts;

  // Bytes that a process is sent.
  size_t bytes() const;
  // A hash of all that the recipe is given, but `source` and `name`.
  uint32_t hash() const;
};

// The record for readers, as an object of JSON: its name, its line or columns,
// and its media without their bytes.
std::string RecordJson(const RecipeRecord& record);

// A sample as a recipe has made it of a record.
struct CookedSample {
  // The number of a part, or a path below media_root. Not checked.
  using Medium = std::variant<uint32_t, std::string>;
  struct Video {
    std::vector<Medium> parts;
    bool is_list = false;
    bool is_audio = false;  // of a form alone
  };
  bool is_document = false;  // else `text` is a conversation's JSON
  std::string text;
  std::string fields;  // of a document: the JSON object of its fields, or ""
  std::vector<Medium> images;
  std::vector<Video> videos;
  uint32_t hash = 0;  // of all the above
};

// A recipe's function `cook` (RecipeProgram). Thread-safe.
class Recipe {
 public:
  using Options = RecipeProgram::Options;

  // Blocks. Errors: as RecipeProgram::Open.
  static absl::StatusOr<std::shared_ptr<const Recipe>> Open(
      const std::string& path, const Options& options);

  // The samples of records; nullopt leaves a record out. Blocks.
  // Errors, of each record: a data fault (an exception, with the recipe's file
  // and line; over the limits of time, memory and length; an end of the
  // process, as HelperProcess says), UNAVAILABLE (a process was killed or
  // cannot be started).
  std::vector<absl::StatusOr<std::optional<CookedSample>>> Cook(
      absl::Span<const RecipeRecord* const> records) const;

  // Equal names give equal samples of equal records.
  const std::string& name() const { return program_->name(); }
  const std::string& text() const { return program_->text(); }
  void Restart() const { program_->Restart(); }

 private:
  struct Waiting;

  explicit Recipe(std::unique_ptr<RecipeProgram> program)
      : program_(std::move(program)) {}

  static absl::Status AskFor(HelperPool::Worker* worker,
                             absl::Span<HelperPool::Job* const> jobs);

  const std::unique_ptr<RecipeProgram> program_;
};

// The recipes of this process, by path: each is opened once, and again if its
// file has changed. Thread-safe.
class Recipes {
 public:
  static Recipes& OfProcess();

  // Most processes of each recipe that is opened from now on.
  void SetProcesses(size_t processes);
  // Errors: as Recipe::Open, with the path.
  absl::StatusOr<std::shared_ptr<const Recipe>> Get(const std::string& path);
  // Likewise, of a recipe for images.
  absl::StatusOr<std::shared_ptr<const ImageRecipe>> GetForImages(
      const std::string& path);

 private:
  template <typename T>
  using Opened = std::vector<std::pair<std::string, std::shared_ptr<const T>>>;

  template <typename T>
  absl::StatusOr<std::shared_ptr<const T>> GetAmong(const std::string& path,
                                                    Opened<T>* opened)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Held while one is opened, so that it is opened once.
  Mutex mutex_;
  size_t processes_ ABSL_GUARDED_BY(mutex_) = 1;
  Opened<Recipe> recipes_ ABSL_GUARDED_BY(mutex_);
  Opened<ImageRecipe> image_recipes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace ballast

#endif  // BALLAST_SERVER_RECIPE_RECIPE_H_
