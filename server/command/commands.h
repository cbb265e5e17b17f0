#ifndef BALLAST_SERVER_COMMAND_COMMANDS_H_
#define BALLAST_SERVER_COMMAND_COMMANDS_H_

#include <cstdint>
#include <functional>
#include <istream>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/command_line.h"
#include "proto/config.pb.h"
#include "proto/image/resample_weights.h"
#include "server/data/journal.h"
#include "server/data/mock_source.h"
#include "server/job/index_sources.h"
#include "server/media/audio/audio_plan.h"
#include "server/media/image/image.h"
#include "server/media/image_plan/image_family.h"
#include "server/media/image_plan/image_planner.h"
#include "server/media/video/video_plan.h"
#include "server/sample/source_index.h"
#include "server/text/text_token.h"

// The commands of ballast-server, each in a file of its name. server/main.cc
// adds them.

namespace ballast {

// ---- serve ------------------------------------------------------------------

// Adds `serve`, which serves a configuration until SIGTERM or SIGINT, then
// drains.
void AddServe(CommandLine* line);

// What `serve` does with its signals, as a state machine without threads or
// clocks. SIGTERM and SIGINT end a server: at once while it starts; later it
// drains, within the time that is promised. Thread-compatible.
class SignalRule {
 public:
  enum class Phase {
    kStarting,  // the data is being opened
    kServing,
    kDraining,  // blocks in transmission are being sent
    kClosing,   // all streams have ended
  };
  enum class Act {
    kNone,
    kReload,
    kDrain,
    kEnd,  // the process must end now, with exit_status() and reason()
  };

  explicit SignalRule(absl::Duration promised) : promised_(promised) {}

  // Phases follow one another in their order.
  void SetPhase(Phase phase) { phase_ = phase; }

  // `signal` arrived: SIGHUP, SIGTERM or SIGINT. The first SIGTERM or SIGINT of
  // a server that serves drains it 100 ms later; one that follows earlier
  // counts as the same, since `timeout` and some shells send one to the process
  // and one to its group.
  Act OnSignal(int signal, absl::Time now);
  // No signal arrived until `now`.
  Act OnTime(absl::Time now);
  // When to call OnTime.
  absl::Time deadline() const;

  // After kDrain: the signal.
  int signal() const { return signal_; }
  // After kEnd. The status of a process killed by the signal (143, 130); at the
  // deadline 0 if all streams have ended, otherwise 1.
  int exit_status() const { return exit_status_; }
  const std::string& reason() const { return reason_; }

 private:
  const absl::Duration promised_;
  Phase phase_ = Phase::kStarting;
  int signal_ = 0;                             // that drains
  absl::Time first_ = absl::InfiniteFuture();  // when it came
  bool drains_ = false;
  int exit_status_ = 0;
  std::string reason_;
};

// "SIGTERM"
std::string SignalName(int signal);

// The signals of `serve`. No handler runs for them: they are blocked in every
// thread, and one thread waits for them until the process ends. So a signal
// acts whatever blocks the other threads, also while objects are being
// destroyed. Ending the process at once leaves the rest to the kernel; the next
// server removes the arena's file (docs/operations.md).
class ServeSignals {
 public:
  // Once a process, before any thread starts. From SIGTERM on the process ends
  // within `promised`, also after this is destroyed. Errors: as StartThread.
  static absl::StatusOr<ServeSignals> Start(absl::Duration promised);

  void SetPhase(SignalRule::Phase phase);
  // Waits at most `most` for SIGHUP, or the first SIGTERM or SIGINT, and
  // returns it; 0 if none came.
  int Await(absl::Duration most);

 private:
  struct State;
  explicit ServeSignals(State* state) : state_(state) {}
  static void Run(State* state);

