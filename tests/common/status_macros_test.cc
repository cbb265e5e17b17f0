#include "common/status_macros.h"

#include <gtest/gtest.h>

#include "absl/strings/cord.h"

namespace ballast {
namespace {

TEST(AnnotateTest, PutsTheContextBeforeTheMessage) {
  const absl::Status status =
      Annotate(absl::NotFoundError("no such file"), "image 3");
  EXPECT_EQ(status, absl::NotFoundError("image 3: no such file"));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "image 3").ok());
}

// Such as the kind of a bad sample, by which an index counts it.
TEST(AnnotateTest, KeepsPayloads) {
  absl::Status status = absl::InvalidArgumentError("is a URL");
  status.SetPayload("kind", absl::Cord("image is a URL"));
  status.SetPayload("other", absl::Cord("7"));
  const absl::Status annotated =
      Annotate(Annotate(status, "image 3"), "turn 1");
  EXPECT_EQ(annotated.message(), "turn 1: image 3: is a URL");
  EXPECT_EQ(annotated.GetPayload("kind"), absl::Cord("image is a URL"));
  EXPECT_EQ(annotated.GetPayload("other"), absl::Cord("7"));
}

}  // namespace
}  // namespace ballast
