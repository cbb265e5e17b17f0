#include "tests/server/media/audio/golden_audio.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "tests/fakes/shared_dir.h"

namespace ballast {
namespace {

uint64_t SplitMix(uint64_t z) {
  z += 0x9E3779B97F4A7C15;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

// An integer wave like a sine.
int64_t Parabola(int64_t phase) {
  const int64_t p = (phase & 0xFFFF) - 32768;
  return (p * (32768 - std::abs(p))) >> 13;
}

int64_t FloorDivide(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

int64_t MakeSample(const std::string& kind, int64_t i, int64_t n,
                   uint64_t seed) {
  const auto s = static_cast<int64_t>(seed);
  const uint64_t drawn =
      SplitMix(static_cast<uint64_t>(i) + seed * 0x100000001B3);
  const int64_t noise = static_cast<int64_t>(drawn >> 48) - 32768;
  const int64_t f = 400 + s % 3000;
  if (kind == "noise") return noise >> 1;
  if (kind == "quiet") return FloorDivide(noise, 20000);
  if (kind == "silence") return 0;
  if (kind == "dc") return 1000 + s % 5000;
  if (kind == "square") return ((i * f) & 0xFFFF) < 32768 ? 32767 : -32768;
  if (kind == "impulse") return i == n - 1 ? -20000 : i == s % n ? 32767 : 0;
  if (kind == "chirp") {
    const int64_t j = i % 65536;
    return Parabola(f * j + ((j * j) >> 3)) * 3 >> 2;
  }
  if (kind == "speech") {
    if (i / 1600 % 7 == 3) return 0;
    const int64_t e = std::abs(((i * 16) & 0xFFFF) - 32768);
    return ((Parabola(f * i) + (Parabola(f * 3 * i + 1234) >> 1)) * e >> 17) +
           (noise >> 7);
  }
  if (kind == "halfsilent") return i < n - n / 2 ? noise >> 2 : 0;
  if (kind == "lateburst") return i >= n - 100 ? noise >> 1 : noise >> 13;
  std::abort();
}

template <typename T>
void Append(T value, std::string* to) {
  to->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

nlohmann::json ReadGoldenAudio() {
  std::ifstream file(
      absl::StrCat(*SharedDirWith(kGoldenAudio), "/", kGoldenAudio));
  return nlohmann::json::parse(file);
}

std::vector<int16_t> MakePcm(const std::string& kind, int64_t samples,
                             uint64_t seed) {
  std::vector<int16_t> pcm;
  for (int64_t i = 0; i < samples; ++i) {
    pcm.push_back(static_cast<int16_t>(std::clamp<int64_t>(
        MakeSample(kind, i, samples, seed), -32768, 32767)));
  }
  return pcm;
}

std::vector<float> ToFloats(const std::vector<int16_t>& pcm) {
  std::vector<float> floats;
  for (const int16_t sample : pcm) floats.push_back(sample / 32768.0F);
  return floats;
}

std::vector<std::pair<int64_t, int64_t>> SamplePoints(int64_t rows,
                                                      int64_t columns,
                                                      int64_t valid,
                                                      uint64_t seed) {
  const int64_t v = std::max<int64_t>(valid, 1);
  const auto draw = [&](uint64_t k, int64_t below) {
    return static_cast<int64_t>(SplitMix(k + seed * 1000003) %
                                static_cast<uint64_t>(below));
  };
  const int64_t edge[] = {0,        0,        1,     2,    v - 3, v - 2,
                          v - 1,    v - 1,    v,     v,    v + 1, rows - 2,
                          rows - 1, rows - 1, v / 2, v / 3};
  std::vector<std::pair<int64_t, int64_t>> points;
  for (uint64_t k = 0; k < 64; ++k) {
    const int64_t row = k < 16 ? std::max<int64_t>(edge[k], 0) : draw(k, v);
    points.emplace_back(std::min(row, rows - 1), draw(64 + k, columns));
  }
  return points;
}

std::string MakeWav(const std::vector<int16_t>& samples, uint32_t rate,
                    uint16_t channels) {
  const auto bytes = static_cast<uint32_t>(samples.size() * 2);
  std::string wav = "RIFF";
  Append<uint32_t>(36 + bytes, &wav);
  wav += "WAVEfmt ";
  Append<uint32_t>(16, &wav);
  Append<uint16_t>(1, &wav);
  Append<uint16_t>(channels, &wav);
  Append<uint32_t>(rate, &wav);
  Append<uint32_t>(rate * channels * 2, &wav);
  Append<uint16_t>(static_cast<uint16_t>(channels * 2), &wav);
  Append<uint16_t>(16, &wav);
  wav += "data";
  Append<uint32_t>(bytes, &wav);
  wav.append(reinterpret_cast<const char*>(samples.data()), bytes);
  return wav;
}

}  // namespace ballast
