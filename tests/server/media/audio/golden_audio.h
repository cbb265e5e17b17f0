#ifndef BALLAST_TESTS_SERVER_MEDIA_AUDIO_GOLDEN_AUDIO_H_
#define BALLAST_TESTS_SERVER_MEDIA_AUDIO_GOLDEN_AUDIO_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace ballast {

inline constexpr char kGoldenAudio[] = "golden/audio.json";

// The golden vectors of BALLAST_SHARED_DIR, which has them.
nlohmann::json ReadGoldenAudio();

// A signal out of integers, as the recipe of the vectors makes it.
std::vector<int16_t> MakePcm(const std::string& kind, int64_t samples,
                             uint64_t seed);

// The samples / 32768.
std::vector<float> ToFloats(const std::vector<int16_t>& pcm);

// The 64 places (row, column) whose values the vectors hold.
std::vector<std::pair<int64_t, int64_t>> SamplePoints(int64_t rows,
                                                      int64_t columns,
                                                      int64_t valid,
                                                      uint64_t seed);

// A WAV file of 16-bit samples, frame by frame if it has several channels.
std::string MakeWav(const std::vector<int16_t>& samples, uint32_t rate,
                    uint16_t channels);

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_MEDIA_AUDIO_GOLDEN_AUDIO_H_
