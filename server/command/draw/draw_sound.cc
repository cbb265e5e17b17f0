#include "server/command/draw/draw_sound.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace ballast {
namespace {

constexpr uint32_t kRate = 16000;

void AddLittle(uint64_t value, int bytes, std::string* to) {
  for (int i = 0; i < bytes; ++i)
    to->push_back(static_cast<char>(value >> 8 * i));
}

// Parabolas, which look like a sine. The period is 65536.
int Wave(uint32_t phase) {
  const int p = static_cast<int>(phase & 0xFFFF) - 32768;
  return p * (32768 - std::abs(p)) >> 13;
}

}  // namespace

std::string WriteWav(const std::vector<int16_t>& samples) {
  std::string wav = "RIFF";
  AddLittle(36 + 2 * samples.size(), 4, &wav);
  wav += "WAVEfmt ";
  AddLittle(16, 4, &wav);
  AddLittle(1, 2, &wav);  // PCM
  AddLittle(1, 2, &wav);
  AddLittle(kRate, 4, &wav);
  AddLittle(2 * kRate, 4, &wav);
  AddLittle(2, 2, &wav);
  AddLittle(16, 2, &wav);
  wav += "data";
  AddLittle(2 * samples.size(), 4, &wav);
  for (const int16_t sample : samples) {
    AddLittle(static_cast<uint16_t>(sample), 2, &wav);
  }
  return wav;
}

Sound DrawSound(Random* random) {
  const int all = random->Lognormal(6 * kRate, 0.7, kRate / 2, 30 * kRate);
  const int tones = random->Between(1, 5);
  std::vector<int16_t> samples;
  std::vector<int> pitches;
  for (int tone = 0; tone < tones; ++tone) {
    // Hertz, not near those of the tone before.
    int pitch = random->Between(2, 30) * 100;
    if (!pitches.empty() && pitches.back() == pitch) pitch += 100;
    pitches.push_back(pitch);
    const uint32_t step = static_cast<uint32_t>(pitch) * 65536u / kRate;
    const int length = all / tones;
    const int sounding = length - length / 5;
    for (int i = 0; i < length; ++i) {
      const int loud =
          i < sounding ? Wave(static_cast<uint32_t>(i) * step) / 3 : 0;
      samples.push_back(
          static_cast<int16_t>(loud + random->Between(-200, 200)));
    }
  }
  Sound sound;
  sound.wav = WriteWav(samples);
  sound.questions.push_back(
      {"How many tones are there?", absl::StrCat(tones, ".")});
  if (tones > 1) {
    sound.questions.push_back(
        {"Is the last tone higher than the first?",
         pitches.back() > pitches.front() ? "Yes." : "No."});
  }
  return sound;
}

}  // namespace ballast
