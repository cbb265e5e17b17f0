#ifndef BALLAST_TESTS_SERVER_VIDEO_DAMAGED_BYTES_H_
#define BALLAST_TESTS_SERVER_VIDEO_DAMAGED_BYTES_H_

#include <random>
#include <string>
#include <vector>

namespace ballast {

// Paths of short videos in six containers, made by `ffmpeg`.
std::vector<std::string> MakeVideosToDamage();

// Damages a copy of a file in one of the ways that files in the wild are.
std::string Damaged(std::string bytes, std::mt19937_64* random);

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_VIDEO_DAMAGED_BYTES_H_
