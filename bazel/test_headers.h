// System headers of most test files, compiled once for all of them (cc.bzl). Follows
// message_headers.h.
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
