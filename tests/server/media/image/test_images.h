#ifndef BALLAST_TESTS_SERVER_MEDIA_IMAGE_TEST_IMAGES_H_
#define BALLAST_TESTS_SERVER_MEDIA_IMAGE_TEST_IMAGES_H_

#include <string>

#include "tests/fakes/read_file.h"

namespace ballast {

// The path of `name` in testdata, drawn by make_vectors.py.
inline std::string TestDataPath(const std::string& name) {
  return "tests/server/media/image/testdata/" + name;
}

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_MEDIA_IMAGE_TEST_IMAGES_H_
