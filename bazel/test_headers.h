// System headers that most test files include, compiled once for all of them: they
// are most of what a test's compilation reads. A file still includes what it needs.
#ifndef BALLAST_BAZEL_TEST_HEADERS_H_
#define BALLAST_BAZEL_TEST_HEADERS_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <random>
#include <set>
#include <sstream>
#include <tuple>

#endif  // BALLAST_BAZEL_TEST_HEADERS_H_