  State* const state_;  // lives until the process ends
};

// ---- index ------------------------------------------------------------------

// Adds `index`, which builds or refreshes the index of every source.
void AddIndex(CommandLine* line);

// ---- init, inspect family ---------------------------------------------------

// Adds `init`, which looks at a folder and writes a configuration for it.
void AddInit(CommandLine* line);

// Adds `inspect family`, which prints a released model's family as YAML.
void AddInspectFamily(CommandLine* line, Command* inspect);

// ---- fetch, preview ---------------------------------------------------------

// Adds the command `fetch`, which fills the cache of a node before training.
void AddFetch(CommandLine* line);

// Adds `preview`, which shows samples in a browser as the trainer will get
// them.
void AddPreview(CommandLine* line);

// ---- make-corpus, repack ----------------------------------------------------

// Adds `make-corpus`, which draws a dataset.
void AddMakeCorpus(CommandLine* line);

// Adds `repack`: writes the samples of a source as WebDataset tars.
void AddRepack(CommandLine* line);

// ---- plan -------------------------------------------------------------------

// Adds `plan`, which prints the schedule without a server.
void AddPlan(CommandLine* line);

// The steps of train at which order or batch change, for `plan --changes`: step
// 0 and each further one with its first position, samples a step, the samples
// that a skip leaves out before it, and the weights of the sources. One JSON
// object a line, or a table. Reads no file. Errors: as PlanSteps.
absl::StatusOr<std::string> DescribeChanges(const v1::Config& config,
                                            bool json);

// ---- pack -------------------------------------------------------------------

// Adds `pack`, which packs samples offline into a plan file.
void AddPack(CommandLine* line);

// ---- inspect: whose rules ---------------------------------------------------

// Adds --rules, as model.rules, to a command with --model.
void AddRules(Command* command, std::string* rules);

// The name of the model under --rules.
std::string UnderRules(const std::string& model, const std::string& rules);

// ---- inspect image ----------------------------------------------------------

// Adds `inspect image`, which prints sizes, tokens and pixel hashes of image
// files.
void AddInspectImage(CommandLine* line, Command* inspect);

// Runs the command on any files and stream: one JSON object a file, in order,
// with {file, width, height, resized_h, resized_w, grid_thw, image_tokens,
// rgb_sha256, resized_sha256}, or {file, error}. `model` is complete. Errors:
// INVALID_ARGUMENT after all files, with how many of them failed; UNAVAILABLE
// at once if `out` fails.
absl::Status InspectImages(const v1::Model& model,
                           absl::Span<const std::string> files,
                           std::ostream& out);

// How `inspect image` shows a family that is not Qwen's.
struct FamilyInspection {
  ImageOptions image;   // the library of its resampling, not the filter
  uint32_t images = 1;  // of each image's sample
  bool with_text = false;
};

// Likewise for a family that is not Qwen's, with the keys of InspectFamily.
absl::Status InspectFamilyImages(const ImagePlanner& planner,
                                 const FamilyInspection& how,
                                 absl::Span<const std::string> files,
                                 std::ostream& out);

// Adds what the model of `planner` sees of the image file `bytes` to an object
// of `inspect image`: width, height, grid_thw (models of one crop that is cut
// into patches), tile_grid (rows and columns, if the image is cut),
// image_tokens, text if `how.with_text` (texts and lengths of runs of
// placeholders; empty for encoders), resample, rgb_sha256, and crops or
// patches. `decoder` has the options how.image. Errors: as
// ImageDecoder::Decode, ImagePlanner::Plan and MakeCrops.
absl::Status InspectFamily(const ImagePlanner& planner,
                           const FamilyInspection& how, absl::string_view bytes,
                           ImageDecoder& decoder,
                           nlohmann::ordered_json& object);

// The 8-bit values of an image as its processor arranges them, before it
// normalises them.
struct PatchBytes {
  std::vector<uint64_t> shape;
  std::vector<uint8_t> values;
};

// Arranges the crops of one image. `family.layout` is not kCrops; the crops'
// sides are multiples of family.patch (and of patch*merge for kMergeOrder).
PatchBytes ArrangePatches(absl::Span<const RgbImage> crops,
                          const ImageFamily& family);

// ---- inspect video ----------------------------------------------------------

// How `inspect video` reads videos.
struct InspectVideoOptions {
  VideoModel model;
  VideoClip clip;
  // Draws the frames; empty: derived from the video's facts, as in a job.
  std::optional<uint64_t> seed;
  ResampleLibrary library = ResampleLibrary::kPillow12;
  bool apply_rotation = true;
  // False: plans alone, `frames_sha256` is left out.
  bool decode = true;
};

// Adds `inspect video` to `inspect`.
void AddInspectVideo(CommandLine* line, Command* inspect);

// Writes one JSON object a line for each video, in order: {file, container,
// codec, width, height, rotation, frames, fps, seconds_in_header,
// variable_rate, scan, key_frames, sampled, packets_to_decode, resized_h,
// resized_w, grid_thw, video_tokens, seconds, second_per_grid_ts,
// frames_sha256}, or {file, error}. A folder is a video whose frames are its
// images (JPEG, PNG, WebP), by name, all of which are used. Errors:
// INVALID_ARGUMENT after all files, with how many of them failed; UNAVAILABLE
// at once if `out` fails.
absl::Status InspectVideos(const InspectVideoOptions& options,
                           absl::Span<const std::string> files,
                           std::ostream& out);

// ---- inspect audio ----------------------------------------------------------

// How `inspect audio` reads audio.
struct InspectAudioOptions {
  std::string model;  // of AudioFamilyNames()
  AudioClip clip;
  // False: plans alone, `features_sha256` is left out.
  bool decode = true;
};

// Adds `inspect audio` to `inspect`.
void AddInspectAudio(CommandLine* line, Command* inspect);

// Writes one JSON object a line for each file, in order: {file, format, rate,
// channels, samples, scan, frames, audio_tokens, features_sha256}, or {file,
// error}. `samples` counts the clip at 16 kHz; the hash covers the frames that
// count, float32, row by row. Errors: INVALID_ARGUMENT at once for
// an unknown model, or after all files with how many of them failed;
// UNAVAILABLE at once if `out` fails.
absl::Status InspectAudio(const InspectAudioOptions& options,
                          absl::Span<const std::string> files,
                          std::ostream& out);

// ---- inspect helpers --------------------------------------------------------

// Adds `inspect helpers` to `inspect`.
void AddInspectHelpers(CommandLine* line, Command* inspect);

// Starts each helper of a library that is not the server's own, and asks it
// once. Writes one JSON object a line: {helper, reads} or {helper, reads,
// error}; FFmpeg's also `version`. Errors: FAILED_PRECONDITION after all, with
// how many cannot run here; UNAVAILABLE at once if `out` fails.
absl::Status InspectHelpers(std::ostream& out);

// ---- inspect text, conversation, positions ----------------------------------

// Adds `inspect text`, which prints the token ids of texts.
void AddInspectText(CommandLine* line, Command* inspect);

// Runs the command on any streams. Each input line {"text": …} gives an output
// line {"ids": […]}. Errors name the line: INVALID_ARGUMENT, the tokenizer's.
absl::Status InspectText(const Tokenizer& tokenizer, std::istream& in,
                         std::ostream& out);

// Adds `inspect conversation`, which prints the token ids of conversations with
// images, as the processor of a model family makes them.
void AddInspectConversation(CommandLine* line, Command* inspect);

struct ConversationOptions {
  std::string family;         // a model of models/, or ""
  std::string rules = {};     // as --rules
  std::string chat_template;  // a file, or ""
  std::string tokenizer;
  std::string reasoning = "template";  // as TemplateRenderer::Options
  bool with_text = false;
};

// Runs the command: for each line of `in`, a conversation (ParseConversation,
// or with a template what TemplateRenderer::Request has) with `images`,
// [[height, width], ...], writes {"ids", "labels"}, "left_out" where a template
// leaves something out (RenderedConversation), and `with_text` "text" and
// "supervised". A conversation that is refused has "error", and goes without
// "labels" and "supervised", or is "error" alone where no text is known.
// Errors: INVALID_ARGUMENT (neither model nor template; an option that needs a
// template); a data fault (conversations were refused), after the last line; as
// TransformJsonLines, BuildText and TemplateRenderer::Create.
absl::Status InspectConversations(const ConversationOptions& options,
                                  std::istream& in, std::ostream& out);

// Adds `inspect positions`, which prints the position ids of token ids.
void AddInspectPositions(CommandLine* line, Command* inspect);

// Runs the command on any streams. Each input line {"input_ids": […],
// "image_grid_thw": [[t,h,w], …]} gives an output line {"position_ids": [[…],
// …]} with one list for each axis of `model`. Errors name the line:
// INVALID_ARGUMENT.
absl::Status InspectPositions(const v1::Model& model, std::istream& in,
                              std::ostream& out);

// Indented lines that say how many images JPEG engines may decode, how many of
// them have been checked, and why the others stay with the server:
//   JPEG engines may decode 950 of 1000 images: 945 clean, 5 unsound
//   the server decodes: 30 not baseline of 8 bits, 20 not a JPEG
// Pure.
std::string MarksText(const ImageMarkCounts& marks);

// The lines that `index --check` prints of a source. Pure.
std::string CheckText(const SourceCheck& check, const Shard& shard);

// ---- inspect sample ---------------------------------------------------------

// Adds `inspect sample`, which prints what a server would build for the sample
// at a position.
void AddInspectSample(CommandLine* line, Command* inspect);

// Reads one JSON object a line from `in` and writes the result of `transform`
// as one line to `out`, in order; skips empty lines. Stops at the first bad
// line. `transform` also gets the line itself. Errors name the line, counted
// from 1: INVALID_ARGUMENT (not a JSON object), transform's; UNAVAILABLE if
// `out` fails.
absl::Status TransformJsonLines(
    std::istream& in, std::ostream& out,
    const std::function<absl::StatusOr<nlohmann::ordered_json>(
        const nlohmann::json& object, const std::string& line)>& transform);

// ---- inspect index, fingerprint, balance, context, placement, lengths
// --------------------

// Adds `inspect index`, which prints what the indexes say of their images.
void AddInspectIndex(CommandLine* line, Command* inspect);

// Adds `inspect fingerprint`, which prints the fingerprint of a configuration.
void AddInspectFingerprint(CommandLine* line, Command* inspect);

// Adds `inspect balance`, which partitions costs given as JSON lines.
void AddInspectBalance(CommandLine* line, Command* inspect);

// Adds `inspect context`, which packs lengths given as JSON lines.
void AddInspectContext(CommandLine* line, Command* inspect);

// Adds `inspect placement`: compares objectives and placements by the times
// that the costs predict.
void AddInspectPlacement(CommandLine* line, Command* inspect);

// Writes the first `count` lengths of a mock source as one JSON array and a
// line break. Errors: INVALID_ARGUMENT names the option at fault; UNAVAILABLE
// if `out` fails.
absl::Status InspectLengths(const LognormalLengths& lengths, uint64_t count,
                            std::ostream& out);

// Adds `inspect lengths`, which prints the lengths of a mock source.
void AddInspectLengths(CommandLine* line, Command* inspect);

// ---- inspect recipe ---------------------------------------------------------

// Adds `inspect recipe`, which runs the recipe of a source on one record and
// prints what it was given and what it gave. Needs no index.
void AddInspectRecipe(CommandLine* line, Command* inspect);

// ---- lines of JSON ----------------------------------------------------------

// What `inspect image`, `video` and `audio` print: one JSON object a line for
// each file, in order, {file} and what `inspect` adds, and `error` if it fails.
// `noun` names the files in the error: "videos". Errors: INVALID_ARGUMENT
// after all files, with how many of them failed; UNAVAILABLE at once if `out`
// fails.
absl::Status InspectFiles(
    absl::Span<const std::string> files, absl::string_view noun,
    absl::FunctionRef<absl::Status(const std::string& file,
                                   nlohmann::ordered_json* object)>
        inspect,
    std::ostream& out);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_COMMANDS_H_
