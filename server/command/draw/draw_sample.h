#ifndef BALLAST_SERVER_COMMAND_DRAW_DRAW_SAMPLE_H_
#define BALLAST_SERVER_COMMAND_DRAW_DRAW_SAMPLE_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/random.h"
#include "server/command/draw/receipt.h"
#include "server/media/encode.h"

namespace ballast {

// A text to ask questions about, in several scripts.
struct Passage {
  std::string text;                 // UTF-8
  std::vector<Question> questions;  // three
};

// Generates a passage. The text's length is lognormal, 60 to about 4000 bytes.
Passage MakePassage(Random* random);

// The kind of dataset to generate.
enum class Preset {
  kReceipts,  // receipts as JPEG: one a sample, sometimes two
  kMixed,     // receipts, pages, tables and scenes in three file formats, 0..4
              // a sample
  kText,      // no images
  kSpeech,    // a clip of audio a sample, and sometimes two; no images
};

// Parses `receipts`, `mixed`, `text` or `speech`. Errors: INVALID_ARGUMENT
// naming them all.
absl::StatusOr<Preset> ParsePreset(absl::string_view name);

inline constexpr int kMaxBytesSaid = 5000;
inline constexpr int kMaxBytesSaidOfImages = 3500;

struct DrawnImage {
  FileFormat format = FileFormat::kJpeg;
  int width = 0;
  int height = 0;
  std::string bytes;
};

struct DrawnSample {
  std::vector<DrawnImage> images;
  std::vector<std::string> clips;  // WAV files
  // One to three questions and answers, as `from` (system, human, gpt) and
  // `value`, with an `<image>` mark for each image, or an `<audio>` mark for
  // each clip, in the first question. The values take at most kMaxBytesSaid
  // bytes, or kMaxBytesSaidOfImages if there are images.
  std::vector<std::pair<std::string, std::string>> turns;
  // The same as the JSON of a LLaVA conversation.
  std::string conversation;
};

// Generates sample `number` of the dataset of `seed`: a pure function of its
// arguments. Errors: INTERNAL (an encoder failed).
absl::StatusOr<DrawnSample> DrawSample(Preset preset, uint64_t seed,
                                       uint64_t number);

// A WAV file of 16 kHz, 16 bits and one channel. Fewer than 2^30 samples.
std::string WriteWav(const std::vector<int16_t>& samples);

// A made signal and questions about it: nobody's voice.
struct Clip {
  std::string wav;  // 16 kHz, 16 bits, mono
  // At least one, as of a Picture.
  std::vector<Question> questions;
};

// Generates tones with pauses and noise between them: 0.5 to 30 s, lognormal,
// as long as sentences are. Made of integers, so the same on every machine.
Clip DrawClip(Random* random);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_DRAW_DRAW_SAMPLE_H_
