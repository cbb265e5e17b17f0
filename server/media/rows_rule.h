#ifndef BALLAST_SERVER_MEDIA_ROWS_RULE_H_
#define BALLAST_SERVER_MEDIA_ROWS_RULE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/helper_process.h"
#include "proto/audio_family.pb.h"
#include "proto/job.pb.h"
#include "proto/model.pb.h"
#include "proto/model_profile.pb.h"
#include "server/sample/medium.h"
#include "server/sample/medium_kind.h"
#include "server/sample/source_index.h"

namespace ballast {

// Media that travel as rows of numbers, float32, to an encoder of their own:
// audio, and the kinds that are added to the table. Such a kind is a folder
// that implements three functions: facts (RowsReader::ReadFacts), plan
// (RowsRule::Plan) and write (RowsReader::Write); and one row of the table
// (RowsKind). A model takes at most one of them. Images and videos travel as
// pixels or files instead.

// What a model makes of one medium.
struct RowsPlan {
  uint32_t rows = 0;          // that travel, at most kMaxClipRows
  uint32_t frames = 0;        // of these, the first that count
  uint64_t tokens = 0;        // placeholders in the text, an embedding each
  uint64_t decode_bytes = 0;  // memory that Write takes: an estimate
};

// Reads files of the kind for one model. Thread-safe; calls block on the disk.
class RowsReader {
 public:
  virtual ~RowsReader() = default;

  // The facts of a file from its head, without a clip's start and end.
  // `in_video`: of the audio of a video. Errors: a data fault (not such a file,
  // or one that no index can describe); UNAVAILABLE (it cannot be read, or has
  // changed meanwhile).
  virtual absl::StatusOr<StreamFacts> ReadFacts(const RawMedium& file,
                                                bool in_video) = 0;

  // Writes the plan's rows to `out`, of as many numbers. Errors: as ReadFacts;
  // a data fault also for a file that its facts do not describe.
  virtual absl::Status Write(const RawMedium& file, const StreamFacts& facts,
                             absl::Span<float> out) = 0;
};

// What a model makes of the media of one kind. Immutable.
class RowsRule {
 public:
  explicit RowsRule(MediumKind kind) : kind_(kind) {}
  virtual ~RowsRule() = default;

  MediumKind kind() const { return kind_; }

  // The same for equal facts on every machine: index, schedule and block have
  // one plan. Errors: data faults.
  virtual absl::StatusOr<RowsPlan> Plan(const StreamFacts& facts) const = 0;
  // The form of the rows in blocks and batches.
  virtual v1::Job::ClipShape shape() const = 0;
  // The text in place of a medium.
  virtual const v1::AudioFamily::Marks& marks() const = 0;
  // The order of a video's tokens and its audio's; nullptr: the model does not
  // take the audio of videos.
  virtual const v1::AudioFamily::InVideo* in_video() const { return nullptr; }
  // What an index of `model` depends on: KEY=VALUE in a line for the facts that
  // it holds of them, and KEY: VALUE for their plans.
  struct IndexKeys {
    std::string facts;
    std::string plans;
  };
  virtual IndexKeys index_keys(const v1::Model& model) const = 0;
  // All that rows and plans follow from besides the files, as entries of the
  // fingerprint: names after "model.", and values.
  virtual std::vector<std::pair<std::string, std::string>> fingerprint()
      const = 0;
  // OK if a reader can make the model's rows. Errors: INVALID_ARGUMENT.
  virtual absl::Status Check() const { return absl::OkStatus(); }
  // Reads for at most `threads` threads at a time. `counters` are of its
  // processes, if it has some; not owned, may be null.
  virtual std::unique_ptr<RowsReader> MakeReader(
      int threads, HelperCounters* counters) const = 0;

 private:
  const MediumKind kind_;
};

// A row of the table of kinds that are added.
struct RowsKind {
  MediumWords words;
  // Plural of what its encoder's cost counts; the encoder has the kind's name.
  absl::string_view unit;
  // The rule of a profile whose section `medium` names the kind. Errors:
  // INVALID_ARGUMENT, naming the key of the section, the value found and what
  // is wanted.
  absl::StatusOr<std::unique_ptr<RowsRule>> (*open)(
      MediumKind kind, const v1::MediumFamily& family);
};

// Adds the row, whose texts live for ever, to all tables that name kinds of
// media: of words and marks, and of modules. At most one is added. Call it
// before main: `static const auto kDepth = AddRowsKind({…});`.
MediumKind AddRowsKind(const RowsKind& row);

// The rule of a profile's section `medium`. Errors: as RowsKind::open;
// NOT_FOUND (no such kind).
absl::StatusOr<std::unique_ptr<RowsRule>> OpenRowsRule(
    const v1::MediumFamily& family);

}  // namespace ballast

#endif  // BALLAST_SERVER_MEDIA_ROWS_RULE_H_
