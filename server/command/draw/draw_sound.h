#ifndef BALLAST_SERVER_COMMAND_DRAW_DRAW_SOUND_H_
#define BALLAST_SERVER_COMMAND_DRAW_DRAW_SOUND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "server/command/draw/prose.h"
#include "server/command/draw/random.h"

namespace ballast {

// A WAV file of 16 kHz, 16 bits and one channel. Fewer than 2^30 samples.
std::string WriteWav(const std::vector<int16_t>& samples);

// A made signal and questions about it: nobody's voice.
struct Sound {
  std::string wav;  // 16 kHz, 16 bits, mono
  // At least one, as of a Picture.
  std::vector<Question> questions;
};

// Generates tones with pauses and noise between them: 0.5 to 30 s, lognormal,
// as long as sentences are. Made of integers, so the same on every machine.
Sound DrawSound(Random* random);

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_DRAW_DRAW_SOUND_H_
