#ifndef BALLAST_TESTS_SERVER_IMAGE_TEST_IMAGES_H_
#define BALLAST_TESTS_SERVER_IMAGE_TEST_IMAGES_H_

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/strings/string_view.h"
#include "tests/fakes/read_file.h"

namespace ballast {

// Reads a JSON file. Fails the running test if it cannot be read.
nlohmann::json ReadJsonOrFail(const std::string& path);

// The path of `name` in testdata, drawn by make_vectors.py.
std::string TestDataPath(const std::string& name);

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_IMAGE_TEST_IMAGES_H_
