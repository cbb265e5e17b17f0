#ifndef BALLAST_SERVER_COMMAND_INSPECT_AUDIO_H_
#define BALLAST_SERVER_COMMAND_INSPECT_AUDIO_H_

#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/command_line.h"
#include "server/audio/audio_plan.h"

namespace ballast {

// How `inspect audio` reads sound.
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
// error}. `samples` are those of the clip at 16 kHz; the hash is that of the
// frames that count, float32, row by row. Errors: INVALID_ARGUMENT at once for
// an unknown model, or after all files with how many of them failed;
// UNAVAILABLE at once if `out` fails.
absl::Status InspectAudio(const InspectAudioOptions& options,
                          absl::Span<const std::string> files,
                          std::ostream& out);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INSPECT_AUDIO_H_
